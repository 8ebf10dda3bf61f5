"""What the handlers of transactions share: the check of a transactional write, and error codes of older versions.

The translation of the coordinator's errors for Produce and TxnOffsetCommit follows Kafka's AddPartitionsToTxnManager;
that for clients before KIP-588 follows its KafkaApis.
"""

from __future__ import annotations

from kwire.broker.cluster_state import ClusterState
from kwire.broker.ids import ProducerIdAndEpoch
from kwire.broker.offsets import TopicPartition
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
    """Add a partition to a transaction before its first write (`adds`, KIP-890), or verify that it was added before.

    `supports_abortable`: the request's version knows TRANSACTION_ABORTABLE. Raises BrokerError.
    """
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
        return ErrorCode.NOT_ENOUGH_REPLICAS  # clients retry it without a metadata update
    return code


def fenced_error(code: int, *, supports_fenced: bool) -> int:
    """Return the error; versions before KIP-588 get INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code == ErrorCode.PRODUCER_FENCED and not supports_fenced else code
