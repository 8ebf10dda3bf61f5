"""What the handlers of transactions say in the same words: who may write in one, and errors as older clients know them.

Owns the translation of the transaction coordinator's errors for Produce and TxnOffsetCommit (Kafka's
AddPartitionsToTxnManager), and for clients from before KIP-588.
"""

from __future__ import annotations

from kwire.broker.cluster_state import ClusterState
from kwire.broker.ids import ProducerIdAndEpoch
from kwire.broker.transactions import TopicPartition
from kwire.errors import BrokerError, ErrorCode, broker_error


def add_or_verify(
    cluster: ClusterState,
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    partition: TopicPartition,
    now: float,
    *,
    adds: bool,
    supports_abortable: bool,
) -> None:
    """A write is about to become part of a transaction. `adds`: it joins by itself (KIP-890), else it must have been
    added before; `knows_abortable`: the client's version may be told TRANSACTION_ABORTABLE. Raises BrokerError."""
    transactions = cluster.transactions
    try:
        if adds:
            transactions.add(transactional_id, identity, [partition], now)
        elif cluster.options.verify_transactional_writes:
            transactions.verify(transactional_id, identity, partition)
    except BrokerError as error:
        raise broker_error(_produce_error(error.code, adds, supports_abortable), error.broker_message) from None


def _produce_error(code: int, adds: bool, supports_abortable: bool) -> int:
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not supports_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if code == ErrorCode.CONCURRENT_TRANSACTIONS and not adds:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # what every client tries again without looking for another leader
    return code


def fenced_error(code: int, *, supports_fenced: bool) -> int:
    """PRODUCER_FENCED, or what clients of versions before KIP-588 are told in its place."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code == ErrorCode.PRODUCER_FENCED and not supports_fenced else code
