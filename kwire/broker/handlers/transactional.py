"""What the handlers of transactions say in the same words: who may write in one, and errors as older clients know them.

Owns the translation of the transaction coordinator's errors for Produce and TxnOffsetCommit (Kafka's
AddPartitionsToTxnManager), and for clients from before KIP-588.
"""

from __future__ import annotations

from kwire.broker.producer_ids import Identity
from kwire.broker.state import ClusterState
from kwire.broker.transactions import Place
from kwire.errors import BrokerError, ErrorCode, broker_error


def enter(
    cluster: ClusterState,
    transactional_id: str,
    identity: Identity,
    place: Place,
    now: float,
    *,
    adds: bool,
    knows_abortable: bool,
) -> None:
    """A write is about to become part of a transaction. `adds`: it joins by itself (KIP-890), else it must have been
    added before; `knows_abortable`: the client's version may be told TRANSACTION_ABORTABLE. Raises BrokerError."""
    transactions = cluster.transactions
    try:
        if adds:
            transactions.add(transactional_id, identity, [place], now)
        elif cluster.options.verify_transactional_writes:
            transactions.verify(transactional_id, identity, place)
    except BrokerError as error:
        raise broker_error(_as_of_a_write(error.code, adds, knows_abortable), error.broker_message) from None


def _as_of_a_write(code: int, adds: bool, knows_abortable: bool) -> int:
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if code == ErrorCode.CONCURRENT_TRANSACTIONS and not adds:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # what every client tries again without looking for another leader
    return code


def fenced_as(code: int, *, knows_fenced: bool) -> int:
    """PRODUCER_FENCED, or what clients of versions before KIP-588 are told in its place."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code == ErrorCode.PRODUCER_FENCED and not knows_fenced else code
