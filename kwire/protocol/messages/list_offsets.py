"""ListOffsets (key 2): the offset of a timestamp, or of a place that a negative timestamp names, per partition.

v0   up to max_num_offsets segment base offsets before the timestamp
v1   the one offset of the first record at or after the timestamp, and its timestamp (KIP-79)
v2   isolation level and throttle time (KIP-98): "latest" may mean the last stable offset
v3   throttling is the client's to carry out (KIP-219)
v4   leader epochs, to fence stale askers (KIP-320)
v5   OFFSET_NOT_AVAILABLE may be returned (KIP-207)
v6   flexible (KIP-482)
v7   -3 requests the record with the highest timestamp (KIP-734)
v8   -4 requests the start of the broker's local log (KIP-405)
v9   -5 requests the last offset in tiered storage (KIP-1005)
v10  a time limit, for offsets in tiered storage (KIP-1075)
v11  -6 requests the first offset not yet copied to tiered storage (KIP-1023)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import int8, int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since

# Timestamps that name a place.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6


class ListOffsetsRequest(Request["ListOffsetsResponse"], key=2, versions=(0, 11), flexible=6):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            current_leader_epoch: int32 = since(4, default=-1, ignorable=True)
            timestamp: int64
            max_num_offsets: int32 = since(0, until=0, default=1)

        name: string
        partitions: list[Partition]

    replica_id: int32
    isolation_level: int8 = since(2, default=0)
    topics: list[Topic]
    timeout_ms: int32 = since(10, default=0, ignorable=True)


class ListOffsetsResponse(Response, key=2, versions=(0, 11), flexible=6):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16
            old_style_offsets: list[int64] = since(0, until=0, default=[])
            timestamp: int64 = since(1, default=-1)
            offset: int64 = since(1, default=-1)
            leader_epoch: int32 = since(4, default=-1)

        name: string
        partitions: list[Partition]

    throttle_time_ms: int32 = since(2, default=0, ignorable=True)
    topics: list[Topic]
