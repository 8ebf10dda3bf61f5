"""DescribeProducers (key 61): the producers that a partition's leader knows, and their open transactions.

v0   flexible (KIP-664)
"""

from kwire.protocol.fields import int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct


class DescribeProducersRequest(Request["DescribeProducersResponse"], key=61, versions=(0, 0), flexible=0):
    class Topic(Struct):
        name: string
        partition_indexes: list[int32]

    topics: list[Topic]


class DescribeProducersResponse(Response, key=61, versions=(0, 0), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            class Producer(Struct):
                producer_id: int64
                producer_epoch: int32
                last_sequence: int32 = -1
                last_timestamp: int64 = -1
                coordinator_epoch: int32
                current_txn_start_offset: int64 = -1

            partition_index: int32
            error_code: int16
            error_message: string | None = None
            active_producers: list[Producer]

        name: string
        partitions: list[Partition]

    throttle_time_ms: int32 = 0
    topics: list[Topic]
