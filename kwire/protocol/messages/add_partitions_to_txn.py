"""AddPartitionsToTxn (key 24): announce to the transaction coordinator which partitions a transaction will write to.

v0   (KIP-98)
v1   throttling is the client's to carry out (KIP-219)
v2   PRODUCER_FENCED may be returned (KIP-588)
v3   flexible (KIP-482)
v4   several transactions, and verification instead of adding: for brokers, as all later versions (KIP-890)
v5   TRANSACTION_ABORTABLE may be returned (KIP-890)
"""

from kwire.protocol.fields import boolean, int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since


class AddPartitionsToTxnTopic(Struct):
    name: string
    partitions: list[int32]


class AddPartitionsToTxnTopicResult(Struct):
    class Partition(Struct):
        partition_index: int32
        partition_error_code: int16

    name: string
    results_by_partition: list[Partition]


class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"], key=24, versions=(0, 5), flexible=3):
    class Transaction(Struct):
        transactional_id: string
        producer_id: int64
        producer_epoch: int16
        verify_only: boolean = False
        topics: list[AddPartitionsToTxnTopic]

    transactions: list[Transaction] = since(4, default=[])
    v3_and_below_transactional_id: string = since(0, until=3, default="")
    v3_and_below_producer_id: int64 = since(0, until=3, default=0)
    v3_and_below_producer_epoch: int16 = since(0, until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since(0, until=3, default=[])


class AddPartitionsToTxnResponse(Response, key=24, versions=(0, 5), flexible=3):
    class Transaction(Struct):
        transactional_id: string
        topic_results: list[AddPartitionsToTxnTopicResult]

    throttle_time_ms: int32 = 0
    error_code: int16 = since(4, default=0, ignorable=True)
    results_by_transaction: list[Transaction] = since(4, default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since(0, until=3, default=[])
