"""The transaction coordinator: transactional ids, their epochs and transactions, and the writing of markers.

    EMPTY --add--> ONGOING --end--> PREPARE_COMMIT, PREPARE_ABORT --markers written--> COMPLETE_COMMIT, COMPLETE_ABORT
                      ^                                                                      |
                      '----------------------------------- add -----------------------------'

InitProducerId leads from a complete state to EMPTY, and an abort of an empty transaction from there to PREPARE_ABORT
(KIP-890). `Transaction` is Kafka's TransactionMetadata, `MarkerWriter` its TransactionMarkerChannelManager,
`TransactionCoordinator` the class of that name. It serves both protocols: the older one, and that of KIP-890, in which
each end brings a new epoch. The request's version selects the protocol, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kwire.broker.ids import LAST_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch, ProducerIdManager
from kwire.broker.offsets import OFFSETS_TOPIC, OffsetManager, TopicPartition
from kwire.broker.options import Options
from kwire.broker.partition import NO_LEADER, Partition
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.net.timers import Timer, Timers

NOT_STARTED = -1


class Marker(NamedTuple):
    """The contents of a transaction marker, which ends a transaction in a partition's log."""

    is_commit: bool
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class TransactionState(Enum):
    """Values are the names that DescribeTransactions shows."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_S = TransactionState
IDLE = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
ENDING = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
_VALID_PREVIOUS_STATES = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: {_S.ONGOING},
    _S.PREPARE_ABORT: IDLE | {_S.ONGOING},
    _S.COMPLETE_COMMIT: {_S.PREPARE_COMMIT},
    _S.COMPLETE_ABORT: {_S.PREPARE_ABORT},
}
# The states of a commit (True) and an abort (False).
COMPLETE = {True: _S.COMPLETE_COMMIT, False: _S.COMPLETE_ABORT}
PREPARE = {True: _S.PREPARE_COMMIT, False: _S.PREPARE_ABORT}


@dataclass(slots=True, eq=False)
class Transaction:
    """One transactional id and its transaction. Times are wall milliseconds. The first InitProducerId sets epoch 0."""

    id: str
    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    last_epoch: int = NO_PRODUCER_EPOCH  # the epoch before, if the same producer had both
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # set when the ending transaction uses up the last epoch
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: dict[TopicPartition, None] = field(default_factory=dict)  # an ordered set
    started_ms: int = NOT_STARTED
    updated_ms: int = 0
    coordinator_epoch: int = 0
    timer: Timer | None = None  # aborts the transaction when its timeout expires

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= LAST_EPOCH

    def transition(self, state: TransactionState, now_ms: int) -> None:
        assert self.state in _VALID_PREVIOUS_STATES[state], f"transaction {self.id}: {self.state.name} -> {state.name}"
        self.state = state
        self.updated_ms = now_ms

    # InitProducerId.

    def may_be(self, expected: ProducerIdAndEpoch) -> bool:
        """Return whether `expected` may be the current producer. `bump_epoch` checks the epoch; here an exhausted
        producer id is accepted for its successor."""
        if self.epoch == NO_PRODUCER_EPOCH or expected.producer_id == self.producer_id:
            return True
        return expected.producer_id == self.previous_producer_id and expected.epoch >= LAST_EPOCH

    def bump_epoch(self, expected: ProducerIdAndEpoch | None, new_id: int | None, timeout_ms: int, now_ms: int) -> None:
        """Start a new epoch: epoch 0 of `new_id` if that is given, because epochs are exhausted. A producer that names
        its epoch and retries gets the same epoch again (KIP-360). Raises PRODUCER_FENCED."""
        former = self.epoch
        self.previous_producer_id = self.producer_id
        if new_id is not None:
            self.last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.epoch
            self.producer_id, self.epoch = new_id, 0
        elif expected is None or former in (NO_PRODUCER_EPOCH, expected.epoch):
            self.last_epoch = NO_PRODUCER_EPOCH if expected is None else former
            self.epoch = former + 1
        elif expected.epoch != self.last_epoch:
            raise broker_error(
                ErrorCode.PRODUCER_FENCED, f"epoch {expected.epoch} is fenced, the current epoch is {former}"
            )
        self.transition(TransactionState.EMPTY, now_ms)
        self.timeout_ms = timeout_ms
        self.started_ms = NOT_STARTED
        self.partitions.clear()

    # The transaction.

    def add(self, partitions: Iterable[TopicPartition], now_ms: int) -> bool:
        """Add partitions. Return whether this started the transaction."""
        begins = self.state is not TransactionState.ONGOING
        self.transition(TransactionState.ONGOING, now_ms)
        if begins:
            self.started_ms = now_ms
        self.partitions.update(dict.fromkeys(partitions))
        return begins

    def fence(self) -> None:
        """Fence the current epoch. Its producer may get the next one by InitProducerId, unless another producer did so
        before (KIP-360)."""
        self.last_epoch = self.epoch
        self.epoch += 1

    def prepare(self, *, commit: bool, bumps_epoch: bool, new_id: int = NO_PRODUCER_ID, now_ms: int) -> None:
        """Decide the end. `bumps_epoch`: the epoch ends with the transaction (KIP-890), so the markers carry the next
        one; `new_id` follows if that was the last epoch."""
        if self.state is not TransactionState.ONGOING:
            self.started_ms = now_ms  # an abort of an empty transaction
        self.transition(PREPARE[commit], now_ms)
        if bumps_epoch:
            self.last_epoch = self.epoch
            self.epoch += 1
            self.next_producer_id = new_id

    def complete(self, now_ms: int) -> None:
        """Complete the transaction: its markers are written."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        self.transition(COMPLETE[is_commit], now_ms)
        self.partitions.clear()
        if self.next_producer_id != NO_PRODUCER_ID:
            self.previous_producer_id, self.producer_id = self.producer_id, self.next_producer_id
            self.next_producer_id = NO_PRODUCER_ID
            self.epoch = 0

    @property
    def next_identity(self) -> ProducerIdAndEpoch:
        """Return the producer id and epoch that the producer uses after the ending transaction."""
        return (
            self.identity if self.next_producer_id == NO_PRODUCER_ID else ProducerIdAndEpoch(self.next_producer_id, 0)
        )

    # Retries of EndTxn by a client of the KIP-890 protocol.

    def is_previous(self, producer_id: int, epoch: int) -> bool:
        """Return whether this is the producer id and epoch before the last end."""
        if producer_id == self.producer_id and epoch + 1 == self.epoch:
            return True
        return producer_id == self.previous_producer_id and epoch == LAST_EPOCH and self.epoch == 0

    # Checks.

    def check_producer_id(self, producer_id: int) -> None:
        if producer_id != self.producer_id:
            why = f"{self.id} has producer id {self.producer_id}, not {producer_id}"
            raise broker_error(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)

    def check_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise broker_error(
                ErrorCode.PRODUCER_FENCED, f"epoch {epoch} of {self.id} is fenced, the current epoch is {self.epoch}"
            )

    def check_not_ending(self) -> None:
        if self.state in ENDING:
            raise broker_error(ErrorCode.CONCURRENT_TRANSACTIONS, f"{self.id} is {self.state.value}")


WallClock = Callable[[float], int]


class MarkerWriter:
    """A writer of markers into partitions, through their current leaders.

    `find(topic, index)` returns a partition, None if it was deleted; `wall_ms(now)` returns wall time. A marker counts
    when it is replicated. If its leader stops before, the next leader writes it again. Offsets of groups, which are no
    log here, are completed in the `OffsetManager`.
    """

    def __init__(
        self, find: Callable[[str, int], Partition | None], offsets: OffsetManager, wall_ms: WallClock
    ) -> None:
        self._find = find
        self._offsets = offsets
        self._wall_ms = wall_ms

    def write(
        self, marker: Marker, partitions: Collection[TopicPartition], on_done: Callable[[float], None], now: float
    ) -> None:
        """Write the marker and call `on_done(now)`, now or later, when every partition has it.

        A partition is skipped if its topic was deleted or a newer epoch of the producer has written to it.
        """
        pending = _PendingMarkers(marker, on_done, self._wall_ms)
        for topic, index in partitions:
            if topic == OFFSETS_TOPIC:
                self._offsets.complete_transaction(marker.producer_id, index, is_commit=marker.is_commit)
                continue
            partition = self._find(topic, index)
            if partition is not None:
                pending.add(partition)
        pending.start(now)


class _PendingMarkers:
    """The markers of one transaction. `_pending` maps partitions without a replicated marker to the end offset and the
    leader epoch of the marker, None if it is not written."""

    def __init__(self, marker: Marker, on_done: Callable[[float], None], wall_ms: WallClock) -> None:
        self._marker = marker
        self._on_done = on_done
        self._wall_ms = wall_ms
        self._pending: dict[Partition, tuple[int, int] | None] = {}
        self._is_done = False

    def add(self, partition: Partition) -> None:
        """Add a partition, before `start`."""
        self._pending[partition] = None

    def start(self, now: float) -> None:
        """Write the markers."""
        for partition in self._pending:
            partition.add_listener(self._check)
        self._check(now)

    def _check(self, now: float) -> None:
        # Appending a marker changes the partition, which calls this method re-entrantly. So `_is_written` stores the
        # marker's offset before it appends.
        for partition in list(self._pending):
            if partition in self._pending and self._is_written(partition, now) and partition in self._pending:
                del self._pending[partition]
                partition.remove_listener(self._check)
        if not self._pending and not self._is_done:
            self._is_done = True
            self._on_done(now)

    def _is_written(self, partition: Partition, now: float) -> bool:
        if partition.is_deleted:
            return True
        if partition.leader == NO_LEADER:
            self._pending[partition] = None
            return False
        written = self._pending[partition]
        if written is None or written[1] != partition.leader_epoch:
            written = self._pending[partition] = (partition.log.end_offset + 1, partition.leader_epoch)
            try:
                self._append(partition, now)
            except BrokerError:  # a newer epoch has written here, which ended this transaction
                return True
        return partition.log.high_watermark >= written[0]

    def _append(self, partition: Partition, now: float) -> None:
        marker = self._marker
        partition.append_marker(
            "commit" if marker.is_commit else "abort", producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch, coordinator_epoch=marker.coordinator_epoch, now=now,
            wall_ms=self._wall_ms(now),
        )  # fmt: skip


WriteMarkers = Callable[[Marker, Collection[TopicPartition], Callable[[float], None], float], None]


class TransactionCoordinator:
    """All transactional ids of the cluster. Every method raises BrokerError with the error code for the client.

    `write_markers(marker, partitions, on_done, now)` calls `on_done(now)` when all partitions have their marker.
    """

    def __init__(
        self,
        options: Options,
        timers: Timers,
        ids: ProducerIdManager,
        *,
        write_markers: WriteMarkers,
        wall_ms: Callable[[float], int],
    ) -> None:
        self._options = options
        self._timers = timers
        self._ids = ids
        self._write_markers = write_markers
        self._wall_ms = wall_ms
        self._by_id: dict[str, Transaction] = {}

    def __iter__(self) -> Iterator[Transaction]:
        return iter(tuple(self._by_id.values()))

    def get(self, transactional_id: str) -> Transaction | None:
        return self._by_id.get(transactional_id)

    # InitProducerId.

    def init(
        self, transactional_id: str | None, *, timeout_ms: int, expected: ProducerIdAndEpoch | None = None, now: float
    ) -> ProducerIdAndEpoch:
        """Return a new epoch, which fences the former ones. `expected` is what the producer claims to have.

        An open transaction is aborted first. This call then raises CONCURRENT_TRANSACTIONS, and so does each further
        one until the abort is complete.
        """
        if transactional_id is None:
            return ProducerIdAndEpoch(self._ids.new(), 0)
        if not transactional_id:
            raise broker_error(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._options.max_transaction_timeout_ms:
            raise broker_error(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms")
        transaction = self._by_id.get(transactional_id) or self._create(transactional_id)
        if expected is not None and not transaction.may_be(expected):
            raise broker_error(ErrorCode.PRODUCER_FENCED, f"a newer producer uses {transactional_id}")
        transaction.check_not_ending()
        if transaction.state is TransactionState.ONGOING:
            self._abort(transaction, now)
            raise broker_error(
                ErrorCode.CONCURRENT_TRANSACTIONS, f"the open transaction of {transaction.id} is being aborted"
            )
        needs_id = transaction.is_exhausted and (
            expected is None or expected.epoch in (transaction.epoch, transaction.last_epoch)
        )
        transaction.bump_epoch(expected, self._ids.new() if needs_id else None, timeout_ms, self._wall_ms(now))
        return transaction.identity

    def _create(self, transactional_id: str) -> Transaction:
        if len(self._by_id) >= self._options.max_transactional_ids:
            raise broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "max_transactional_ids are in use")
        made = self._by_id[transactional_id] = Transaction(transactional_id, self._ids.new())
        return made

    # AddPartitionsToTxn, AddOffsetsToTxn, and the first write in a partition since KIP-890.

    def add(
        self, transactional_id: str, identity: ProducerIdAndEpoch, partitions: Collection[TopicPartition], now: float
    ) -> None:
        """Add partitions before the transaction writes to them. Start a transaction if there is none."""
        transaction = self._find(transactional_id)
        transaction.check_producer_id(identity.producer_id)
        transaction.check_epoch(identity.epoch)
        transaction.check_not_ending()
        if transaction.add(partitions, self._wall_ms(now)):
            transaction.timer = self._timers.at(
                now + transaction.timeout_ms / 1000, lambda now: self._time_out(transaction, now)
            )

    def verify(self, transactional_id: str, identity: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """Check a write of the older protocol. Raises TRANSACTION_ABORTABLE for a partition that was not added."""
        transaction = self._find(transactional_id)
        transaction.check_producer_id(identity.producer_id)
        transaction.check_epoch(identity.epoch)
        transaction.check_not_ending()
        if partition not in transaction.partitions:
            raise broker_error(
                ErrorCode.TRANSACTION_ABORTABLE, f"{partition} was not added to the transaction of {transaction.id}"
            )

    def _find(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise broker_error(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        transaction = self._by_id.get(transactional_id)
        if transaction is None:
            raise broker_error(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id} has no producer id")
        return transaction

    # EndTxn.

    def end(
        self, transactional_id: str, identity: ProducerIdAndEpoch, *, commit: bool, bumps_epoch: bool, now: float
    ) -> ProducerIdAndEpoch:
        """Commit or abort. Return the producer id and epoch to continue with.

        `bumps_epoch`: the client uses the protocol of KIP-890 and gets a new epoch. The markers may be written later.
        """
        transaction = self._find(transactional_id)
        if bumps_epoch:
            is_done = self._check_end(transaction, identity, commit=commit)
        else:
            is_done = self._check_old_end(transaction, identity, commit=commit)
        if is_done:
            return transaction.identity
        self._end(transaction, commit=commit, bumps_epoch=bumps_epoch, now=now)
        return transaction.next_identity

    def _check_old_end(self, transaction: Transaction, identity: ProducerIdAndEpoch, *, commit: bool) -> bool:
        """Return whether the transaction ended this way before. Raises BrokerError."""
        transaction.check_producer_id(identity.producer_id)
        transaction.check_epoch(identity.epoch)
        if transaction.state is TransactionState.ONGOING:
            return False
        return self._check_repeat(transaction, commit=commit)

    def _check_end(self, transaction: Transaction, identity: ProducerIdAndEpoch, *, commit: bool) -> bool:
        """Like `_check_old_end`, for KIP-890: the epoch distinguishes a retry from the end of the next transaction, and
        an empty transaction can be aborted."""
        is_retry = transaction.state is not TransactionState.EMPTY and transaction.is_previous(*identity)
        if not is_retry:
            transaction.check_producer_id(identity.producer_id)
            transaction.check_epoch(identity.epoch)
            if transaction.state in ENDING:
                raise broker_error(ErrorCode.PRODUCER_FENCED, f"{transaction.id} is {transaction.state.value}")
        elif transaction.state is TransactionState.ONGOING:
            raise broker_error(ErrorCode.PRODUCER_FENCED, f"{transaction.id} is in its next transaction")
        if is_retry:
            return self._check_repeat(transaction, commit=commit)
        if commit and transaction.state is not TransactionState.ONGOING:
            raise self._invalid_state(transaction, commit=commit)
        return False

    def _check_repeat(self, transaction: Transaction, *, commit: bool) -> bool:
        if transaction.state is COMPLETE[commit]:
            return True
        if transaction.state is PREPARE[commit]:
            transaction.check_not_ending()
        raise self._invalid_state(transaction, commit=commit)

    def _invalid_state(self, transaction: Transaction, *, commit: bool) -> BrokerError:
        action = "committed" if commit else "aborted"
        return broker_error(
            ErrorCode.INVALID_TXN_STATE, f"{transaction.id} is {transaction.state.value}, it cannot be {action}"
        )

    def _end(self, transaction: Transaction, *, commit: bool, bumps_epoch: bool, now: float) -> None:
        needs_id = bumps_epoch and transaction.is_exhausted
        new_id = self._ids.new() if needs_id else NO_PRODUCER_ID
        transaction.prepare(commit=commit, bumps_epoch=bumps_epoch, new_id=new_id, now_ms=self._wall_ms(now))
        self._finish(transaction, now)

    def _abort(self, transaction: Transaction, now: float) -> None:
        """Abort in place of the producer, which is fenced."""
        transaction.fence()
        transaction.prepare(commit=False, bumps_epoch=False, now_ms=self._wall_ms(now))
        self._finish(transaction, now)

    def _finish(self, transaction: Transaction, now: float) -> None:
        """Write the markers, after `transaction_marker_ms`."""
        if transaction.timer is not None:
            transaction.timer.cancel()
            transaction.timer = None
        delay_ms = self._options.transaction_marker_ms
        if delay_ms and transaction.partitions:
            self._timers.at(now + delay_ms / 1000, lambda now: self._write(transaction, now))
        else:
            self._write(transaction, now)

    def _write(self, transaction: Transaction, now: float) -> None:
        marker = Marker(
            transaction.state is TransactionState.PREPARE_COMMIT,
            transaction.producer_id,
            transaction.epoch,
            transaction.coordinator_epoch,
        )
        self._write_markers(
            marker, tuple(transaction.partitions), lambda now: transaction.complete(self._wall_ms(now)), now
        )

    # Timeouts, moves and expiration.

    def _time_out(self, transaction: Transaction, now: float) -> None:
        if transaction.state is TransactionState.ONGOING:
            self._abort(transaction, now)

    def coordinators_moved(self, transactional_ids: Iterable[str]) -> None:
        """Raise the coordinator epoch of these ids: another broker coordinates them, with the same state."""
        for transactional_id in transactional_ids:
            transaction = self._by_id.get(transactional_id)
            if transaction is not None:
                transaction.coordinator_epoch += 1

    def expire(self, now_ms: int) -> None:
        """Remove ids that were unused for `transactional_id_expiration_ms`."""
        oldest_ms = now_ms - self._options.transactional_id_expiration_ms
        for transaction in self:
            if transaction.state in IDLE and transaction.updated_ms <= oldest_ms:
                del self._by_id[transaction.id]
