"""AlterReplicaLogDirs (key 34): move replicas between the directories of one broker.

v0   (KIP-113)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import int16, int32, string
from kwire.protocol.schema import Request, Response, Struct


class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"], key=34, versions=(0, 2), flexible=2):
    class Dir(Struct):
        class Topic(Struct):
            name: string
            partitions: list[int32]

        path: string
        topics: list[Topic]

    dirs: list[Dir]


class AlterReplicaLogDirsResponse(Response, key=34, versions=(0, 2), flexible=2):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16

        topic_name: string
        partitions: list[Partition]

    throttle_time_ms: int32 = 0
    results: list[Topic]
