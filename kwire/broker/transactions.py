"""The transaction coordinator.

One transactional id: its producer id and epoch, its transaction, and the moves between the states of that.

    EMPTY --add--> ONGOING --end--> PREPARE_COMMIT, PREPARE_ABORT --markers written--> COMPLETE_COMMIT, COMPLETE_ABORT
                      ^                                                                      |
                      '----------------------------------- add -----------------------------'

InitProducerId leads from a complete state to EMPTY, and an abort of nothing from there to PREPARE_ABORT (KIP-890).
Owns the rules of epochs (Kafka's TransactionMetadata). It knows no request, no partition's log and no clock.

Writing the markers that end a transaction: into every partition of it, whoever leads that by now.

Owns the wait for leaders and for replication: a marker counts when it is on all replicas in sync, and is written again
by the next leader when the one that wrote it fell before that. In place of markers in __consumer_offsets, which is no
log here, the group's pending offsets are settled. Kafka's TransactionMarkerChannelManager.

The coordinator of transactions: who may begin, add to and end one, who is fenced by whom, and what time ends.

Owns the transactional ids of the cluster and the rules of Kafka's TransactionCoordinator, for both protocols: the older
one, and that of KIP-890, in which every end brings a new epoch; the request's version says which one a client speaks,
as in Kafka. Which broker coordinates an id is not known here; the markers are written by `markers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kwire.broker.ids import LAST_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch, ProducerIdManager
from kwire.broker.offsets import OFFSETS_TOPIC, OffsetManager
from kwire.broker.options import Options
from kwire.broker.partition import NO_LEADER, Partition
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.net.timers import Timer, Timers

TopicPartition = tuple[str, int]  # topic, partition
NOT_STARTED = -1


class Marker(NamedTuple):
    """What ends a transaction in a partition's log."""

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
# What EndTxn came to when it is asked again: the state that an earlier one with the same wish has led to.
COMPLETE = {True: _S.COMPLETE_COMMIT, False: _S.COMPLETE_ABORT}
PREPARE = {True: _S.PREPARE_COMMIT, False: _S.PREPARE_ABORT}


@dataclass(slots=True, eq=False)
class Transaction:
    """Times are wall milliseconds. A new one has no epoch: its first InitProducerId gives it 0."""

    id: str
    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    last_epoch: int = NO_PRODUCER_EPOCH  # the one before, when the same producer has had both
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # when the epochs run out with the transaction that is ending
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: dict[TopicPartition, None] = field(default_factory=dict)  # an ordered set
    started_ms: int = NOT_STARTED
    updated_ms: int = 0
    coordinator_epoch: int = 0
    timer: Timer | None = None  # ends it when its producer does not

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
        """Whether a producer that says it has this identity may be the one whose turn it is. The epoch is looked at
        when it is bumped; here only a producer id that ran out of epochs counts as the one that came after it."""
        if self.epoch == NO_PRODUCER_EPOCH or expected.producer_id == self.producer_id:
            return True
        return expected.producer_id == self.previous_producer_id and expected.epoch >= LAST_EPOCH

    def bump_epoch(self, expected: ProducerIdAndEpoch | None, new_id: int | None, timeout_ms: int, now_ms: int) -> None:
        """A new epoch; with `new_id`, which is to be had when epochs are exhausted, epoch 0 of that. A producer that
        names its epoch and asks again gets what it was given before (KIP-360). Raises PRODUCER_FENCED."""
        former = self.epoch
        self.previous_producer_id = self.producer_id
        if new_id is not None:
            self.last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.epoch
            self.producer_id, self.epoch = new_id, 0
        elif expected is None or former in (NO_PRODUCER_EPOCH, expected.epoch):
            self.last_epoch = NO_PRODUCER_EPOCH if expected is None else former
            self.epoch = former + 1
        elif expected.epoch != self.last_epoch:
            raise self.error(ErrorCode.PRODUCER_FENCED, f"epoch {expected.epoch} is over, this is {former}")
        self.transition(TransactionState.EMPTY, now_ms)
        self.timeout_ms = timeout_ms
        self.started_ms = NOT_STARTED
        self.partitions.clear()

    # The transaction.

    def add(self, partitions: Iterable[TopicPartition], now_ms: int) -> bool:
        """Answers whether this began it."""
        begins = self.state is not TransactionState.ONGOING
        self.transition(TransactionState.ONGOING, now_ms)
        if begins:
            self.started_ms = now_ms
        self.partitions.update(dict.fromkeys(partitions))
        return begins

    def fence(self) -> None:
        """Whoever has the present epoch can do nothing more with it, but may by InitProducerId get the next one, unless
        somebody else has done that before (KIP-360)."""
        self.last_epoch = self.epoch
        self.epoch += 1

    def prepare(self, *, commit: bool, bumps_epoch: bool, new_id: int = NO_PRODUCER_ID, now_ms: int) -> None:
        """From here on its end is certain. `bumps`: the epoch ends with the transaction (KIP-890), so that the markers
        carry the next one already; `new_id` takes over then, if that was the last epoch."""
        if self.state is not TransactionState.ONGOING:
            self.started_ms = now_ms  # an abort of nothing
        self.transition(PREPARE[commit], now_ms)
        if bumps_epoch:
            self.last_epoch = self.epoch
            self.epoch += 1
            self.next_producer_id = new_id

    def complete(self, now_ms: int) -> None:
        """Its markers are written."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        self.transition(COMPLETE[is_commit], now_ms)
        self.partitions.clear()
        if self.next_producer_id != NO_PRODUCER_ID:
            self.previous_producer_id, self.producer_id = self.producer_id, self.next_producer_id
            self.next_producer_id = NO_PRODUCER_ID
            self.epoch = 0

    @property
    def next_identity(self) -> ProducerIdAndEpoch:
        """What the producer goes on with once the transaction that is ending has ended."""
        return (
            self.identity if self.next_producer_id == NO_PRODUCER_ID else ProducerIdAndEpoch(self.next_producer_id, 0)
        )

    # Retries of EndTxn, of a client whose epoch ends with each transaction.

    def is_previous(self, producer_id: int, epoch: int) -> bool:
        """Whether this identity is the one before, which the last end has replaced."""
        if producer_id == self.producer_id and epoch + 1 == self.epoch:
            return True
        return producer_id == self.previous_producer_id and epoch == LAST_EPOCH and self.epoch == 0

    # Checks.

    def check_producer_id(self, producer_id: int) -> None:
        if producer_id != self.producer_id:
            why = f"{self.id} has producer id {self.producer_id}, not {producer_id}"
            raise self.error(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)

    def check_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise self.error(ErrorCode.PRODUCER_FENCED, f"epoch {epoch} of {self.id}, but this is {self.epoch}")

    def check_not_ending(self) -> None:
        if self.state in ENDING:
            raise self.error(ErrorCode.CONCURRENT_TRANSACTIONS, f"{self.id} is {self.state.value}")

    @staticmethod
    def error(code: int, message: str) -> BrokerError:
        return broker_error(code, message)


WallClock = Callable[[float], int]


class MarkerWriter:
    """`find(topic, index)` answers the partition, None where there is none any more; `wall_ms(now)` is wall time."""

    def __init__(
        self, find: Callable[[str, int], Partition | None], offsets: OffsetManager, wall_ms: WallClock
    ) -> None:
        self._find = find
        self._offsets = offsets
        self._wall_ms = wall_ms

    def write(
        self, marker: Marker, partitions: Collection[TopicPartition], on_done: Callable[[float], None], now: float
    ) -> None:
        """`on_done(now)`, at once or later, when every place has its marker, or can have none: a topic that was
        deleted, a newer epoch of the same producer."""
        write = _PendingMarkers(marker, on_done, self._wall_ms)
        for topic, index in partitions:
            if topic == OFFSETS_TOPIC:
                self._offsets.complete_transaction(marker.producer_id, index, is_commit=marker.is_commit)
                continue
            partition = self._find(topic, index)
            if partition is not None:
                write.add(partition)
        write.start(now)


class _PendingMarkers:
    """One transaction's markers. `_open` are the partitions that miss theirs, with the end offset and the leader epoch
    of what was written there, if it was."""

    def __init__(self, marker: Marker, on_done: Callable[[float], None], wall_ms: WallClock) -> None:
        self._marker = marker
        self._on_done = on_done
        self._wall_ms = wall_ms
        self._pending: dict[Partition, tuple[int, int] | None] = {}
        self._is_done = False

    def add(self, partition: Partition) -> None:
        self._pending[partition] = None

    def start(self, now: float) -> None:
        for partition in self._pending:
            partition.add_listener(self._check)
        self._check(now)

    def _check(self, now: float) -> None:
        # A marker that is appended changes the partition, which calls this again from within: what is written has to be
        # known before that, and so is looked for in the log.
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
            except BrokerError:  # a newer epoch has written here, and ended this transaction by that
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
    """`write_markers(marker, places, on_done, now)` calls `on_done(now)` when all places have their marker. Every
    method raises BrokerError with the code for the client."""

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
        """A new epoch, at which the former ones are fenced. `expected` is what the producer says that it has. A
        transaction that is open is aborted first: until that is done, and in any case this once,
        CONCURRENT_TRANSACTIONS."""
        if transactional_id is None:
            return ProducerIdAndEpoch(self._ids.new(), 0)
        if not transactional_id:
            raise broker_error(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._options.max_transaction_timeout_ms:
            raise broker_error(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms")
        transaction = self._by_id.get(transactional_id) or self._create(transactional_id)
        if expected is not None and not transaction.may_be(expected):
            raise transaction.error(ErrorCode.PRODUCER_FENCED, f"a newer producer uses {transactional_id}")
        transaction.check_not_ending()
        if transaction.state is TransactionState.ONGOING:
            self._abort(transaction, now)
            raise transaction.error(
                ErrorCode.CONCURRENT_TRANSACTIONS, f"the open transaction of {transaction.id} is aborted"
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
        """The transaction, begun if there is none, is going to write to these."""
        transaction = self._find(transactional_id)
        transaction.check_producer_id(identity.producer_id)
        transaction.check_epoch(identity.epoch)
        transaction.check_not_ending()
        if transaction.add(partitions, self._wall_ms(now)):
            transaction.timer = self._timers.at(
                now + transaction.timeout_ms / 1000, lambda now: self._time_out(transaction, now)
            )

    def verify(self, transactional_id: str, identity: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """For a write of the older protocol: raises TRANSACTION_ABORTABLE for a place that was not added."""
        transaction = self._find(transactional_id)
        transaction.check_producer_id(identity.producer_id)
        transaction.check_epoch(identity.epoch)
        transaction.check_not_ending()
        if partition not in transaction.partitions:
            raise transaction.error(
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
        """Commit or abort; answers the identity to go on with. `bumps`: the client speaks the protocol of KIP-890, in
        which it gets a new epoch. The markers may still be on their way when this returns."""
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
        """Whether it was done before."""
        transaction.check_producer_id(identity.producer_id)
        transaction.check_epoch(identity.epoch)
        if transaction.state is TransactionState.ONGOING:
            return False
        return self._check_repeat(transaction, commit=commit)

    def _check_end(self, transaction: Transaction, identity: ProducerIdAndEpoch, *, commit: bool) -> bool:
        """As `_check_old_end`. Here the epoch tells a retry from the end of the next transaction: an abort of one that
        has not begun is good too."""
        is_retry = transaction.state is not TransactionState.EMPTY and transaction.is_previous(*identity)
        if not is_retry:
            transaction.check_producer_id(identity.producer_id)
            transaction.check_epoch(identity.epoch)
            if transaction.state in ENDING:
                raise transaction.error(ErrorCode.PRODUCER_FENCED, f"{transaction.id} is {transaction.state.value}")
        elif transaction.state is TransactionState.ONGOING:
            raise transaction.error(ErrorCode.PRODUCER_FENCED, f"{transaction.id} is in its next transaction")
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
        return transaction.error(
            ErrorCode.INVALID_TXN_STATE, f"{transaction.id} is {transaction.state.value}, it cannot be {action}"
        )

    def _end(self, transaction: Transaction, *, commit: bool, bumps_epoch: bool, now: float) -> None:
        needs_id = bumps_epoch and transaction.is_exhausted
        new_id = self._ids.new() if needs_id else NO_PRODUCER_ID
        transaction.prepare(commit=commit, bumps_epoch=bumps_epoch, new_id=new_id, now_ms=self._wall_ms(now))
        self._finish(transaction, now)

    def _abort(self, transaction: Transaction, now: float) -> None:
        """Not by its producer, which is fenced by this."""
        transaction.fence()
        transaction.prepare(commit=False, bumps_epoch=False, now_ms=self._wall_ms(now))
        self._finish(transaction, now)

    def _finish(self, transaction: Transaction, now: float) -> None:
        """Have the markers written, which takes no time unless the options say so."""
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

    # What happens by itself.

    def _time_out(self, transaction: Transaction, now: float) -> None:
        if transaction.state is TransactionState.ONGOING:
            self._abort(transaction, now)

    def coordinators_moved(self, transactional_ids: Iterable[str]) -> None:
        """They have another coordinator, which knows what the former knew."""
        for transactional_id in transactional_ids:
            transaction = self._by_id.get(transactional_id)
            if transaction is not None:
                transaction.coordinator_epoch += 1

    def expire(self, now_ms: int) -> None:
        """Forget the ids that nobody has used for long."""
        oldest_ms = now_ms - self._options.transactional_id_expiration_ms
        for transaction in self:
            if transaction.state in IDLE and transaction.updated_ms <= oldest_ms:
                del self._by_id[transaction.id]
