"""AssignReplicasToDirs (key 73): a broker reports to the controller in which directories its replicas are.

v0   flexible (KIP-858)
"""

from kwire.protocol.fields import int16, int32, int64, uuid
from kwire.protocol.schema import Request, Response, Struct


class AssignReplicasToDirsRequest(Request["AssignReplicasToDirsResponse"], key=73, versions=(0, 0), flexible=0):
    class Directory(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int32

            topic_id: uuid
            partitions: list[Partition]

        id: uuid
        topics: list[Topic]

    broker_id: int32
    broker_epoch: int64 = -1
    directories: list[Directory]


class AssignReplicasToDirsResponse(Response, key=73, versions=(0, 0), flexible=0):
    class Directory(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int32
                error_code: int16

            topic_id: uuid
            partitions: list[Partition]

        id: uuid
        topics: list[Topic]

    throttle_time_ms: int32 = 0
    error_code: int16
    directories: list[Directory]
