"""The consumer's state machine: what to fetch from which broker, and when.

At most one fetch per broker is in flight, for all partitions that the broker leads and that have room for more. When
its response arrives the next fetch is sent at once, before the caller has read a record, until a partition or all of
them together have buffered as much as the options allow. Partitions that returned records go to the back of the next
request, so that none starves when a size limit cuts a response short (KIP-74).

Everything here belongs to the loop thread. The consumer calls `assign`, `seek`, `set_paused` and `mark_failed` through
the loop; the results go into the `FetchBuffer`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from kwire.cluster import Backoff
from kwire.cluster.metadata import NO_NODE, Snapshot
from kwire.cluster.outage import Outage
from kwire.cluster.requests import ClusterView, PendingRequest, ToNode
from kwire.consumer.buffer import (
    AbortedTransaction,
    ClientError,
    CompletedFetch,
    FetchBuffer,
    PartitionFailed,
    PositionResolved,
    Watermarks,
)
from kwire.consumer.fetch_request import (
    Fetch,
    FetchPosition,
    PartitionResponse,
    batch_bounds,
    current_leaders,
    endpoints,
    fetch_size,
    final_fetch,
)
from kwire.consumer.fetch_session import FetchSession
from kwire.consumer.offsets import (
    COMMITTED,
    NO_OFFSET,
    CommittedOffsets,
    CommittedRequest,
    FetchStart,
    FoundOffset,
    Offset,
    OffsetFetcher,
    OffsetRequest,
    list_offsets_timestamp,
    start_without_offset,
)
from kwire.consumer.options import ConsumerOptions
from kwire.consumer.partition import (
    FetchState,
    PartitionState,
    broken_envelope,
    corrupt_at_broker,
    created_anew,
    no_committed_offset,
    no_progress,
    out_of_range,
    too_large,
    truncated,
)
from kwire.consumer.routing import LeaderAndEpoch, leader_of
from kwire.consumer.validation import NO_EPOCH, EpochEnd, OffsetValidator, ValidationRequest
from kwire.errors import (
    UNKNOWN_TOPIC_CODES,
    BrokerError,
    ErrorCode,
    KwireError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.protocol import Response
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.list_offsets import EARLIEST, LATEST

logger = logging.getLogger("kwire.consumer")

# Retries in a row of a partition after errors that make no sense.
_ATTEMPTS_MAX = 10
# How often `on_out_of_range` is applied in a row.
_RESETS_MAX = 2
# The least max_wait_ms of a fetch: while another partition of the broker has a full buffer, and otherwise.
_FULL_WAIT_MIN_MS = 10
_IDLE_WAIT_MIN_MS = 50
# How long a full buffer keeps its node from being fetched from: longer than a reader that works takes.
_HOLD_SECONDS = 0.1
_SESSION_CODES = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
# Bytes of a frame that are not records.
_FRAME_OVERHEAD_BYTES = 64 * 1024


class Start(NamedTuple):
    """Where to fetch a partition: from `start` on, up to `end` if that is given, in the given assignment epoch."""

    topic: str
    partition: int
    assignment_epoch: int
    start: FetchStart
    is_paused: bool = False
    end: int | None = None


def _ignore(result: Response | KwireError | None, now: float) -> None:
    """Do nothing with a result."""


class _Node:
    """What is wanted from one node: its fetch session, and which of its partitions have a full buffer."""

    __slots__ = ("full_since", "hold_until", "session")

    def __init__(self) -> None:
        self.session: FetchSession[FetchPosition] = FetchSession()
        self.full_since: float | None = None  # since when a partition has waited for its reader
        self.hold_until = 0.0  # until then the node is not fetched from


class Fetcher:
    """A `StateMachine`. It runs `offset_fetcher` as a part of its own turn."""

    def __init__(
        self,
        options: ConsumerOptions,
        fetch_buffer: FetchBuffer,
        offset_fetcher: OffsetFetcher,
        *,
        backoff: Backoff,
        random: Random,
        request_timeout_ms: int,
        max_frame_bytes: int,
        replica_max_age_ms: int,
        wall_ms: Callable[[], int],
        committed: CommittedOffsets | None = None,
    ) -> None:
        """`wall_ms` returns milliseconds since 1970. Without `committed` no start may be `COMMITTED`."""
        self._options = options
        self._fetch_buffer = fetch_buffer
        self._offset_fetcher = offset_fetcher
        self._committed = committed
        self._wall_ms = wall_ms
        self._backoff = backoff
        self._random = random
        self._request_timeout_ms = request_timeout_ms
        self._batch_bytes_max = max(1, max_frame_bytes - _FRAME_OVERHEAD_BYTES)
        self._fetch_bytes = min(options.max_bytes, options.max_buffered_bytes, self._batch_bytes_max)
        self._partition_bytes = min(options.partition_max_bytes, self._fetch_bytes)
        self._unknown_topic_timeout = options.unknown_topic_timeout_ms / 1000
        self._replica_max_age = replica_max_age_ms / 1000
        self._validator = OffsetValidator(backoff=backoff, random=random)
        self._partitions: dict[tuple[str, int], PartitionState] = {}
        self._nodes: dict[int, _Node] = {}
        self._node_of: dict[tuple[str, int], int] = {}  # the node whose session wants the partition
        self._changed: dict[PartitionState, None] = {}  # to look at in the next turn
        self._replicas_until: float | None = None  # when the first lease of a preferred read replica ends
        self._snapshot = Snapshot()  # the metadata that `PartitionState.leader` is from
        self._topics: frozenset[str] | None = frozenset()  # None: to compute again
        self._new_topics: set[str] = set()  # assigned since the last turn
        self._in_flight: dict[int, Fetch] = {}
        self._last_fetch_number: dict[int, int] = {}  # node -> `_fetch_count` at its last fetch
        self._fetch_count = 0
        self._idle_since: dict[int, float] = {}  # node -> when it last returned records
        self._throttled_until: dict[int, float] = {}
        self._reported: set[int] = set()  # nodes whose fatal error the caller has got
        self._outage = Outage(self._request_timeout_ms)
        self._refresh_reason: str | None = None
        self._deadline: float | None = None
        self._on_sessions_ended: Callable[[], object] | None = None
        self._is_ending = False
        self._is_closed = False

    # -- commands of the consumer

    def assign(self, starts: Iterable[Start]) -> None:
        """Fetch these partitions and no others."""
        self.remove(list(self._partitions))
        self.add(starts, by_group=False)

    def add(self, starts: Iterable[Start], *, by_group: bool = True) -> None:
        """Fetch these partitions besides the others. One that is fetched already begins its new assignment epoch.

        `by_group`: a group has assigned them. Then a topic that is unknown is no error, because the group takes its
        partitions away, and in a topic that was created again reading begins where `on_no_offset` says.
        """
        for start in starts:
            old = self._partitions.get((start.topic, start.partition))
            if old is not None:
                self._end(old)
            elif not self._topics or start.topic not in self._topics:
                self._new_topics.add(start.topic)
            self._begin(start).is_assigned_by_group = by_group
        self._idle_since.clear()

    def remove(self, keys: Iterable[tuple[str, int]]) -> None:
        """Fetch these partitions no longer. A response in flight is dropped; unknown keys are ignored."""
        for key in keys:
            state = self._partitions.pop(key, None)
            if state is not None:
                self._end(state)
                self._withdraw(key)
        self._topics = None

    def stop_fetching(self, keys: Iterable[tuple[str, int]]) -> None:
        """Send no new fetch of these partitions, because they are being revoked: `remove` or `add` follows.

        What is in flight is still posted; the caller, who knows of the revocation, drops it.
        """
        for key in keys:
            state = self._partitions.get(key)
            if state is not None:
                self._cancel_lookups(state)
                state.is_stopped = True
                self._withdraw(key)

    def seek(self, start: Start) -> None:
        """Begin a new assignment epoch of a partition; its end stays. Ignored for a partition no longer assigned."""
        key = start.topic, start.partition
        old = self._partitions.get(key)
        if old is not None and old.assignment_epoch < start.assignment_epoch:
            self._end(old)
            state = self._begin(start._replace(end=old.end))
            state.is_stopped, state.is_assigned_by_group = old.is_stopped, old.is_assigned_by_group
            self._idle_since.clear()  # another seek may follow soon

    def set_paused(self, keys: Collection[tuple[str, int]], is_paused: bool) -> None:
        for key in keys:
            if key in self._partitions:
                self._partitions[key].is_paused = is_paused
                self._changed[self._partitions[key]] = None

    def end_sessions(self, on_done: Callable[[], object]) -> None:
        """Fetch no more, and have the brokers end their fetch sessions, of which each has room for 1,000.

        `on_done` is called once, when those requests are about to be written. Nothing waits for their responses.
        """
        self._is_ending = True
        if self._is_closed:
            on_done()
        else:
            self._on_sessions_ended = on_done

    def states(self) -> Collection[PartitionState]:
        """Return the states of the partitions, for `explain`."""
        return self._partitions.values()

    def mark_failed(self, topic: str, partition: int, assignment_epoch: int) -> None:
        """Stop fetching a partition whose records the caller could not read."""
        state = self._partitions.get((topic, partition))
        if (
            state is not None
            and state.assignment_epoch == assignment_epoch
            and state.fetch_state is not FetchState.FAILED
        ):
            self._cancel_lookups(state)
            state.move(FetchState.FAILED)
            self._changed[state] = None
            self._topics = None

    def _begin(self, start: Start) -> PartitionState:
        topic, partition, assignment_epoch, offset, is_paused, end = start
        state = PartitionState(topic, partition, assignment_epoch, offset, self._partition_bytes, end)
        state.is_paused = is_paused
        self._partitions[state.key] = state
        self._changed[state] = None
        self._topics = None
        return state

    def _end(self, state: PartitionState) -> None:
        self._cancel_lookups(state)
        self._changed.pop(state, None)
        self._fetch_buffer.watermarks.pop(state.assignment_epoch, None)

    def _cancel_lookups(self, state: PartitionState) -> None:
        if state.offset_request is not None:
            self._offset_fetcher.cancel(state.offset_request)
            state.offset_request = None
        if state.committed_request is not None and self._committed is not None:
            self._committed.cancel(state.committed_request)
            state.committed_request = None
        if state.validation_request is not None:
            self._validator.cancel(state.validation_request)
            state.validation_request = None

    # -- StateMachine

    def topics(self) -> Collection[str]:
        if self._topics is None:
            self._topics = frozenset(
                p.topic for p in self._partitions.values() if p.fetch_state is not FetchState.FAILED
            )
        return self._topics

    def deadline(self) -> float | None:
        times = (self._deadline, self._offset_fetcher.deadline(), self._validator.deadline())
        return min((time for time in times if time is not None), default=None)

    def closed(self, error: KwireError) -> None:
        self._is_closed = True
        self._offset_fetcher.closed(error)
        self._validator.closed(error)
        self._fetch_buffer.close(error)
        self._sessions_ended()

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._deadline = None
        if self._is_ending:
            return self._end_sessions(view)
        if self._refresh_reason is not None:
            view.request_metadata(self._refresh_reason)
            self._refresh_reason = None
        if self._new_topics:
            for topic in self._new_topics:
                view.allow_topic_creation(topic)
            self._new_topics.clear()
        requests: list[PendingRequest] = []
        if self._partitions:
            unreachable = self._outage.to_report(now, view, self._wake_at)
            if unreachable is not None:
                self._fetch_buffer.post(ClientError(unreachable))
            self._place_changed(now, view)
            in_use = [node for node, one in self._nodes.items() if len(one.session) or node in self._in_flight]
            share = max(1, self._options.max_buffered_bytes // max(1, len(in_use)))
            # The node that waited longest comes first: where memory suffices for one fetch, the nodes take turns.
            for node in sorted(in_use, key=lambda node: self._last_fetch_number.get(node, 0)):
                if self._is_due(node, now) and self._is_node_ready(node, now, view):
                    fetch = self._build_fetch(node, share, now, view)
                    if fetch is not None:
                        requests.append(self._pending_request(fetch, view))
        return [*requests, *self._offset_fetcher.turn(now, view), *self._validator.turn(now, view)]

    def _wake_at(self, time: float) -> None:
        if self._deadline is None or time < self._deadline:
            self._deadline = time

    # -- choosing what to fetch

    def _place_changed(self, now: float, view: ClusterView) -> None:
        """Decide for each partition that has changed, or that waits for something, whether and where to fetch it."""
        if view.snapshot is not self._snapshot:
            self._snapshot = view.snapshot
            for state in self._partitions.values():
                state.leader = None
                self._changed[state] = None
        if self._replicas_until is not None:
            if now >= self._replicas_until:
                self._replicas_until = None
                for state in self._partitions.values():
                    if state.replica is not None:
                        self._changed[state] = None
            else:
                self._wake_at(self._replicas_until)
        for node in self._nodes.values():
            node.full_since, node.hold_until = None, 0.0
        changed, self._changed = self._changed, {}
        for state in changed:
            if self._partitions.get(state.key) is state:
                self._place(state, now, view)

    def _place(self, state: PartitionState, now: float, view: ClusterView) -> None:
        if state.is_stopped or state.is_paused or state.fetch_state is not FetchState.FETCHING:
            self._withdraw(state.key)
            if state.fetch_state is FetchState.RESOLVING and not state.is_stopped:
                self._resolve(state, now)
            return
        if now < state.not_before:
            self._wait(state, state.not_before)
            return
        leader = state.leader
        if leader is None:
            leader = state.leader = leader_of(view.snapshot, state.topic, state.partition)
        if leader.node == NO_NODE:
            self._wait(state)
            self._handle_no_leader(state, leader, now, view)
            return
        if leader.topic_id != state.topic_id and leader.topic_id is not None:
            if state.topic_id is not None:
                self._handle_new_topic(state, now)
                return
            state.topic_id = leader.topic_id
        if leader.leader_epoch < state.leader_epoch_seen and self._awaits_newer_leader(state, leader, now, view):
            return
        if leader.leader_epoch > state.validated_epoch and state.offset_epoch != NO_EPOCH:
            self._validate(state)
            return
        node = leader.node
        if state.replica is not None:
            node = self._preferred_replica(state, state.replica, leader, now)
        if self._fetch_buffer.is_full(state.assignment_epoch, 2 * self._partition_bytes):
            self._hold(state, node, now)
            return
        state.full_since = None
        self._want(state, node, leader)

    def _handle_new_topic(self, state: PartitionState, now: float) -> None:
        """Leave the log of a deleted topic: another one has its name now, with offsets and epochs of its own."""
        self._withdraw(state.key)
        by_group = state.is_assigned_by_group
        policy = self._options.on_no_offset if by_group else self._options.on_out_of_range
        if policy == "error":
            self._fail(state, created_anew(state))
            return
        state.topic_id = None
        state.offset_epoch = state.validated_epoch = state.leader_epoch_seen = NO_EPOCH
        state.move(FetchState.RESOLVING)
        if by_group and policy != "nearest":
            state.start = policy
            self._changed[state] = None
        else:
            self._reset(state, now)
        self._wake_at(now)

    def _want(self, state: PartitionState, node: int, leader: LeaderAndEpoch) -> None:
        if self._node_of.get(state.key) != node:
            self._withdraw(state.key)
            self._node_of[state.key] = node
        session = self._nodes.setdefault(node, _Node()).session
        position = FetchPosition(
            state.topic, state.partition, leader.topic_id, state.offset, state.fetch_bytes,
            leader.leader_epoch, state.offset_epoch, state=state,
        )  # fmt: skip
        before = session.wanted_at(state.key)
        # What is wanted already keeps its place in the order.
        if before is None or before.state is not state or before.is_altered(position):
            session.want(position)

    def _withdraw(self, key: tuple[str, int]) -> None:
        node = self._node_of.pop(key, None)
        if node is not None:
            self._nodes[node].session.forget(key)

    def _wait(self, state: PartitionState, until: float | None = None) -> None:
        """Fetch the partition no longer, and look at it again in each turn."""
        self._withdraw(state.key)
        self._changed[state] = None
        if until is not None:
            self._wake_at(until)

    def _hold(self, state: PartitionState, node: int, now: float) -> None:
        """Wait for the reader of a partition with a full buffer.

        To forget it in the session and to add it again a moment later would cost the broker more than it gains
        (KAFKA-17182), so nothing is fetched from the node meanwhile. Only a reader that stands still is not waited for.
        """
        if state.full_since is None:
            state.full_since = now
        place = self._nodes.setdefault(node, _Node())
        if place.full_since is None or state.full_since < place.full_since:
            place.full_since = state.full_since
        until = state.full_since + _HOLD_SECONDS
        if now < until:
            place.hold_until = max(place.hold_until, until)
        else:
            self._withdraw(state.key)
        self._changed[state] = None

    def _awaits_newer_leader(
        self, state: PartitionState, leader: LeaderAndEpoch, now: float, view: ClusterView
    ) -> bool:
        """Wait for metadata as new as the group's: an older leader may lack what was read. Not for ever, though.

        A topic that was created again starts with epoch 0.
        """
        if leader.leader_epoch == NO_EPOCH:
            return False
        if state.leader_awaited_since is None:
            state.leader_awaited_since = now
        until = state.leader_awaited_since + self._request_timeout_ms / 1000
        if now >= until:
            state.leader_epoch_seen = NO_EPOCH
            return False
        view.request_metadata(f"{state.topic}-{state.partition} had a newer leader than metadata knows")
        self._wait(state, until)
        return True

    def _preferred_replica(self, state: PartitionState, replica: int, leader: LeaderAndEpoch, now: float) -> int:
        """Return the preferred read replica in place of the leader, while it is valid."""
        if replica in self._snapshot.brokers and now < state.replica_until:
            if self._replicas_until is None or state.replica_until < self._replicas_until:
                self._replicas_until = state.replica_until
            return replica
        state.replica = None
        return leader.node

    def _handle_no_leader(self, state: PartitionState, leader: LeaderAndEpoch, now: float, view: ClusterView) -> None:
        if not leader.is_permanent:  # a partition that is not known may have been added
            view.request_metadata(f"{state.topic}-{state.partition} has no known leader")
        if leader.error is None:
            return
        state.last_error = leader.error
        if leader.is_permanent or self._is_unknown_too_long(state, now):
            self._fail(state, leader.error)

    def _is_unknown_too_long(self, state: PartitionState, now: float) -> bool:
        if state.unknown_since is None:
            state.unknown_since = now
        if state.is_assigned_by_group:
            return False
        self._wake_at(state.unknown_since + self._unknown_topic_timeout)
        return now >= state.unknown_since + self._unknown_topic_timeout

    def _is_node_ready(self, node: int, now: float, view: ClusterView) -> bool:
        if now < self._throttled_until.get(node, 0.0):
            self._wake_at(self._throttled_until[node])
            return False
        if view.is_ready(node):
            self._reported.discard(node)
            self._throttled_until.pop(node, None)
            return True
        # A broker that is down comes back or loses its partitions; one that rejects this client does neither.
        failure = view.failure(node)
        if failure is not None and not failure.is_retriable and node not in self._reported:
            self._reported.add(node)
            self._fetch_buffer.post(ClientError(failure))
        return False

    def _is_due(self, node: int, now: float) -> bool:
        place = self._nodes[node]
        if node in self._in_flight or not len(place.session):
            return False
        if now < place.hold_until:
            self._wake_at(place.hold_until)
            return False
        return True

    def _build_fetch(self, node: int, share: int, now: float, view: ClusterView) -> Fetch | None:
        """Return the fetch for a node, or None without free memory. `share` is the limit of one node in bytes."""
        reserved = sum([fetch.reserved_bytes for fetch in self._in_flight.values()])
        capacity = self._fetch_buffer.capacity(reserved, min(share, self._partition_bytes))
        if capacity == 0:
            return None
        place = self._nodes[node]
        fetch = Fetch(
            node,
            place.session,
            max_wait_ms=self._max_wait_ms(node, place.full_since, now),
            max_bytes=min(self._fetch_bytes, share, capacity),
            partition_bytes=self._partition_bytes,
        )
        try:
            view.version(node, FetchRequest, fetch.version_max)
        except UnsupportedVersionError as error:
            self._throttled_until[node] = now + self._request_timeout_ms / 1000
            self._fetch_buffer.post(ClientError(error))
            return None
        return fetch

    def _max_wait_ms(self, node: int, full_since: float | None, now: float) -> int:
        """Return how long the broker may wait for records.

        A broker responds to the requests of a connection in order, so a waiting fetch delays every later one: of a busy
        partition whose buffer has room again, or of a seek. So it waits at most as long as those partitions have been
        delayed already. This at most doubles their delay, and costs a few more requests before a topic goes idle.
        """
        wait_ms = self._options.max_wait_ms
        if self._options.min_bytes <= 1:  # a larger min_bytes means the whole wait
            idle_ms = round((now - self._idle_since.setdefault(node, now)) * 1000)
            wait_ms = min(wait_ms, max(_IDLE_WAIT_MIN_MS, idle_ms))
        if full_since is not None:
            full_ms = round((now - full_since) * 1000)
            wait_ms = min(wait_ms, max(_FULL_WAIT_MIN_MS, full_ms))
        return wait_ms

    def _pending_request(self, fetch: Fetch, view: ClusterView) -> PendingRequest:
        self._fetch_count += 1
        self._last_fetch_number[fetch.node] = self._fetch_count
        self._in_flight[fetch.node] = fetch
        return PendingRequest(
            ToNode(fetch.node),
            FetchRequest,
            partial(fetch.build, self._options),
            partial(self._handle_response, fetch, view),
            timeout_ms=self._request_timeout_ms + fetch.max_wait_ms,
            at_most=fetch.version_max,
        )

    def _end_sessions(self, view: ClusterView) -> list[PendingRequest]:
        """Return a last request for each broker that can be reached and has a session."""
        requests = [
            PendingRequest(ToNode(node), FetchRequest, partial(final_fetch, last), _ignore)
            for node, place in self._nodes.items()
            if view.is_ready(node) and (last := place.session.end()) is not None
        ]
        self._sessions_ended()
        return requests

    def _sessions_ended(self) -> None:
        on_done, self._on_sessions_ended = self._on_sessions_ended, None
        if on_done is not None:
            on_done()

    # -- responses

    def _handle_response(
        self, fetch: Fetch, view: ClusterView, result: Response | KwireError | None, now: float
    ) -> None:
        del self._in_flight[fetch.node]
        session, sent = fetch.session, fetch.request
        if self._is_closed:
            return
        if not isinstance(result, FetchResponse) or sent is None:
            assert isinstance(result, KwireError)
            session.handle_error()
            self._handle_request_error(fetch, result, now)
            return
        if result.throttle_time_ms > 0:
            self._throttled_until[fetch.node] = now + result.throttle_time_ms / 1000
        responses, keys = fetch.partition_responses(result)
        is_usable = session.handle_response(
            sent, result.error_code, result.session_id, keys, is_throttled=result.throttle_time_ms > 0
        )
        if result.error_code:
            error = broker_error(result.error_code, api="Fetch")
            if not sent.is_full and result.error_code in _SESSION_CODES:
                # The next request is full, at once: nothing is wrong with the partitions.
                if result.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                    self._refresh_reason = f"fetch session of broker {fetch.node}: {error.message}"
                return
            self._handle_request_error(fetch, error, now)
            return
        hints = current_leaders(responses)
        if hints:
            view.update_leaders(hints, endpoints(result))
        for position, response in responses:
            if self._is_current(position):
                if response.error_code:
                    self._handle_partition_error(fetch.node, position, response.error_code, now, view)
                else:
                    self._handle_partition(fetch, position, response, now)
                self._changed[position.state] = None
        if sent.is_full and is_usable:
            for position in [one for key, one in session.sent.items() if key not in keys]:
                if self._is_current(position):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    self._handle_partition_error(fetch.node, position, code, now, view)
                    self._changed[position.state] = None

    def _is_current(self, position: FetchPosition) -> bool:
        """Return whether a response to this position can be used.

        A seek or an assignment may have replaced the state during the fetch (see `partition`); it may have failed, or
        another node has returned the records meanwhile.
        """
        state = position.state
        return (
            self._partitions.get(state.key) is state
            and state.fetch_state is FetchState.FETCHING
            and state.offset == position.offset
        )

    def _handle_request_error(self, fetch: Fetch, error: KwireError, now: float) -> None:
        if not error.is_retriable and fetch.node not in self._reported:
            self._reported.add(fetch.node)
            self._fetch_buffer.post(ClientError(error))
        for position in fetch.session.wanted:
            self._retry(position.state, error, now)

    def _handle_partition(self, fetch: Fetch, position: FetchPosition, response: PartitionResponse, now: float) -> None:
        state = position.state
        state.attempts = 0
        state.unknown_since = state.last_error = None
        if response.diverging_epoch.end_offset >= 0:
            self._handle_epoch_end(
                state, EpochEnd(response.diverging_epoch.epoch, response.diverging_epoch.end_offset), now
            )
            return
        state.validated_epoch = max(state.validated_epoch, position.leader_epoch)
        state.is_range_validated = False
        state.resets = 0
        watermarks = self._update_watermarks(state, fetch.node, response)
        if response.preferred_read_replica >= 0 and response.preferred_read_replica != state.replica:
            state.replica = response.preferred_read_replica
            state.replica_until = now + self._replica_max_age
        if not response.records:
            state.fetch_bytes = max(state.fetch_bytes, self._partition_bytes)
            return
        self._idle_since[fetch.node] = now
        records = memoryview(response.records)
        bounds = batch_bounds(records)
        if bounds.whole_bytes:
            if bounds.next_offset <= position.offset:
                self._fail(state, no_progress(state, bounds.next_offset))
                return
            aborted = self._aborted(response.aborted_transactions) if response.aborted_transactions else ()
            data = records[: bounds.whole_bytes]
            self._fetch_buffer.post(
                CompletedFetch(state.assignment_epoch, position.offset, data, aborted, watermarks, bounds.leader_epoch)
            )
            state.set_offset(bounds.next_offset, bounds.leader_epoch)
            state.fetch_bytes = self._partition_bytes
            if bounds.needed_bytes:
                state.fetch_bytes = fetch_size(bounds.needed_bytes, self._partition_bytes)
        if bounds.is_broken:
            self._fail(state, broken_envelope(state))
        elif not bounds.whole_bytes:
            self._grow_fetch_size(state, bounds.needed_bytes)

    def _update_watermarks(self, state: PartitionState, node: int, response: PartitionResponse) -> Watermarks:
        found = Watermarks(response.high_watermark, response.last_stable_offset, response.log_start_offset)
        known = self._fetch_buffer.watermarks.get(state.assignment_epoch)
        if known is not None and state.replica == node:  # a follower lags behind the leader's last response
            found = Watermarks(
                max(found.high_watermark, known.high_watermark),
                max(found.last_stable_offset, known.last_stable_offset),
                max(found.log_start_offset, known.log_start_offset),
            )
        self._fetch_buffer.watermarks[state.assignment_epoch] = found
        return found

    def _aborted(
        self, listed: Sequence[FetchResponse.Topic.Partition.AbortedTransaction]
    ) -> tuple[AbortedTransaction, ...]:
        if not self._options.is_committed_only:
            return ()
        return tuple(AbortedTransaction(one.producer_id, one.first_offset) for one in listed)

    def _grow_fetch_size(self, state: PartitionState, needed_bytes: int) -> None:
        """Raise a partition's limit: no whole batch came, because brokers before Kafka 0.10.1 cut off at the limit."""
        if state.fetch_bytes >= self._batch_bytes_max or needed_bytes > self._batch_bytes_max:
            self._fail(state, too_large(state, needed_bytes, self._batch_bytes_max))
            return
        state.fetch_bytes = min(max(needed_bytes, 2 * state.fetch_bytes), self._batch_bytes_max)

    def _handle_partition_error(
        self, node: int, position: FetchPosition, code: int, now: float, view: ClusterView
    ) -> None:
        state = position.state
        if self._node_of.get(state.key, node) != node:
            return  # it is fetched from another node by now
        error = broker_error(code, api="Fetch", topic=state.topic, partition=state.partition, offset=position.offset)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state, now)
        elif code == ErrorCode.CORRUPT_MESSAGE and state.attempts:  # once more, in case it was not the log
            self._fail(state, corrupt_at_broker(state))
        elif code in UNKNOWN_TOPIC_CODES and self._is_unknown_too_long(state, now):
            self._fail(state, error)
        elif code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:  # said to followers only
            self._retry(state, error, now)
        elif error.is_retriable or (code == ErrorCode.UNKNOWN_SERVER_ERROR and state.attempts < _ATTEMPTS_MAX):
            # Where metadata, with this response, has a newer leader by now, there is nothing to wait for.
            leader = leader_of(view.snapshot, state.topic, state.partition)
            self._retry(state, error, now, backs_off=leader.leader_epoch <= position.leader_epoch)
        else:
            self._fail(state, error)

    def _retry(self, state: PartitionState, error: KwireError, now: float, *, backs_off: bool = True) -> None:
        state.replica = None
        state.last_error = error
        self._changed[state] = None
        if backs_off:
            state.attempts += 1
            state.not_before = now + self._backoff.seconds(state.attempts, self._random)
        self._refresh_reason = f"fetch of {state.topic}-{state.partition}: {error.message}"

    def _fail(self, state: PartitionState, error: KwireError) -> None:
        self._cancel_lookups(state)
        state.last_error = error
        state.move(FetchState.FAILED)
        self._changed[state] = None
        self._topics = None
        self._fetch_buffer.post(PartitionFailed(state.assignment_epoch, error))

    # -- offsets

    def _resolve(self, state: PartitionState, now: float) -> None:
        if state.offset_request is not None or state.committed_request is not None:
            return
        start = state.start
        assert not isinstance(start, (int, Offset))
        if start == COMMITTED:
            self._request_committed(state)
            self._wake_at(now)  # the offset fetcher may have had its turn
        else:
            timestamp = list_offsets_timestamp(start, self._wall_ms())
            self._request_offset(state, timestamp, partial(self._offset_found, state))

    def _request_committed(self, state: PartitionState) -> None:
        assert self._committed is not None, "a consumer without a group has no committed offsets"
        request = CommittedRequest(state.topic, state.partition, partial(self._committed_found, state))
        state.committed_request = request
        self._committed.lookup(request)

    def _committed_found(self, state: PartitionState, result: Offset | KwireError | None, now: float) -> None:
        state.committed_request = None
        self._changed[state] = None
        if self._is_closed:
            return
        if isinstance(result, KwireError):
            self._fail(state, result)
        elif result is not None:
            state.set_offset(result.offset, NO_EPOCH if result.leader_epoch is None else result.leader_epoch)
            self._fetch_buffer.post(PositionResolved(state.assignment_epoch, result.offset))
        elif self._options.on_no_offset == "error":
            self._fail(state, no_committed_offset(state))
        else:
            state.start = self._options.on_no_offset  # `_resolve` looks it up

    def _request_offset(
        self, state: PartitionState, timestamp: int, on_done: Callable[[FoundOffset | KwireError, float], None]
    ) -> None:
        state.offset_request = OffsetRequest(state.topic, state.partition, timestamp, on_done)
        self._offset_fetcher.add([state.offset_request])

    def _offset_found(self, state: PartitionState, result: FoundOffset | KwireError, now: float) -> None:
        state.offset_request = None
        self._changed[state] = None
        if self._is_closed:
            return
        if isinstance(result, KwireError):
            if state.is_assigned_by_group and isinstance(result, BrokerError) and result.code in UNKNOWN_TOPIC_CODES:
                return  # `_resolve` sends another request
            self._fail(state, result)
        elif result.offset == NO_OFFSET:
            state.start = start_without_offset(state.start)  # `_resolve` sends another request
        else:
            state.set_offset(result.offset, NO_EPOCH)
            self._fetch_buffer.post(PositionResolved(state.assignment_epoch, result.offset))

    def _out_of_range(self, state: PartitionState, now: float) -> None:
        if state.replica is not None:
            state.replica = None  # a follower may lag behind: only the leader knows the log's range
            return
        if state.offset_epoch != NO_EPOCH and not state.is_range_validated:
            state.is_range_validated = True
            self._validate(state)  # truncation may be the cause, and not retention
            return
        state.move(FetchState.RESOLVING)
        self._reset(state, now)

    def _reset(self, state: PartitionState, now: float) -> None:
        """Go where `on_out_of_range` says, or find out what the log has.

        What the policy has found may be out of range in turn, if the broker contradicts itself.
        """
        policy = self._options.on_out_of_range
        if policy != "error":
            if state.resets >= _RESETS_MAX:
                self._fail(state, out_of_range(state, None))
                return
            if state.resets:
                state.not_before = now + self._backoff.seconds(state.resets, self._random)
            state.resets += 1
        if policy == "error" or policy == "nearest":
            self._request_offset(state, EARLIEST, partial(self._log_start_found, state))
        else:
            state.start = policy
            self._changed[state] = None

    def _log_start_found(self, state: PartitionState, result: FoundOffset | KwireError, now: float) -> None:
        state.offset_request = None
        if isinstance(result, KwireError):
            self._handle_log_range(state, None, now)
        else:
            self._request_offset(state, LATEST, partial(self._log_end_found, state, result.offset))

    def _log_end_found(
        self, state: PartitionState, log_start: int, result: FoundOffset | KwireError, now: float
    ) -> None:
        state.offset_request = None
        self._handle_log_range(state, None if isinstance(result, KwireError) else (log_start, result.offset), now)

    def _handle_log_range(self, state: PartitionState, log_range: tuple[int, int] | None, now: float) -> None:
        if self._is_closed:
            return
        self._changed[state] = None
        error = out_of_range(state, log_range)
        is_inside = log_range is not None and log_range[0] <= state.offset <= log_range[1]
        if is_inside and state.attempts < _ATTEMPTS_MAX:
            # A new leader may respond this before it knows its own high watermark.
            state.move(FetchState.FETCHING)
            self._retry(state, error, now)
        elif log_range is not None and self._options.on_out_of_range == "nearest":
            state.set_offset(log_range[0] if state.offset < log_range[0] else log_range[1], NO_EPOCH)
            self._fetch_buffer.post(PositionResolved(state.assignment_epoch, state.offset))
        else:
            self._fail(state, error)

    # -- truncation

    def _validate(self, state: PartitionState) -> None:
        """Check with the leader that it has what was read. Nothing is fetched meanwhile."""
        self._withdraw(state.key)
        state.move(FetchState.VALIDATING)
        request = ValidationRequest(state.topic, state.partition, state.offset_epoch, partial(self._validated, state))
        state.validation_request = request
        self._validator.add(request)

    def _validated(
        self, state: PartitionState, result: EpochEnd | KwireError | None, leader: LeaderAndEpoch, now: float
    ) -> None:
        state.validation_request = None
        self._changed[state] = None
        if isinstance(result, KwireError):
            self._fail(state, result)
            return
        state.validated_epoch = max(leader.leader_epoch, state.validated_epoch)
        state.move(FetchState.FETCHING)
        if result is None:
            state.offset_epoch = NO_EPOCH  # this broker does not know it
            self._wake_at(now)
        else:
            self._handle_epoch_end(state, result, now)

    def _handle_epoch_end(self, state: PartitionState, end: EpochEnd, now: float) -> None:
        """Compare the position with the end of its leader epoch in the leader's log."""
        if end.is_known and end.end_offset >= state.offset:
            return
        if self._options.on_out_of_range == "error":
            self._fail(state, truncated(state, end))
            return
        if not end.is_known:
            logger.warning("%s-%d: the log was truncated before offset %d", *state.key, state.offset)
            state.offset_epoch = NO_EPOCH
            state.move(FetchState.RESOLVING)
            self._reset(state, now)
            return
        logger.warning(
            "%s-%d: a leader election has cut %d records off the log; reading continues at offset %d",
            *state.key, state.offset - end.end_offset, end.end_offset,
        )  # fmt: skip
        state.set_offset(end.end_offset, end.leader_epoch)
        self._fetch_buffer.post(PositionResolved(state.assignment_epoch, end.end_offset))
