"""ListTransactions (key 66): the transactions that a broker coordinates.

v0   flexible (KIP-664)
v1   only those that last longer than a time (KIP-994)
v2   only those whose id matches a pattern (KIP-1152)
"""

from kwire.protocol.fields import int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since


class ListTransactionsRequest(Request["ListTransactionsResponse"], key=66, versions=(0, 2), flexible=0):
    state_filters: list[string]
    producer_id_filters: list[int64]
    duration_filter: int64 = since(1, default=-1)
    transactional_id_pattern: string | None = since(2, default=None)


class ListTransactionsResponse(Response, key=66, versions=(0, 2), flexible=0):
    class Transaction(Struct):
        transactional_id: string
        producer_id: int64
        transaction_state: string

    throttle_time_ms: int32 = 0
    error_code: int16
    unknown_state_filters: list[string]
    transaction_states: list[Transaction]
