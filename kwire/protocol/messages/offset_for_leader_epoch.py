"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, to find out what of a log is not the leader's any more.

v0   for followers only (KIP-101)
v1   the response has the epoch (KIP-279)
v2   current leader epoch, to fence stale requests; throttle time; consumers may send it (KIP-320)
v3   the replica that sends it (KIP-392)
v4   flexible (KIP-482)

Kafka 4.0 dropped versions 0 and 1.
"""

from kwire.protocol.fields import int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since

# replica_id
CONSUMER = -1
DEBUGGING_CONSUMER = -2  # may see records that are not replicated yet


class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"], key=23, versions=(0, 4), flexible=4):
    class Topic(Struct):
        class Partition(Struct):
            partition: int32
            current_leader_epoch: int32 = since(2, default=-1, ignorable=True)
            leader_epoch: int32

        topic: string
        partitions: list[Partition]

    replica_id: int32 = since(3, default=DEBUGGING_CONSUMER, ignorable=True)
    topics: list[Topic]


class OffsetForLeaderEpochResponse(Response, key=23, versions=(0, 4), flexible=4):
    class Topic(Struct):
        class Partition(Struct):
            error_code: int16
            partition: int32
            leader_epoch: int32 = since(1, default=-1, ignorable=True)
            end_offset: int64 = -1

        topic: string
        partitions: list[Partition]

    throttle_time_ms: int32 = since(2, default=0, ignorable=True)
    topics: list[Topic]
