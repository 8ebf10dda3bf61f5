"""DescribeTransactions (key 65): state and partitions of transactions, from their coordinator.

v0   flexible (KIP-664)
"""

from kwire.protocol.fields import int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct


class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"], key=65, versions=(0, 0), flexible=0):
    transactional_ids: list[string]


class DescribeTransactionsResponse(Response, key=65, versions=(0, 0), flexible=0):
    class Transaction(Struct):
        class Topic(Struct):
            topic: string
            partitions: list[int32]

        error_code: int16
        transactional_id: string
        transaction_state: string
        transaction_timeout_ms: int32
        transaction_start_time_ms: int64
        producer_id: int64
        producer_epoch: int16
        topics: list[Topic]

    throttle_time_ms: int32 = 0
    transaction_states: list[Transaction]
