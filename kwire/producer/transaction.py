"""The transactional producer's state machine: begin, offsets, commit, abort, and what errors do to them.

    UNINITIALIZED --INIT--> INITIALIZING --INITIALIZED--> READY --BEGIN--> OPEN --COMMIT--> COMMITTING --ENDED--> READY
                                                                             '---ABORT--> ABORTING ----ENDED----'
    OPEN, COMMITTING --FAIL--> ABORTABLE --ABORT--> ABORTING           any --FAIL_FATALLY--> FATAL

`TRANSITIONS` is this table; any other transition raises. After an end that leaves the epoch in doubt the producer is
INITIALIZING once more (RENEW), and then READY. Kafka's TransactionManager.State is the same, with one initial state
more.

What an error code means is a table too (`TransactionErrorAction`), as in Kafka's TransactionManager and KIP-1050.

One request is in flight at a time, in the protocol's order; the sender sends the records. Both protocols are
implemented (KIP-890): before transaction.version 2, AddPartitionsToTxn and AddOffsetsToTxn announce each partition and
group; since then the first write does, and every end brings a new epoch.

In the older protocol consecutive transactions have the same epoch. A request that got no response may arrive late, in
the *next* transaction: an EndTxn ends it (KAFKA-17754), an AddPartitionsToTxn or AddOffsetsToTxn begins it or adds to
it. So when any request of a transaction got no response, the producer takes a new epoch after its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum, auto
from functools import partial
from random import Random
from typing import Any, NamedTuple

from kwire.cluster import Backoff, ClusterView, GroupMetadata, PendingRequest, ToCoordinator
from kwire.errors import (
    AbortableError,
    BrokerError,
    ErrorCode,
    FatalError,
    FencedError,
    KwireError,
    NodeError,
    RequestTimeoutError,
    TransactionError,
    broker_error,
)
from kwire.producer.producer_id import IdStatus, ProducerIdState
from kwire.protocol import Request, Response
from kwire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kwire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kwire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse


class TransactionState(Enum):
    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    OPEN = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE = auto()
    FATAL = auto()


class TransactionEvent(Enum):
    INIT = auto()
    INITIALIZED = auto()
    BEGIN = auto()
    COMMIT = auto()
    ABORT = auto()
    ENDED = auto()
    RENEW = auto()
    FAIL = auto()
    FAIL_FATALLY = auto()


TRANSITIONS: dict[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (TransactionState.UNINITIALIZED, TransactionEvent.INIT): TransactionState.INITIALIZING,
    (TransactionState.INITIALIZING, TransactionEvent.INITIALIZED): TransactionState.READY,
    (TransactionState.READY, TransactionEvent.BEGIN): TransactionState.OPEN,
    (TransactionState.OPEN, TransactionEvent.COMMIT): TransactionState.COMMITTING,
    (TransactionState.OPEN, TransactionEvent.ABORT): TransactionState.ABORTING,
    (TransactionState.OPEN, TransactionEvent.FAIL): TransactionState.ABORTABLE,
    (TransactionState.COMMITTING, TransactionEvent.ENDED): TransactionState.READY,
    (TransactionState.COMMITTING, TransactionEvent.RENEW): TransactionState.INITIALIZING,
    (TransactionState.COMMITTING, TransactionEvent.FAIL): TransactionState.ABORTABLE,
    (TransactionState.ABORTABLE, TransactionEvent.ABORT): TransactionState.ABORTING,
    (TransactionState.ABORTABLE, TransactionEvent.FAIL): TransactionState.ABORTABLE,
    (TransactionState.ABORTING, TransactionEvent.ENDED): TransactionState.READY,
    (TransactionState.ABORTING, TransactionEvent.RENEW): TransactionState.INITIALIZING,
    # The records that failed are being discarded already. Not for a refused abort: see `_handle_refused_abort`.
    (TransactionState.ABORTING, TransactionEvent.FAIL): TransactionState.ABORTING,
    **{(state, TransactionEvent.FAIL_FATALLY): TransactionState.FATAL for state in TransactionState},
    **{
        (TransactionState.FATAL, event): TransactionState.FATAL
        for event in (TransactionEvent.FAIL, TransactionEvent.FAIL_FATALLY)
    },
}


def next_state(state: TransactionState, event: TransactionEvent) -> TransactionState:
    """Return the next state. Raises RuntimeError for a transition that is not in the table: that is a bug."""
    if (state, event) not in TRANSITIONS:
        raise RuntimeError(f"a transactional producer that is {state.name} cannot {event.name}")
    return TRANSITIONS[state, event]


class TransactionErrorAction(Enum):
    RETRY = auto()
    COORDINATOR = auto()
    ABORTABLE = auto()
    FENCED = auto()
    FATAL = auto()


_ACTIONS = {
    ErrorCode.NOT_COORDINATOR: TransactionErrorAction.COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: TransactionErrorAction.COORDINATOR,
    ErrorCode.INVALID_PRODUCER_EPOCH: TransactionErrorAction.FENCED,
    ErrorCode.PRODUCER_FENCED: TransactionErrorAction.FENCED,
    ErrorCode.INVALID_TXN_STATE: TransactionErrorAction.FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionErrorAction.FATAL,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: TransactionErrorAction.FATAL,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: TransactionErrorAction.FATAL,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: TransactionErrorAction.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: TransactionErrorAction.FATAL,
}

# Of a ProduceRequest: the epoch may be old because the coordinator timed the transaction out, which only
# InitProducerId distinguishes from a fence (KIP-588); so abort first.
_IN_PRODUCE = {
    ErrorCode.INVALID_PRODUCER_EPOCH: TransactionErrorAction.ABORTABLE,
}

# Of an abort: a new epoch ends what is open all the same. After any other error that is no passing one, nothing does.
_RENEW_AFTER_ABORT = (
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.TRANSACTION_ABORTABLE,
)

_REMEDY = {
    TransactionErrorAction.ABORTABLE: "abort this transaction and begin another",
    TransactionErrorAction.FENCED: (
        "close this producer: another one has its transactional id, or it took longer than its timeout"
    ),
    TransactionErrorAction.FATAL: "close this producer; see the cause",
}
_KIND: dict[TransactionErrorAction, type[TransactionError]] = {
    TransactionErrorAction.ABORTABLE: AbortableError,
    TransactionErrorAction.FENCED: FencedError,
    TransactionErrorAction.FATAL: FatalError,
}


def transaction_error_action(error: KwireError, *, in_produce: bool = False) -> TransactionErrorAction:
    """Return what to do about an error of a request, or one that its response carries."""
    if isinstance(error, BrokerError):
        known = _ACTIONS.get(error.code)  # type: ignore[call-overload]  # a plain int finds its IntEnum twin
        if in_produce:
            known = _IN_PRODUCE.get(error.code, known)  # type: ignore[call-overload]
        if known is not None:
            return known  # type: ignore[no-any-return]
        return TransactionErrorAction.RETRY if error.is_retriable else TransactionErrorAction.ABORTABLE
    if isinstance(error, (NodeError, RequestTimeoutError)):
        return TransactionErrorAction.COORDINATOR
    if isinstance(error, AbortableError):
        return TransactionErrorAction.ABORTABLE
    return TransactionErrorAction.FATAL if not in_produce else TransactionErrorAction.ABORTABLE


def transaction_error(error: KwireError, kind: TransactionErrorAction) -> TransactionError:
    """Return the error for the caller: its class says what can be done, its cause what happened."""
    if isinstance(error, TransactionError):
        return error
    typed = _KIND[kind](f"the transaction failed: {error.message}", remedy=_REMEDY[kind], **error.where)
    typed.__cause__ = error
    return typed


TopicPartition = tuple[str, int]

# The cluster's feature that says which protocol it speaks; from this level on it is the second part of KIP-890.
FEATURE = "transaction.version"
_V2 = 2

# The highest versions of the older protocol. Later ones of AddPartitionsToTxn are for brokers only.
_ADD_PARTITIONS_MAX, _END_MAX, _OFFSETS_MAX, _PRODUCE_MAX = 3, 4, 4, 11

_OFFSETS_V2_MAX = 5  # v6 names topics by id


class _Offsets(NamedTuple):
    source: Callable[[], GroupMetadata]
    offsets: Mapping[TopicPartition, int]
    future: Future[None]

    def member(self) -> GroupMetadata:
        """Return who commits now. Raises AbortableError for whatever the consumer raises."""
        try:
            return self.source()
        except Exception as error:  # the object is the user's: it must not break the event loop
            raise AbortableError(
                f"group_metadata() of send_offsets raised {type(error).__name__}: {error}",
                remedy="abort this transaction; keep the consumer open until its offsets are committed",
            ) from error


_BEGUN = frozenset(
    {
        TransactionState.OPEN,
        TransactionState.COMMITTING,
        TransactionState.ABORTABLE,
        TransactionState.ABORTING,
    }
)


class Transaction:
    """All methods are for the loop's thread. The futures that it is given resolve exactly once."""

    def __init__(
        self,
        transactional_id: str,
        identity: ProducerIdState,
        *,
        backoff: Backoff,
        random: Random,
        on_bumped: Callable[[], None],
    ) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.error: TransactionError | None = None
        self.is_v2 = False
        self._identity = identity
        self._backoff = backoff
        self._random = random
        self._on_bumped = on_bumped
        self.route = ToCoordinator(transactional_id, "transaction")
        self._added: set[TopicPartition] = set()
        self._to_add: dict[TopicPartition, None] = {}
        self._groups: set[str] = set()
        self._offsets: deque[_Offsets] = deque()
        self._has_begun = False  # a request was sent that may have begun it at the brokers
        self._has_surely_begun = False  # the brokers have certainly begun it
        self._view: ClusterView | None = None  # the newest
        self._waiting: list[Future[None]] = []  # for the end of the current step: init, commit or abort
        self.in_flight: PendingRequest | None = None  # at most one at a time
        self.last_error: KwireError | None = None  # why the last one is retried
        self._in_doubt = False  # a request of this transaction got no response: it may arrive late
        self._attempts = 0
        self.retry_at = 0.0

    # -- what the caller does

    def init(self, future: Future[None]) -> None:
        """Get the producer id and fence earlier producers with the transactional id."""
        if self.state is TransactionState.FATAL:
            self._reject(future)
        elif self.state in (TransactionState.UNINITIALIZED, TransactionState.INITIALIZING):
            if self.state is TransactionState.UNINITIALIZED:
                self._transition(TransactionEvent.INIT)
            self._waiting.append(future)
        else:
            future.set_result(None)

    def begin(self, view: ClusterView) -> None:
        """Raises TransactionError unless the producer is between transactions."""
        if self.state is not TransactionState.READY:
            raise self.state_error("begin")
        self.is_v2 = view.feature(FEATURE) >= _V2
        self._transition(TransactionEvent.BEGIN)

    def add_offsets(
        self, offsets: Mapping[TopicPartition, int], member: Callable[[], GroupMetadata], future: Future[None]
    ) -> None:
        """Commit a group's offsets in the transaction. `member` says who commits, when the request is sent."""
        if self.state is TransactionState.OPEN:
            self._offsets.append(_Offsets(member, offsets, future))
        else:
            self._reject(future)

    def end(self, *, is_commit: bool, future: Future[None]) -> None:
        """Commit or abort. Called again while it is under way, both futures get the same outcome."""
        under_way = TransactionState.COMMITTING if is_commit else TransactionState.ABORTING
        if self.state is under_way:
            self._waiting.append(future)
        elif self.state is TransactionState.OPEN or (self.state is TransactionState.ABORTABLE and not is_commit):
            self._transition(TransactionEvent.COMMIT if is_commit else TransactionEvent.ABORT)
            self._waiting.append(future)
            if not is_commit:
                self._drop_offsets(AbortableError("the transaction was aborted"))
                self._withdraw()
        else:
            self._reject(future)

    # -- for the sender

    @property
    def has_begun(self) -> bool:
        """Return whether a transaction was started and has not ended yet."""
        return self.state in _BEGUN

    @property
    def takes_records(self) -> bool:
        return self.state is TransactionState.OPEN

    @property
    def sends_records(self) -> bool:
        """Return whether batches may go out: not once the transaction can only be aborted."""
        return self.state in (TransactionState.OPEN, TransactionState.COMMITTING)

    @property
    def needs_producer_id(self) -> bool:
        return self.state is TransactionState.INITIALIZING

    def produce_limit(self, limit: int | None) -> int | None:
        """Return the highest version of Produce: from v12 on a write joins the transaction by itself."""
        if self.is_v2:
            return limit
        return _PRODUCE_MAX if limit is None else min(limit, _PRODUCE_MAX)

    def should_retry_init(self, error: KwireError) -> bool:
        """Return whether to retry InitProducerId after this error; forget a coordinator that is not one."""
        kind = transaction_error_action(error)
        if kind is TransactionErrorAction.COORDINATOR and self._view is not None:
            self._view.forget_coordinator(self.route)
        return kind in (TransactionErrorAction.COORDINATOR, TransactionErrorAction.RETRY)

    def is_added(self, partition: TopicPartition) -> bool:
        """Return whether the partition is part of the transaction, or does not need AddPartitionsToTxn."""
        return self.is_v2 or partition in self._added

    def may_send(self, partition: TopicPartition) -> bool:
        """Return whether a batch of the partition may be sent now; if not, add the partition first."""
        if self.is_added(partition):
            self._has_begun = self._has_surely_begun = True
            return True
        self._to_add[partition] = None
        return False

    def initialized(self) -> None:
        """Become READY: there is a producer id."""
        self._transition(TransactionEvent.INITIALIZED)
        self._attempts = 0
        self._resolve_waiting()

    def fail(self, error: KwireError, *, in_produce: bool = False) -> None:
        """Make the transaction abortable or fatal: it must not be committed without what failed."""
        kind = transaction_error_action(error, in_produce=in_produce)
        if kind in (TransactionErrorAction.FATAL, TransactionErrorAction.FENCED):
            self.fail_fatally(error)
        elif self.has_begun:
            was_committing = self.state is TransactionState.COMMITTING
            self.error = self.error or transaction_error(error, TransactionErrorAction.ABORTABLE)
            self._transition(TransactionEvent.FAIL)
            self._drop_offsets(self.error)
            if was_committing:
                self._resolve_waiting(self.error)

    def fail_fatally(self, error: KwireError) -> None:
        kind = transaction_error_action(error)
        self.error = transaction_error(
            error, kind if kind is TransactionErrorAction.FENCED else TransactionErrorAction.FATAL
        )
        self._transition(TransactionEvent.FAIL_FATALLY)
        self._drop_offsets(self.error)
        self._resolve_waiting(self.error)

    def closed(self, error: KwireError) -> None:
        if self.state is not TransactionState.FATAL:
            self.fail_fatally(error)

    # -- the protocol

    def requests(self, now: float, view: ClusterView, *, is_drained: bool) -> list[PendingRequest]:
        """Return the next request, if any. `is_drained`: no batch is unresolved."""
        self._view = view
        if self.in_flight is not None or now < self.retry_at or self.state is TransactionState.FATAL:
            return []
        # The contents are fixed here, not when the request is written: the coordinator may have to be found first, and
        # the transaction may fail in between.
        if self.sends_records and self._to_add:
            partitions = list(self._to_add)
            build, on_response = partial(self._add_partitions, partitions), partial(self._partitions_added, partitions)
            return [self._request(AddPartitionsToTxnRequest, build, on_response, _ADD_PARTITIONS_MAX)]
        if self._offsets and self.sends_records:
            try:
                return [self._request_offsets(self._offsets[0])]
            except AbortableError as error:
                self.fail(error)
                return []
        if self.state in (TransactionState.COMMITTING, TransactionState.ABORTING) and is_drained:
            if not self._has_begun:
                self._ended()
                return []
            build_end = partial(self._end, self.state is TransactionState.COMMITTING)
            return [self._request(EndTxnRequest, build_end, self._handle_end, None if self.is_v2 else _END_MAX)]
        return []

    def _request(
        self,
        api: type[Request[Any]],
        build: Callable[[int], Request[Any]],
        on_response: Callable[[Any], None],
        at_most: int | None,
        route: ToCoordinator | None = None,
    ) -> PendingRequest:
        target = route or self.route

        def done(result: Response | KwireError | None, now: float) -> None:
            self.in_flight = None
            if self.state is TransactionState.FATAL:
                return
            try:
                if isinstance(result, KwireError):
                    self._in_doubt |= call.was_written
                    self._has_begun |= call.was_written
                    raise result
                on_response(result)
                self._attempts = 0
                self.last_error = None
            except KwireError as error:
                self._handle_error(error.at(broker=call.broker, version=call.version), api, target, now)

        self.in_flight = call = PendingRequest(target, api, build, done, at_most=at_most)
        return call

    def _handle_error(self, error: KwireError, api: type[Request[Any]], route: ToCoordinator, now: float) -> None:
        kind = transaction_error_action(error)
        if kind is TransactionErrorAction.COORDINATOR:
            assert self._view is not None
            self._view.forget_coordinator(route)
        if kind in (TransactionErrorAction.COORDINATOR, TransactionErrorAction.RETRY):
            self._attempts += 1
            self.last_error = error
            self.retry_at = now + self._backoff.seconds(self._attempts, self._random)
        elif api is EndTxnRequest and self.state is TransactionState.ABORTING:
            self.last_error = error
            self._handle_refused_abort(error)
        else:
            self.fail(error)

    def _handle_refused_abort(self, error: KwireError) -> None:
        """Have InitProducerId abort what is open if it can, as in Java's client; else the producer is of no use."""
        if isinstance(error, BrokerError) and error.code in _RENEW_AFTER_ABORT:
            self._identity.require_epoch_bump()
            self._ended()
        else:
            self.fail_fatally(error)

    def _add_partitions(self, partitions: Sequence[TopicPartition], version: int) -> AddPartitionsToTxnRequest:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=partitions) for topic, partitions in by_topic.items()
            ],
        )

    def _partitions_added(self, partitions: Sequence[TopicPartition], response: AddPartitionsToTxnResponse) -> None:
        first_error: KwireError | None = None
        for topic in response.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                partition = (topic.name, result.partition_index)
                if result.partition_error_code == 0:
                    self._has_begun = self._has_surely_begun = True
                    self._to_add.pop(partition, None)
                    self._added.add(partition)
                elif first_error is None:
                    first_error = broker_error(
                        result.partition_error_code,
                        api="AddPartitionsToTxn",
                        topic=partition[0],
                        partition=partition[1],
                    )
        if first_error is not None:
            raise first_error
        for topic_name, index in partitions:
            if (topic_name, index) not in self._added:
                missing = "the coordinator's response lacks a partition"
                raise RequestTimeoutError(missing, api="AddPartitionsToTxn", topic=topic_name, partition=index)

    def _request_offsets(self, one: _Offsets) -> PendingRequest:
        group = one.member().group_id
        if not self.is_v2 and group not in self._groups:
            return self._request(
                AddOffsetsToTxnRequest, partial(self._add_group, group), partial(self._group_added, group), None
            )
        route = ToCoordinator(group, "group")
        at_most = _OFFSETS_V2_MAX if self.is_v2 else _OFFSETS_MAX
        build, on_response = partial(self._commit_offsets, one), partial(self._offsets_committed, one, group)
        return self._request(TxnOffsetCommitRequest, build, on_response, at_most, route)

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
        self._has_begun = self._has_surely_begun = True
        self._groups.add(group)

    def _commit_offsets(self, one: _Offsets, version: int) -> TxnOffsetCommitRequest:
        group, offsets = one.member(), one.offsets
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

    def _offsets_committed(self, one: _Offsets, group: str, response: TxnOffsetCommitResponse) -> None:
        self._has_begun = True  # even if refused: in the newer protocol the group joins before the check
        for topic in response.topics:
            for result in topic.partitions:
                if result.error_code:
                    raise broker_error(
                        result.error_code,
                        api="TxnOffsetCommit",
                        group=group,
                        topic=topic.name,
                        partition=result.partition_index,
                    )
        if self._offsets and self._offsets[0] is one:  # else the transaction failed meanwhile, and so did its future
            self._offsets.popleft().future.set_result(None)

    def _end(self, is_commit: bool, version: int) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            committed=is_commit,
        )

    def _handle_end(self, response: EndTxnResponse) -> None:
        if response.error_code and not self._is_abort_of_nothing(response.error_code):
            raise broker_error(response.error_code, api="EndTxn")
        if self.is_v2 and response.producer_id >= 0:
            self._identity.bump(response.producer_id, response.producer_epoch)
            self._on_bumped()
        self._ended()

    def _is_abort_of_nothing(self, code: int) -> bool:
        """Return whether the older protocol says that there is no transaction: the request that began it was lost."""
        is_nothing = self.state is TransactionState.ABORTING and not self.is_v2 and not self._has_surely_begun
        return is_nothing and code == ErrorCode.INVALID_TXN_STATE

    def _ended(self) -> None:
        is_in_doubt = self._identity.state is IdStatus.NEEDS_BUMP or (self._in_doubt and not self.is_v2)
        if is_in_doubt:
            self._identity.require_epoch_bump()
        self._transition(TransactionEvent.RENEW if is_in_doubt else TransactionEvent.ENDED)
        self._added.clear()
        self._to_add.clear()
        self._groups.clear()
        self._has_begun = self._has_surely_begun = self._in_doubt = False
        self.error = None
        self._attempts = 0
        self._resolve_waiting()

    # -- small parts

    def _transition(self, event: TransactionEvent) -> None:
        self.state = next_state(self.state, event)

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
        self._to_add.clear()

    def _withdraw(self) -> None:
        """Take back a request that waits for its broker: an abort has no use for it, and must not wait for it."""
        if self.in_flight is not None and self._view is not None and self._view.withdraw(self.in_flight):
            self.in_flight = None

    def _reject(self, future: Future[None]) -> None:
        future.set_exception(self.state_error("do that"))

    def state_error(self, what: str) -> TransactionError:
        return self.error or TransactionError(
            f"the transactional producer is {self.state.name}: it cannot {what} now",
            remedy="the order is begin(), then send() and send_offsets(), then commit() or abort()",
        )
