"""A transactional producer's state machine: begin, offsets, commit, abort, and what errors do to them.

It asks one thing at a time, in the protocol's order, and answers the calls; the sender carries the records. Both
protocols are spoken (KIP-890): before transaction.version 2 each partition is announced by AddPartitionsToTxn and a
group by AddOffsetsToTxn, since then the first write does that, and every end brings a new epoch. It refuses to know
about batches: the sender tells when all are settled (`is_drained`).

A request of the older protocol that was given up for lost and comes late meets the *next* transaction, since both
have the same epoch: an EndTxn ends it (KAFKA-17754), an AddPartitionsToTxn or AddOffsetsToTxn begins one, or adds to it
what is not a part of it. So when any request of a transaction got no answer, the producer takes a new epoch after its
end, and what comes late is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import Any, NamedTuple

from kwire.cluster import Backoff, Call, ToCoordinator, View
from kwire.errors import AbortableError, ErrorCode, KwireError, TransactionError, broker_error
from kwire.producer.identity import Identity, IdentityState
from kwire.producer.transaction_state import Event, State, moved
from kwire.producer.transaction_verdicts import Verdict, transaction_error, verdict
from kwire.protocol import Request, Response
from kwire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kwire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kwire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

Place = tuple[str, int]

# The cluster's feature that says which protocol it speaks; from this level on it is the second part of KIP-890.
FEATURE = "transaction.version"
_V2 = 2

# The highest versions of the older protocol. Later ones of AddPartitionsToTxn are for brokers only.
_ADD_PARTITIONS_MAX, _END_MAX, _OFFSETS_MAX, _PRODUCE_MAX = 3, 4, 4, 11

_OFFSETS_V2_MAX = 5  # v6 names topics by id


class GroupMetadata(NamedTuple):
    """Who commits offsets: with the member's generation, brokers fence a member that lost its partitions (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class _Offsets(NamedTuple):
    group: GroupMetadata
    offsets: Mapping[Place, int]
    future: Future[None]


class Transaction:
    """All methods are for the loop's thread. The futures that it is given resolve exactly once."""

    def __init__(
        self,
        transactional_id: str,
        identity: Identity,
        *,
        backoff: Backoff,
        random: Random,
        on_renewed: Callable[[], None],
    ) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.error: TransactionError | None = None
        self.is_v2 = False
        self._identity = identity
        self._backoff = backoff
        self._random = random
        self._on_renewed = on_renewed
        self.route = ToCoordinator(transactional_id, "transaction")
        self._added: set[Place] = set()
        self._wanted: dict[Place, None] = {}
        self._groups: set[str] = set()
        self._offsets: deque[_Offsets] = deque()
        self._has_begun = False  # at the brokers: something was, or may have been, written or announced
        self._is_sure_begun = False  # and not just may
        self._view: View | None = None  # the newest
        self._waiting: list[Future[None]] = []  # for the present move: init, commit or abort
        self.asked: Call | None = None  # the one request that is under way
        self.last_error: KwireError | None = None  # why the last one is to be asked again
        self._has_doubt = False  # a request of this transaction got no answer: it may come late
        self._attempts = 0
        self.retry_at = 0.0

    # -- what the user does

    def init(self, future: Future[None]) -> None:
        """Get the producer id and fence whoever had the transactional id before."""
        if self.state is State.FATAL:
            self._reject(future)
        elif self.state in (State.UNINITIALIZED, State.INITIALIZING):
            if self.state is State.UNINITIALIZED:
                self._move(Event.INIT)
            self._waiting.append(future)
        else:
            future.set_result(None)

    def begin(self, view: View) -> None:
        """Raises TransactionError unless the producer is between transactions."""
        if self.state is not State.READY:
            raise self.not_now("begin")
        self.is_v2 = view.feature(FEATURE) >= _V2
        self._move(Event.BEGIN)

    def add_offsets(self, offsets: Mapping[Place, int], group: GroupMetadata, future: Future[None]) -> None:
        if self.state is State.OPEN:
            self._offsets.append(_Offsets(group, offsets, future))
        else:
            self._reject(future)

    def end(self, *, is_commit: bool, future: Future[None]) -> None:
        """Commit or abort. Asked for again while it is under way, the same end answers both."""
        under_way = State.COMMITTING if is_commit else State.ABORTING
        if self.state is under_way:
            self._waiting.append(future)
        elif self.state is State.OPEN or (self.state is State.ABORTABLE and not is_commit):
            self._move(Event.COMMIT if is_commit else Event.ABORT)
            self._waiting.append(future)
            if not is_commit:
                self._drop_offsets(AbortableError("the transaction was aborted"))
        else:
            self._reject(future)

    # -- what the sender asks and tells

    @property
    def takes_records(self) -> bool:
        return self.state is State.OPEN

    @property
    def sends_records(self) -> bool:
        """Whether batches may go out: not once the transaction is to be thrown away."""
        return self.state in (State.OPEN, State.COMMITTING)

    @property
    def wants_identity(self) -> bool:
        return self.state is State.INITIALIZING

    def produce_limit(self, limit: int | None) -> int | None:
        """The highest version of Produce: from v12 on a write joins the transaction by itself."""
        if self.is_v2:
            return limit
        return _PRODUCE_MAX if limit is None else min(limit, _PRODUCE_MAX)

    def may_ask_again(self, error: KwireError) -> bool:
        """Whether InitProducerId that was refused so is to be sent again; forgets a coordinator that is none."""
        kind = verdict(error)
        if kind is Verdict.COORDINATOR and self._view is not None:
            self._view.forget_coordinator(self.route)
        return kind in (Verdict.COORDINATOR, Verdict.RETRY)

    def has_joined(self, place: Place) -> bool:
        """Whether the partition needs no announcement any more, or never did."""
        return self.is_v2 or place in self._added

    def may_send(self, place: Place) -> bool:
        """Whether a batch of the partition may go out now; if not, the partition is announced first."""
        if self.has_joined(place):
            self._has_begun = self._is_sure_begun = True
            return True
        self._wanted[place] = None
        return False

    def initialized(self) -> None:
        """The identity is there."""
        self._move(Event.INITIALIZED)
        self._attempts = 0
        self._resolve_waiting()

    def fail(self, error: KwireError, *, in_produce: bool = False) -> None:
        """Something that belongs to the transaction went wrong for good: it must not be committed without it."""
        kind = verdict(error, in_produce=in_produce)
        if kind in (Verdict.FATAL, Verdict.FENCED):
            self.die(error)
        elif self.state in (State.OPEN, State.COMMITTING, State.ABORTABLE, State.ABORTING):
            was_committing = self.state is State.COMMITTING
            self.error = self.error or transaction_error(error, Verdict.ABORTABLE)
            self._move(Event.FAIL)
            self._drop_offsets(self.error)
            if was_committing:
                self._resolve_waiting(self.error)

    def die(self, error: KwireError) -> None:
        kind = verdict(error)
        self.error = transaction_error(error, kind if kind is Verdict.FENCED else Verdict.FATAL)
        self._move(Event.DIE)
        self._drop_offsets(self.error)
        self._resolve_waiting(self.error)

    def closed(self, error: KwireError) -> None:
        if self.state is not State.FATAL:
            self.die(error)

    # -- the protocol

    def calls(self, now: float, view: View, *, is_drained: bool) -> list[Call]:
        """The one request that is next, if any. `is_drained`: no batch is unresolved."""
        self._view = view
        if self.asked is not None or now < self.retry_at or self.state is State.FATAL:
            return []
        # What a request says is settled here, not when it is written: the coordinator may have to be found first, and
        # the transaction may fail meanwhile.
        if self.sends_records and self._wanted:
            places = list(self._wanted)
            build = partial(self._add_partitions, places)
            return [self._ask(AddPartitionsToTxnRequest, build, self._partitions_added, _ADD_PARTITIONS_MAX)]
        if self._offsets and self.sends_records:
            return [self._ask_offsets(self._offsets[0])]
        if self.state in (State.COMMITTING, State.ABORTING) and is_drained:
            if not self._has_begun:
                self._ended()
                return []
            build_end = partial(self._end, self.state is State.COMMITTING)
            return [self._ask(EndTxnRequest, build_end, self._end_answered, None if self.is_v2 else _END_MAX)]
        return []

    def _ask(
        self,
        api: type[Request[Any]],
        build: Callable[[int], Request[Any]],
        on_answer: Callable[[Any], None],
        at_most: int | None,
        route: ToCoordinator | None = None,
    ) -> Call:
        target = route or self.route

        def done(result: Response | KwireError | None, now: float) -> None:
            self.asked = None
            if self.state is State.FATAL:
                return
            try:
                if isinstance(result, KwireError):
                    self._has_doubt |= call.was_written
                    self._has_begun |= call.was_written
                    raise result
                on_answer(result)
                self._attempts = 0
                self.last_error = None
            except KwireError as error:
                self._judge(error.at(broker=call.broker, version=call.version), target, now)

        self.asked = call = Call(target, api, build, done, at_most=at_most)
        return call

    def _judge(self, error: KwireError, route: ToCoordinator, now: float) -> None:
        kind = verdict(error)
        if kind is Verdict.COORDINATOR:
            assert self._view is not None
            self._view.forget_coordinator(route)
        if kind in (Verdict.COORDINATOR, Verdict.RETRY):
            self._attempts += 1
            self.last_error = error
            self.retry_at = now + self._backoff.seconds(self._attempts, self._random)
        else:
            self.fail(error)

    def _add_partitions(self, places: Sequence[Place], version: int) -> AddPartitionsToTxnRequest:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=partitions) for topic, partitions in by_topic.items()
            ],
        )

    def _partitions_added(self, response: AddPartitionsToTxnResponse) -> None:
        first_error: KwireError | None = None
        for topic in response.results_by_topic_v3_and_below:
            for answer in topic.results_by_partition:
                place = (topic.name, answer.partition_index)
                if answer.partition_error_code == 0:
                    self._has_begun = self._is_sure_begun = True
                    self._wanted.pop(place, None)
                    self._added.add(place)
                elif first_error is None:
                    first_error = broker_error(
                        answer.partition_error_code, api="AddPartitionsToTxn", topic=place[0], partition=place[1]
                    )
        if first_error is not None:
            raise first_error

    def _ask_offsets(self, one: _Offsets) -> Call:
        if not self.is_v2 and one.group.group_id not in self._groups:
            group = one.group.group_id
            return self._ask(
                AddOffsetsToTxnRequest, partial(self._add_group, group), partial(self._group_added, group), None
            )
        route = ToCoordinator(one.group.group_id, "group")
        at_most = _OFFSETS_V2_MAX if self.is_v2 else _OFFSETS_MAX
        build, on_answer = partial(self._commit_offsets, one), partial(self._offsets_committed, one)
        return self._ask(TxnOffsetCommitRequest, build, on_answer, at_most, route)

    def _add_group(self, group: str, version: int) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            group_id=group,
        )

    def _group_added(self, group: str, response: AddOffsetsToTxnResponse) -> None:
        if response.error_code:
            raise broker_error(response.error_code, api="AddOffsetsToTxn", group=group)
        self._has_begun = self._is_sure_begun = True
        self._groups.add(group)

    def _commit_offsets(self, one: _Offsets, version: int) -> TxnOffsetCommitRequest:
        group, offsets, _ = one
        by_topic: dict[str, list[TxnOffsetCommitRequest.Topic.Partition]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, []).append(
                TxnOffsetCommitRequest.Topic.Partition(
                    partition_index=partition, committed_offset=offset, committed_metadata=""
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            generation_id_or_member_epoch=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                TxnOffsetCommitRequest.Topic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )

    def _offsets_committed(self, one: _Offsets, response: TxnOffsetCommitResponse) -> None:
        group = one.group.group_id
        self._has_begun = True  # also when it is refused: in the newer protocol the group joins before it is looked at
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code:
                    place: dict[str, Any] = {"topic": topic.name, "partition": answer.partition_index}
                    raise broker_error(answer.error_code, api="TxnOffsetCommit", group=group, **place)
        if self._offsets and self._offsets[0] is one:  # else the transaction failed meanwhile, and so did its future
            self._offsets.popleft().future.set_result(None)

    def _end(self, is_commit: bool, version: int) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            committed=is_commit,
        )

    def _end_answered(self, response: EndTxnResponse) -> None:
        if response.error_code and not self._is_abort_of_nothing(response.error_code):
            raise broker_error(response.error_code, api="EndTxn")
        if self.is_v2 and response.producer_id >= 0:
            self._identity.renewed(response.producer_id, response.producer_epoch)
            self._on_renewed()
        self._ended()

    def _is_abort_of_nothing(self, code: int) -> bool:
        """Whether the older protocol says that there is no transaction: what was asked, and got no answer, was lost."""
        is_nothing = self.state is State.ABORTING and not self.is_v2 and not self._is_sure_begun
        return is_nothing and code == ErrorCode.INVALID_TXN_STATE

    def _ended(self) -> None:
        is_in_doubt = self._identity.state is IdentityState.BROKEN or (self._has_doubt and not self.is_v2)
        if is_in_doubt:
            self._identity.break_sequences()
        self._move(Event.RENEW if is_in_doubt else Event.ENDED)
        self._added.clear()
        self._wanted.clear()
        self._groups.clear()
        self._has_begun = self._is_sure_begun = self._has_doubt = False
        self.error = None
        self._attempts = 0
        self._resolve_waiting()

    # -- small parts

    def _move(self, event: Event) -> None:
        self.state = moved(self.state, event)

    def _resolve_waiting(self, error: KwireError | None = None) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def _drop_offsets(self, error: KwireError) -> None:
        while self._offsets:
            self._offsets.popleft().future.set_exception(error)
        self._wanted.clear()

    def _reject(self, future: Future[None]) -> None:
        future.set_exception(self.not_now("do that"))

    def not_now(self, what: str) -> TransactionError:
        return self.error or TransactionError(
            f"the transactional producer is {self.state.name}: it cannot {what} now",
            remedy="the order is begin(), then send() and send_offsets(), then commit() or abort()",
        )
