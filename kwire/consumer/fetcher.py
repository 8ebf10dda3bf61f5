"""What is fetched from whom, and when: the consumer's state machine. It owns the positions ahead of the user's.

At most one fetch is in flight to a broker, for all partitions that the broker leads and that want records. When its
answer comes the next one leaves at once, before the user has read a record of it: until a partition, or all together,
hold as much as the options allow. Partitions that brought records go to the back of the next request, so that none
starves when a limit cuts answers short (KIP-74).

Machine's methods and everything else here belong to the loop's thread. What the user does arrives as `assign`, `seek`,
`set_paused` and `park`; what comes of it leaves through the inbox.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

from kwire.cluster import Backoff
from kwire.cluster.metadata import NO_NODE, Snapshot
from kwire.cluster.requests import ClusterView, PendingRequest, ToNode
from kwire.consumer import partition
from kwire.consumer.buffer import (
    AbortedTransaction,
    ClientError,
    CompletedFetch,
    FetchBuffer,
    PartitionFailed,
    PositionResolved,
)
from kwire.consumer.fetch_request import (
    MAX_BYTES_SINCE,
    Fetch,
    FetchPosition,
    batch_bounds,
    endpoints,
    leader_hints,
    worth_asking,
)
from kwire.consumer.offsets import (
    NO_OFFSET,
    FoundOffset,
    OffsetFetcher,
    OffsetRequest,
    StartOffset,
    wire_timestamp,
)
from kwire.consumer.options import ConsumerOptions
from kwire.consumer.partition import FetchState, PartitionState
from kwire.consumer.routing import LeaderAndEpoch, leader_of
from kwire.errors import (
    ErrorCode,
    KwireError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.protocol import Response
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.list_offsets import EARLIEST, LATEST

# Seconds until a client that never reached any broker says so; one that once did gives them its request timeout.
_FIRST_PATIENCE = 2.0
# A broker whose answers make no sense to us gets this many attempts in a row per partition.
_ATTEMPTS_MAX = 10
# Milliseconds that a fetch may wait at the broker in any case: while other partitions of that broker wait for their
# reader, and otherwise.
_HELD_WAIT_MIN_MS = 10
_IDLE_WAIT_MIN_MS = 50
# Room in a frame for what is not records.
_FRAME_OVERHEAD_BYTES = 64 * 1024
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Start(NamedTuple):
    """A partition to be fetched from `start` on, and up to `end` if that is given, as the given generation."""

    topic: str
    partition: int
    generation: int
    start: StartOffset
    is_paused: bool = False
    end: int | None = None


@dataclass(slots=True)
class _Choice:
    """What could be fetched from one node, and since when something there waits for its reader instead."""

    ready: list[FetchPosition] = field(default_factory=list)
    held_since: float | None = None


class Fetcher:
    """A `Machine`. `lookup` is its own: it takes part in the loop through this one."""

    def __init__(
        self,
        options: ConsumerOptions,
        inbox: FetchBuffer,
        lookup: OffsetFetcher,
        *,
        backoff: Backoff,
        random: Random,
        request_timeout_ms: int,
        max_frame_bytes: int,
        replica_max_age_ms: int,
    ) -> None:
        self._options = options
        self._inbox = inbox
        self._lookup = lookup
        self._backoff = backoff
        self._random = random
        self._request_timeout_ms = request_timeout_ms
        self._batch_bytes_max = max(1, max_frame_bytes - _FRAME_OVERHEAD_BYTES)
        self._fetch_bytes = min(options.max_bytes, options.max_buffered_bytes, self._batch_bytes_max)
        self._partition_bytes = min(options.partition_max_bytes, self._fetch_bytes)
        self._unknown_patience = options.unknown_topic_timeout_ms / 1000
        self._replica_max_age = replica_max_age_ms / 1000
        self._positions: dict[tuple[str, int], PartitionState] = {}  # in the order of the next request
        self._snapshot = Snapshot()  # where the positions' places are from
        self._topics: frozenset[str] | None = frozenset()  # None: to be gathered anew
        self._new_topics: set[str] = set()  # assigned since the last turn
        self._in_flight: dict[int, Fetch] = {}
        self._fetched: dict[int, int] = {}  # node -> when it had its turn, in fetches
        self._fetches = 0
        self._idle_since: dict[int, float] = {}  # node -> when it last brought records
        self._resting: dict[int, float] = {}  # node -> until when: it throttles us
        self._told: set[int] = set()  # nodes of whose lasting failure the user knows
        self._trouble_since: float | None = None
        self._has_told_trouble = False
        self._refresh_reason: str | None = None
        self._deadline: float | None = None
        self._is_closed = False

    # -- what the user does

    def assign(self, starts: Iterable[Start]) -> None:
        """These partitions, and no other."""
        for position in self._positions.values():
            self._abandon(position)
        self._positions = {(start.topic, start.partition): self._new(start) for start in starts}
        self._new_topics = {topic for topic, _ in self._positions}
        self._topics = None
        self._idle_since.clear()

    def seek(self, start: Start) -> None:
        """Begin a new generation of an assigned partition, whose end stays. One no longer assigned stays so."""
        key = start.topic, start.partition
        old = self._positions.get(key)
        if old is not None and old.generation < start.generation:
            self._abandon(old)
            self._positions[key] = self._new(start._replace(end=old.end))
            self._topics = None
            self._idle_since.clear()  # who seeks may soon seek again

    def set_paused(self, keys: Collection[tuple[str, int]], is_paused: bool) -> None:
        for key in keys:
            if key in self._positions:
                self._positions[key].is_paused = is_paused

    def park(self, topic: str, partition: int, generation: int) -> None:
        """The user met records of this generation that cannot be read: fetching beyond them is of no use."""
        position = self._positions.get((topic, partition))
        if position is not None and position.generation == generation and position.state is not FetchState.PARKED:
            self._abandon(position)
            position.move(FetchState.PARKED)
            self._topics = None

    def _new(self, start: Start) -> PartitionState:
        topic, partition, generation, offset, _, end = start
        position = PartitionState(topic, partition, generation, offset, self._partition_bytes, end)
        position.is_paused = start.is_paused
        return position

    def _abandon(self, position: PartitionState) -> None:
        if position.want is not None:
            self._lookup.drop(position.want)
            position.want = None

    # -- Machine

    def topics(self) -> Collection[str]:
        if self._topics is None:
            self._topics = frozenset(p.topic for p in self._positions.values() if p.state is not FetchState.PARKED)
        return self._topics

    def deadline(self) -> float | None:
        times = [time for time in (self._deadline, self._lookup.deadline()) if time is not None]
        return min(times, default=None)

    def closed(self, error: KwireError) -> None:
        self._is_closed = True
        self._lookup.closed(error)
        self._inbox.close(error)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._deadline = None
        if self._refresh_reason is not None:
            view.request_metadata(self._refresh_reason)
            self._refresh_reason = None
        if self._new_topics:
            for topic in self._new_topics:
                view.allow_topic_creation(topic)
            self._new_topics.clear()
        calls: list[PendingRequest] = []
        if self._positions:
            self._watch(now, view)
            self._resolve()
            choices = self._choose(now, view)
            share = max(1, self._options.max_buffered_bytes // max(1, len(choices.keys() | self._in_flight.keys())))
            # Who waited longest comes first: where there is room for one fetch only, the brokers take turns.
            for node in sorted(choices, key=lambda node: self._fetched.get(node, 0)):
                if choices[node].ready and self._is_usable(node, now, view):
                    fetch = self._fetch(node, choices[node], share, now, view)
                    if fetch is not None:
                        calls.append(self._call(fetch, view))
        return calls + self._lookup.turn(now, view)

    def _wake_at(self, time: float) -> None:
        if self._deadline is None or time < self._deadline:
            self._deadline = time

    # -- choosing what to fetch

    def _choose(self, now: float, view: ClusterView) -> dict[int, _Choice]:
        snapshot, in_flight = view.snapshot, self._in_flight
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            for position in self._positions.values():
                position.place = None
        held_bytes = 2 * self._partition_bytes
        choices: dict[int, _Choice] = {}
        for position in self._positions.values():
            if position.state is not FetchState.FETCHING or position.is_in_flight or position.is_paused:
                continue
            if now < position.not_before:
                self._wake_at(position.not_before)
                continue
            place = position.place
            if place is None:
                place = position.place = leader_of(snapshot, position.topic, position.partition)
            if position.replica is not None:
                place = self._replica(position, position.replica, place, now)
            if place.node == NO_NODE:
                self._without_leader(position, place, now, view)
                continue
            if place.node in in_flight:
                continue
            choice = choices.setdefault(place.node, _Choice())
            if not self._inbox.holds(position.generation, held_bytes):
                position.held_since = None
                choice.ready.append(FetchPosition(position, position.offset, place))
                continue
            if position.held_since is None:
                position.held_since = now
            if choice.held_since is None or position.held_since < choice.held_since:
                choice.held_since = position.held_since
        return choices

    def _replica(self, position: PartitionState, replica: int, leader: LeaderAndEpoch, now: float) -> LeaderAndEpoch:
        """Where a position reads that was told to do so from a follower."""
        if leader.node == NO_NODE:
            return leader
        if replica in self._snapshot.brokers and now < position.replica_until:
            return leader._replace(node=replica)
        position.replica = None
        return leader

    def _without_leader(self, position: PartitionState, place: LeaderAndEpoch, now: float, view: ClusterView) -> None:
        if place.error is None:
            view.request_metadata(f"{position.topic}-{position.partition} has no known leader")
            return
        position.last_error = place.error
        if place.is_lasting or self._is_unknown_too_long(position, now):
            self._fail(position, place.error)

    def _is_unknown_too_long(self, position: PartitionState, now: float) -> bool:
        if position.unknown_since is None:
            position.unknown_since = now
        self._wake_at(position.unknown_since + self._unknown_patience)
        return now >= position.unknown_since + self._unknown_patience

    def _is_usable(self, node: int, now: float, view: ClusterView) -> bool:
        if now < self._resting.get(node, 0.0):
            self._wake_at(self._resting[node])
            return False
        if view.is_ready(node):
            self._told.discard(node)
            self._resting.pop(node, None)
            return True
        # A broker that is down comes back or loses its partitions; one that rejects us does neither.
        failure = view.failure(node)
        if failure is not None and not failure.is_retriable and node not in self._told:
            self._told.add(node)
            self._inbox.post(ClientError(failure))
        return False

    def _fetch(self, node: int, choice: _Choice, share: int, now: float, view: ClusterView) -> Fetch | None:
        """What to ask the node for, if there is room; `share` is how much of it all one node may have."""
        reserved = sum([fetch.reserved_bytes for fetch in self._in_flight.values()])
        room = self._inbox.capacity(reserved, min(share, self._partition_bytes))
        if room == 0:
            return None
        asked = choice.ready
        max_bytes = min(self._fetch_bytes, share, room)
        fetch = Fetch(node, asked, self._max_wait_ms(node, choice, now), max_bytes)
        try:
            version = view.version(node, FetchRequest, fetch.version_max)
        except UnsupportedVersionError as error:
            self._resting[node] = now + self._request_timeout_ms / 1000
            self._inbox.post(ClientError(error))
            return None
        count = max(1, max_bytes // self._partition_bytes)
        if version < MAX_BYTES_SINCE and len(asked) > count:
            # The answer's size is the sum of its partitions' limits: take as many as may come, and those first that
            # were left out now.
            fetch = Fetch(node, asked[:count], fetch.max_wait_ms, max_bytes)
            for one in fetch.asked:
                self._to_the_back(one.position)
        return fetch

    def _max_wait_ms(self, node: int, choice: _Choice, now: float) -> int:
        """How long the broker may wait for records.

        Brokers answer one request of a connection after the other, so a fetch that waits keeps out what is wanted
        meanwhile: the busy partition beside the idle ones, whose reader makes room any moment; the place that somebody
        seeks who has just read to the end. Therefore a fetch waits no longer than what it may keep out has waited
        already, which at most doubles that pause, and costs a few more requests before a long silence.
        """
        wait_ms = self._options.max_wait_ms
        if self._options.min_bytes <= 1:  # who wants more than a byte at once wants the waiting too
            idle_ms = round((now - self._idle_since.setdefault(node, now)) * 1000)
            wait_ms = min(wait_ms, max(_IDLE_WAIT_MIN_MS, idle_ms))
        if choice.held_since is not None:
            held_ms = round((now - choice.held_since) * 1000)
            wait_ms = min(wait_ms, max(_HELD_WAIT_MIN_MS, held_ms))
        return wait_ms

    def _to_the_back(self, position: PartitionState) -> None:
        if self._positions.get(position.key) is position:
            del self._positions[position.key]
            self._positions[position.key] = position

    def _call(self, fetch: Fetch, view: ClusterView) -> PendingRequest:
        self._fetches += 1
        self._fetched[fetch.node] = self._fetches
        self._in_flight[fetch.node] = fetch
        for asked in fetch.asked:
            asked.position.is_in_flight = True
        return PendingRequest(
            ToNode(fetch.node),
            FetchRequest,
            partial(fetch.request, self._options),
            partial(self._done, fetch, view),
            timeout_ms=self._request_timeout_ms + fetch.max_wait_ms,
            at_most=fetch.version_max,
        )

    # -- answers

    def _done(self, fetch: Fetch, view: ClusterView, result: Response | KwireError | None, now: float) -> None:
        del self._in_flight[fetch.node]
        for asked in fetch.asked:
            asked.position.is_in_flight = False
        if self._is_closed:
            return
        if isinstance(result, FetchResponse) and result.throttle_time_ms > 0:
            self._resting[fetch.node] = now + result.throttle_time_ms / 1000
        if isinstance(result, FetchResponse) and result.error_code:
            result = broker_error(result.error_code, api="Fetch")
        if not isinstance(result, FetchResponse):
            assert isinstance(result, KwireError)
            self._request_failed(fetch, result, now)
            return
        answers = fetch.answers(result)
        hints = leader_hints(answers)
        if hints:
            view.update_leaders(hints, endpoints(result))
        for asked, answer in answers:
            position = asked.position
            # Replaced by a seek or an assignment while this was in flight (see `position`), or parked: nobody waits.
            if self._positions.get(position.key) is not position or position.state is not FetchState.FETCHING:
                continue
            if answer is None:
                self._answered_with_code(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now, view)
            elif answer.error_code:
                self._answered_with_code(asked, answer.error_code, now, view)
            else:
                self._answered(fetch, asked, answer, now)

    def _request_failed(self, fetch: Fetch, error: KwireError, now: float) -> None:
        if not error.is_retriable and fetch.node not in self._told:
            self._told.add(fetch.node)
            self._inbox.post(ClientError(error))
        for asked in fetch.asked:
            self._retry(asked.position, error, now)

    def _answered(self, fetch: Fetch, asked: FetchPosition, answer: FetchResponse.Topic.Partition, now: float) -> None:
        position = asked.position
        position.attempts = 0
        position.unknown_since = position.last_error = None
        if answer.preferred_read_replica >= 0 and answer.preferred_read_replica != position.replica:
            position.replica = answer.preferred_read_replica
            position.replica_until = now + self._replica_max_age
        if not answer.records:
            position.fetch_bytes = max(position.fetch_bytes, self._partition_bytes)
            return
        self._idle_since[fetch.node] = now
        self._to_the_back(position)
        records = memoryview(answer.records)
        extent = batch_bounds(records)
        if extent.whole_bytes:
            if extent.next_offset <= asked.offset:
                self._fail(position, partition.no_progress(position, extent.next_offset))
                return
            aborted = self._aborted(answer.aborted_transactions) if answer.aborted_transactions else ()
            self._inbox.post(CompletedFetch(position.generation, asked.offset, records[: extent.whole_bytes], aborted))
            position.offset = extent.next_offset
            if position.end is not None:
                position.stand(position.offset)
            position.fetch_bytes = self._partition_bytes
            if extent.needed_bytes:
                position.fetch_bytes = worth_asking(extent.needed_bytes, self._partition_bytes)
        if extent.is_broken:
            self._fail(position, partition.broken_envelope(position))
        elif not extent.whole_bytes:
            self._grow(position, extent.needed_bytes)

    def _aborted(
        self, told: Sequence[FetchResponse.Topic.Partition.AbortedTransaction]
    ) -> tuple[AbortedTransaction, ...]:
        if not self._options.is_committed_only:
            return ()
        return tuple(AbortedTransaction(one.producer_id, one.first_offset) for one in told)

    def _grow(self, position: PartitionState, needed_bytes: int) -> None:
        """Not one whole batch came: brokers before Kafka 0.10.1 cut off what is over the limit. Ask for as much."""
        if position.fetch_bytes >= self._batch_bytes_max or needed_bytes > self._batch_bytes_max:
            self._fail(position, partition.too_large(position, needed_bytes, self._batch_bytes_max))
            return
        position.fetch_bytes = min(max(needed_bytes, 2 * position.fetch_bytes), self._batch_bytes_max)

    def _answered_with_code(self, asked: FetchPosition, code: int, now: float, view: ClusterView) -> None:
        position = asked.position
        error = broker_error(code, api="Fetch", topic=position.topic, partition=position.partition, offset=asked.offset)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(position)
        elif code == ErrorCode.CORRUPT_MESSAGE:
            self._fail(position, partition.corrupt_at_broker(position))
        elif code in _UNKNOWN and self._is_unknown_too_long(position, now):
            self._fail(position, error)
        elif error.is_retriable or (code == ErrorCode.UNKNOWN_SERVER_ERROR and position.attempts < _ATTEMPTS_MAX):
            # Where a newer leader is known by now, from this answer at the latest, there is nothing to back off for.
            place = leader_of(view.snapshot, position.topic, position.partition)
            self._retry(position, error, now, backs_off=place.leader_epoch <= asked.place.leader_epoch)
        else:
            self._fail(position, error)

    def _retry(self, position: PartitionState, error: KwireError, now: float, *, backs_off: bool = True) -> None:
        position.replica = None
        position.last_error = error
        if backs_off:
            position.attempts += 1
            position.not_before = now + self._backoff.seconds(position.attempts, self._random)
        self._refresh_reason = f"fetch of {position.topic}-{position.partition}: {error.message}"

    def _fail(self, position: PartitionState, error: KwireError) -> None:
        self._abandon(position)
        position.last_error = error
        position.move(FetchState.PARKED)
        self._topics = None
        self._inbox.post(PartitionFailed(position.generation, error))

    # -- offsets

    def _resolve(self) -> None:
        for position in self._positions.values():
            if position.state is FetchState.RESOLVING and position.want is None:
                assert not isinstance(position.start, int)
                self._look_up(position, wire_timestamp(position.start), partial(self._found, position))

    def _look_up(
        self, position: PartitionState, timestamp: int, on_done: Callable[[FoundOffset | KwireError, float], None]
    ) -> None:
        position.want = OffsetRequest(position.topic, position.partition, timestamp, on_done)
        self._lookup.want([position.want])

    def _found(self, position: PartitionState, result: FoundOffset | KwireError, now: float) -> None:
        position.want = None
        if self._is_closed:
            return
        if isinstance(result, KwireError):
            self._fail(position, result)
        elif result.offset == NO_OFFSET:
            position.start = "latest"  # no record is that young; `_resolve` asks again
        else:
            position.stand(result.offset)
            self._inbox.post(PositionResolved(position.generation, result.offset))

    def _out_of_range(self, position: PartitionState) -> None:
        if position.replica is not None:
            position.replica = None  # a follower may lag behind; what the log holds is for its leader to say
            return
        position.move(FetchState.RESOLVING)
        if self._options.on_out_of_range != "error":
            position.start = self._options.on_out_of_range
        else:
            self._look_up(position, EARLIEST, partial(self._measured_start, position))

    def _measured_start(self, position: PartitionState, result: FoundOffset | KwireError, now: float) -> None:
        position.want = None
        if isinstance(result, KwireError):
            self._measured(position, None, now)
        else:
            self._look_up(position, LATEST, partial(self._measured_end, position, result.offset))

    def _measured_end(
        self, position: PartitionState, log_start: int, result: FoundOffset | KwireError, now: float
    ) -> None:
        position.want = None
        self._measured(position, None if isinstance(result, KwireError) else (log_start, result.offset), now)

    def _measured(self, position: PartitionState, log_range: tuple[int, int] | None, now: float) -> None:
        if self._is_closed:
            return
        error = partition.out_of_range(position, log_range)
        is_inside = log_range is not None and log_range[0] <= position.offset <= log_range[1]
        if is_inside and position.attempts < _ATTEMPTS_MAX:
            # The log has it after all: a new leader was still finding out how far its log reaches.
            position.move(FetchState.FETCHING)
            self._retry(position, error, now)
        else:
            self._fail(position, error)

    # -- when nothing can be reached

    def _watch(self, now: float, view: ClusterView) -> None:
        """Tell the user, once per outage, when no broker can be reached at all."""
        trouble = view.connection_error
        if trouble is None:
            self._trouble_since, self._has_told_trouble = None, False
            return
        if self._trouble_since is None:
            self._trouble_since = now
        patience = self._request_timeout_ms / 1000 if view.snapshot.brokers else _FIRST_PATIENCE
        due = self._trouble_since + (0.0 if view.has_fatal_error else patience)
        if self._has_told_trouble:
            return
        if now >= due:
            self._has_told_trouble = True
            self._inbox.post(ClientError(trouble))
        else:
            self._wake_at(due)
