"""Transactions, as __transaction_state keeps them: one record for each transactional id, the last one counts.

The key stands behind two bytes of its type, the value behind two bytes of its version; see `internal_topics`.

v0   (KIP-98)
v1   of the value: flexible (KIP-915); in tags the producer ids and epochs before and after, and the version of
     transactions that the client speaks (KIP-890)
"""

from kwire.protocol.fields import int8, int16, int32, int64, string
from kwire.protocol.schema import Message, Struct, tagged


class TransactionLogKey(Message, key=0, versions=(0, 0), flexible=None):
    transactional_id: string


class TransactionLogValue(Message, key=0, versions=(0, 1), flexible=1):
    class PartitionsSchema(Struct):
        topic: string
        partition_ids: list[int32]

    producer_id: int64
    previous_producer_id: int64 = tagged(0, since=1, default=-1)
    next_producer_id: int64 = tagged(1, since=1, default=-1)
    producer_epoch: int16
    next_producer_epoch: int16 = tagged(3, since=1, default=-1)
    transaction_timeout_ms: int32
    transaction_status: int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int64
    transaction_start_timestamp_ms: int64
    client_transaction_version: int16 = tagged(2, since=1, default=0)
