"""The coordinator of transactions: who may begin, add to and end one, who is fenced by whom, and what time ends.

Owns the transactional ids of the cluster and the rules of Kafka's TransactionCoordinator, for both protocols: the older
one, and that of KIP-890, in which every end brings a new epoch; the request's version says which one a client speaks,
as in Kafka. Which broker coordinates an id is not known here; the markers are written by `markers`.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from kwire.broker.options import Options
from kwire.broker.producer_ids import NO_PRODUCER_ID, Identity, ProducerIds
from kwire.broker.transaction import AT_REST, COMPLETE, ENDING, PREPARE, Marker, Place, Transaction, TransactionState
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.net.timers import Timers

WriteMarkers = Callable[[Marker, Collection[Place], Callable[[float], None], float], None]


class Transactions:
    """`write_markers(marker, places, on_done, now)` calls `on_done(now)` when all places have their marker. Every
    method raises BrokerError with the code for the client."""

    def __init__(
        self,
        options: Options,
        timers: Timers,
        ids: ProducerIds,
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
        self, transactional_id: str | None, *, timeout_ms: int, expected: Identity | None = None, now: float
    ) -> Identity:
        """A new epoch, at which the former ones are fenced. `expected` is what the producer says that it has. A
        transaction that is open is aborted first: until that is done, and in any case this once,
        CONCURRENT_TRANSACTIONS."""
        if transactional_id is None:
            return Identity(self._ids.new(), 0)
        if not transactional_id:
            raise broker_error(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._options.max_transaction_timeout_ms:
            raise broker_error(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms")
        one = self._by_id.get(transactional_id) or self._create(transactional_id)
        if expected is not None and not one.knows(expected):
            raise one.error(ErrorCode.PRODUCER_FENCED, f"a newer producer uses {transactional_id}")
        one.check_not_ending()
        if one.state is TransactionState.ONGOING:
            self._abort(one, now)
            raise one.error(ErrorCode.CONCURRENT_TRANSACTIONS, f"the open transaction of {one.id} is aborted")
        needs_id = one.is_exhausted and (expected is None or expected.epoch in (one.epoch, one.last_epoch))
        one.renew(expected, self._ids.new() if needs_id else None, timeout_ms, self._wall_ms(now))
        return one.identity

    def _create(self, transactional_id: str) -> Transaction:
        if len(self._by_id) >= self._options.max_transactional_ids:
            raise broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "max_transactional_ids are in use")
        made = self._by_id[transactional_id] = Transaction(transactional_id, self._ids.new())
        return made

    # AddPartitionsToTxn, AddOffsetsToTxn, and the first write in a partition since KIP-890.

    def add(
        self, transactional_id: str, identity: Identity, places: Collection[Place], now: float
    ) -> None:
        """The transaction, begun if there is none, is going to write to these."""
        one = self._find(transactional_id)
        one.check_producer_id(identity.producer_id)
        one.check_epoch(identity.epoch)
        one.check_not_ending()
        if one.add(places, self._wall_ms(now)):
            one.timer = self._timers.at(now + one.timeout_ms / 1000, lambda now: self._time_out(one, now))

    def verify(self, transactional_id: str, identity: Identity, place: Place) -> None:
        """For a write of the older protocol: raises TRANSACTION_ABORTABLE for a place that was not added."""
        one = self._find(transactional_id)
        one.check_producer_id(identity.producer_id)
        one.check_epoch(identity.epoch)
        one.check_not_ending()
        if place not in one.places:
            raise one.error(ErrorCode.TRANSACTION_ABORTABLE, f"{place} was not added to the transaction of {one.id}")

    def _find(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise broker_error(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        one = self._by_id.get(transactional_id)
        if one is None:
            raise broker_error(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id} has no producer id")
        return one

    # EndTxn.

    def end(
        self, transactional_id: str, identity: Identity, *, commit: bool, bumps: bool, now: float
    ) -> Identity:
        """Commit or abort; answers the identity to go on with. `bumps`: the client speaks the protocol of KIP-890, in
        which it gets a new epoch. The markers may still be on their way when this returns."""
        one = self._find(transactional_id)
        if bumps:
            is_done = self._check_end(one, identity, commit=commit)
        else:
            is_done = self._check_old_end(one, identity, commit=commit)
        if is_done:
            return one.identity
        self._end(one, commit=commit, bumps=bumps, now=now)
        return one.identity_after

    def _check_old_end(self, one: Transaction, identity: Identity, *, commit: bool) -> bool:
        """Whether it was done before."""
        one.check_producer_id(identity.producer_id)
        one.check_epoch(identity.epoch)
        if one.state is TransactionState.ONGOING:
            return False
        return self._check_repeat(one, commit=commit)

    def _check_end(self, one: Transaction, identity: Identity, *, commit: bool) -> bool:
        """As `_check_old_end`. Here the epoch tells a retry from the end of the next transaction: an abort of one that
        has not begun is good too."""
        is_retry = one.state is not TransactionState.EMPTY and one.was_ended_by(*identity)
        if not is_retry:
            one.check_producer_id(identity.producer_id)
            one.check_epoch(identity.epoch)
            if one.state in ENDING:
                raise one.error(ErrorCode.PRODUCER_FENCED, f"{one.id} is {one.state.value}")
        elif one.state is TransactionState.ONGOING:
            raise one.error(ErrorCode.PRODUCER_FENCED, f"{one.id} is in its next transaction")
        if is_retry:
            return self._check_repeat(one, commit=commit)
        if commit and one.state is not TransactionState.ONGOING:
            raise self._not_now(one, commit=commit)
        return False

    def _check_repeat(self, one: Transaction, *, commit: bool) -> bool:
        if one.state is COMPLETE[commit]:
            return True
        if one.state is PREPARE[commit]:
            one.check_not_ending()
        raise self._not_now(one, commit=commit)

    def _not_now(self, one: Transaction, *, commit: bool) -> BrokerError:
        wish = "committed" if commit else "aborted"
        return one.error(ErrorCode.INVALID_TXN_STATE, f"{one.id} is {one.state.value}, it cannot be {wish}")

    def _end(self, one: Transaction, *, commit: bool, bumps: bool, now: float) -> None:
        needs_id = bumps and one.is_exhausted
        new_id = self._ids.new() if needs_id else NO_PRODUCER_ID
        one.prepare(commit=commit, bumps=bumps, new_id=new_id, now_ms=self._wall_ms(now))
        self._finish(one, now)

    def _abort(self, one: Transaction, now: float) -> None:
        """Not by its producer, which is fenced by this."""
        one.fence()
        one.prepare(commit=False, bumps=False, now_ms=self._wall_ms(now))
        self._finish(one, now)

    def _finish(self, one: Transaction, now: float) -> None:
        """Have the markers written, which takes no time unless the options say so."""
        if one.timer is not None:
            one.timer.cancel()
            one.timer = None
        delay_ms = self._options.transaction_marker_ms
        if delay_ms and one.places:
            self._timers.at(now + delay_ms / 1000, lambda now: self._write(one, now))
        else:
            self._write(one, now)

    def _write(self, one: Transaction, now: float) -> None:
        marker = Marker(
            one.state is TransactionState.PREPARE_COMMIT, one.producer_id, one.epoch, one.coordinator_epoch
        )
        self._write_markers(marker, tuple(one.places), lambda now: one.complete(self._wall_ms(now)), now)

    # What happens by itself.

    def _time_out(self, one: Transaction, now: float) -> None:
        if one.state is TransactionState.ONGOING:
            self._abort(one, now)

    def moved(self, transactional_ids: Iterable[str]) -> None:
        """They have another coordinator, which knows what the former knew."""
        for transactional_id in transactional_ids:
            one = self._by_id.get(transactional_id)
            if one is not None:
                one.coordinator_epoch += 1

    def expire(self, now_ms: int) -> None:
        """Forget the ids that nobody has used for long."""
        oldest_ms = now_ms - self._options.transactional_id_expiration_ms
        for one in self:
            if one.state in AT_REST and one.updated_ms <= oldest_ms:
                del self._by_id[one.id]
