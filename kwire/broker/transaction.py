"""One transactional id: its producer id and epoch, its transaction, and the moves between the states of that.

    EMPTY --add--> ONGOING --end--> PREPARE_COMMIT, PREPARE_ABORT --markers written--> COMPLETE_COMMIT, COMPLETE_ABORT
                      ^                                                                      |
                      '----------------------------------- add -----------------------------'

InitProducerId leads from a complete state to EMPTY, and an abort of nothing from there to PREPARE_ABORT (KIP-890).
Owns the rules of epochs (Kafka's TransactionMetadata). It knows no request, no partition's log and no clock.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kwire.broker.producer_ids import LAST_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Identity
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.net.timers import Timer

Place = tuple[str, int]  # topic, partition
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
AT_REST = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
ENDING = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
_MAY_COME_FROM = {
    _S.EMPTY: AT_REST,
    _S.ONGOING: AT_REST | {_S.ONGOING},
    _S.PREPARE_COMMIT: {_S.ONGOING},
    _S.PREPARE_ABORT: AT_REST | {_S.ONGOING},
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
    places: dict[Place, None] = field(default_factory=dict)  # an ordered set
    started_ms: int = NOT_STARTED
    updated_ms: int = 0
    coordinator_epoch: int = 0
    timer: Timer | None = None  # ends it when its producer does not

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= LAST_EPOCH

    def move(self, state: TransactionState, now_ms: int) -> None:
        assert self.state in _MAY_COME_FROM[state], f"transaction {self.id}: {self.state.name} -> {state.name}"
        self.state = state
        self.updated_ms = now_ms

    # InitProducerId.

    def knows(self, expected: Identity) -> bool:
        """Whether a producer that says it has this identity may be the one whose turn it is. The epoch is looked at
        when it is bumped; here only a producer id that ran out of epochs counts as the one that came after it."""
        if self.epoch == NO_PRODUCER_EPOCH or expected.producer_id == self.producer_id:
            return True
        return expected.producer_id == self.previous_producer_id and expected.epoch >= LAST_EPOCH

    def renew(self, expected: Identity | None, new_id: int | None, timeout_ms: int, now_ms: int) -> None:
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
        self.move(TransactionState.EMPTY, now_ms)
        self.timeout_ms = timeout_ms
        self.started_ms = NOT_STARTED
        self.places.clear()

    # The transaction.

    def add(self, places: Iterable[Place], now_ms: int) -> bool:
        """Answers whether this began it."""
        begins = self.state is not TransactionState.ONGOING
        self.move(TransactionState.ONGOING, now_ms)
        if begins:
            self.started_ms = now_ms
        self.places.update(dict.fromkeys(places))
        return begins

    def fence(self) -> None:
        """Whoever has the present epoch can do nothing more with it, but may by InitProducerId get the next one, unless
        somebody else has done that before (KIP-360)."""
        self.last_epoch = self.epoch
        self.epoch += 1

    def prepare(self, *, commit: bool, bumps: bool, new_id: int = NO_PRODUCER_ID, now_ms: int) -> None:
        """From here on its end is certain. `bumps`: the epoch ends with the transaction (KIP-890), so that the markers
        carry the next one already; `new_id` takes over then, if that was the last epoch."""
        if self.state is not TransactionState.ONGOING:
            self.started_ms = now_ms  # an abort of nothing
        self.move(PREPARE[commit], now_ms)
        if bumps:
            self.last_epoch = self.epoch
            self.epoch += 1
            self.next_producer_id = new_id

    def complete(self, now_ms: int) -> None:
        """Its markers are written."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        self.move(COMPLETE[is_commit], now_ms)
        self.places.clear()
        if self.next_producer_id != NO_PRODUCER_ID:
            self.previous_producer_id, self.producer_id = self.producer_id, self.next_producer_id
            self.next_producer_id = NO_PRODUCER_ID
            self.epoch = 0

    @property
    def identity_after(self) -> Identity:
        """What the producer goes on with once the transaction that is ending has ended."""
        return self.identity if self.next_producer_id == NO_PRODUCER_ID else Identity(self.next_producer_id, 0)

    # Retries of EndTxn, of a client whose epoch ends with each transaction.

    def was_ended_by(self, producer_id: int, epoch: int) -> bool:
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
