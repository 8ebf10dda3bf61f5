"""DescribeLogDirs (key 35): the log directories of a broker and the sizes of the replicas in them.

v0   (KIP-113)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)
v3   a top-level error (KIP-784)
v4   total and usable space (KIP-827)
v5   directories that take no new replicas (KIP-1066)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import boolean, int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since


class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"], key=35, versions=(0, 5), flexible=2):
    class Topic(Struct):
        topic: string
        partitions: list[int32]

    topics: list[Topic] | None


class DescribeLogDirsResponse(Response, key=35, versions=(0, 5), flexible=2):
    class Result(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int32
                partition_size: int64
                offset_lag: int64
                is_future_key: boolean

            name: string
            partitions: list[Partition]

        error_code: int16
        log_dir: string
        topics: list[Topic]
        total_bytes: int64 = since(4, default=-1, ignorable=True)
        usable_bytes: int64 = since(4, default=-1, ignorable=True)
        is_cordoned: boolean = since(5, default=False, ignorable=True)

    throttle_time_ms: int32 = 0
    error_code: int16 = since(3, default=0, ignorable=True)
    results: list[Result]
