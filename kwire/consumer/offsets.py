"""Offsets by position or time, and the ListOffsets requests that find them.

Where in a log to stand: earliest, latest, or by time; and the lookup that asks the leaders for it (ListOffsets).

`OffsetFetcher` takes wants, one per partition and timestamp, and resolves each exactly once. Wants for the same leader
share a request. A leader that moved, a broker that is gone or a topic that is only just being created is retried with
back-off until the want expires; what waiting does not cure fails at once.

ListOffsets v0 (brokers before 0.10.1) answers a list of segment starts, newest first, not later than the time asked
for: the first of them is the best start known, and an empty list means that the whole log is younger.

Questions that a user's thread asks and waits for: offsets of many partitions, the partitions of a topic.

Each is a state machine that joins the event loop until it has its answer. One failure fails the whole question: half of
the offsets are of no use to whoever asked for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Literal, NamedTuple, TypeVar

from kwire.cluster import Backoff
from kwire.cluster.metadata import NO_NODE
from kwire.cluster.requests import ClusterView, PendingRequest, StateMachine, ToNode
from kwire.cluster.thread import LoopThread
from kwire.consumer.routing import LeaderAndEpoch, leader_of, no_such_topic
from kwire.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    ErrorCode,
    KwireError,
    RequestTimeoutError,
    broker_error,
)
from kwire.protocol import Response
from kwire.protocol.messages.list_offsets import EARLIEST, LATEST, ListOffsetsRequest, ListOffsetsResponse

NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record written at or after this time (milliseconds since 1970); the end of the log if there is none."""

    timestamp_ms: int

    def __post_init__(self) -> None:
        if not isinstance(self.timestamp_ms, int) or self.timestamp_ms < 0:
            raise ConfigurationError(f"{self.timestamp_ms!r} is no time", remedy="give milliseconds since 1970")


StartOffset = int | Literal["earliest", "latest"] | AtTimestamp


def is_start_offset(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and value >= 0
    return isinstance(value, AtTimestamp) or value in ("earliest", "latest")


def wire_timestamp(start: Literal["earliest", "latest"] | AtTimestamp) -> int:
    """What ListOffsets calls this place."""
    if isinstance(start, AtTimestamp):
        return start.timestamp_ms
    return EARLIEST if start == "earliest" else LATEST


class FoundOffset(NamedTuple):
    """`offset` is -1 when no record is that young; `timestamp_ms` that of the record, -1 where unknown."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class OffsetRequest:
    """One partition's question. `timeout` (seconds, None: for ever) counts from the first turn that sees it."""

    topic: str
    partition: int
    timestamp: int
    on_done: Callable[[FoundOffset | KwireError, float], None]
    timeout: float | None = None
    expires_at: float | None = field(default=None, init=False)
    unknown_since: float | None = field(default=None, init=False)
    not_before: float = field(default=0.0, init=False)
    attempts: int = field(default=0, init=False)
    is_asked: bool = field(default=False, init=False)
    is_seen: bool = field(default=False, init=False)
    last_error: KwireError | None = field(default=None, init=False)


class OffsetFetcher:
    """A state machine. `want` and `drop` belong to the loop's thread, as everything here."""

    def __init__(
        self, *, is_committed_only: bool, unknown_topic_timeout_ms: int, backoff: Backoff, random: Random
    ) -> None:
        self._isolation_level = int(is_committed_only)
        self._unknown_patience = unknown_topic_timeout_ms / 1000
        self._backoff = backoff
        self._random = random
        self._wants: dict[OffsetRequest, None] = {}  # a set that keeps its order
        self._refresh_reason: str | None = None
        self._end: KwireError | None = None
        self._now = 0.0  # of the last turn

    def want(self, wants: Iterable[OffsetRequest]) -> None:
        self._wants.update(dict.fromkeys(wants))
        if self._end is not None:
            self.closed(self._end)

    def drop(self, want: OffsetRequest) -> None:
        """Nobody waits for it any more; its answer, if one is under way, is ignored."""
        self._wants.pop(want, None)

    def topics(self) -> Collection[str]:
        return {want.topic for want in self._wants}

    def deadline(self) -> float | None:
        """Only times still to come: what is past was seen by the last turn, and must not hide the others."""
        times: list[float] = []
        for want in self._wants:
            if want.expires_at is not None:
                times.append(want.expires_at)
            if not want.is_asked:
                times.append(want.not_before)
                if want.unknown_since is not None:
                    times.append(want.unknown_since + self._unknown_patience)
        return min((time for time in times if time > self._now), default=None)

    def closed(self, error: KwireError) -> None:
        self._end = error
        for want in list(self._wants):
            self._finish(want, error, self._now)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now = now
        if not self._wants:
            return []
        if self._refresh_reason is not None:
            view.request_metadata(self._refresh_reason)
            self._refresh_reason = None
        by_node: dict[int, list[tuple[OffsetRequest, LeaderAndEpoch]]] = {}
        for want in list(self._wants):
            if self._has_expired(want, now, view) or want.is_asked or now < want.not_before:
                continue
            place = leader_of(view.snapshot, want.topic, want.partition)
            if place.node != NO_NODE:
                if view.is_ready(place.node):
                    by_node.setdefault(place.node, []).append((want, place))
            else:
                self._without_leader(want, place, now, view)
        return [self._call(node, asked) for node, placed in by_node.items() for asked in _without_duplicates(placed)]

    # -- what becomes of a want

    def _finish(self, want: OffsetRequest, result: FoundOffset | KwireError, now: float) -> None:
        if want in self._wants:  # else it was dropped or has expired while its answer was under way
            del self._wants[want]
            want.on_done(result, now)

    def _has_expired(self, want: OffsetRequest, now: float, view: ClusterView) -> bool:
        if not want.is_seen:
            want.is_seen = True
            want.expires_at = None if want.timeout is None else now + want.timeout
        # Who waits without end is told of the trouble by the fetcher, once for all partitions.
        if (
            view.has_fatal_error
            and view.connection_error is not None
            and not want.is_asked
            and want.timeout is not None
        ):
            self._finish(want, view.connection_error, now)
            return True
        if want.expires_at is None or now < want.expires_at:
            return False
        self._finish(want, _too_late(want, view), now)
        return True

    def _without_leader(self, want: OffsetRequest, place: LeaderAndEpoch, now: float, view: ClusterView) -> None:
        if place.error is None:
            view.request_metadata(f"{want.topic}-{want.partition} has no known leader")
            return
        want.last_error = place.error
        if want.unknown_since is None:
            want.unknown_since = now
        if place.is_lasting or now >= want.unknown_since + self._unknown_patience:
            self._finish(want, place.error, now)

    def _failed(self, want: OffsetRequest, error: KwireError, now: float) -> None:
        """Try again later, or give up."""
        want.is_asked = False
        want.last_error = error
        if isinstance(error, BrokerError) and error.code in _UNKNOWN:
            if want.unknown_since is None:
                want.unknown_since = now
            if now >= want.unknown_since + self._unknown_patience:
                self._finish(want, error, now)
                return
        if not error.is_retriable:
            self._finish(want, error, now)
            return
        want.attempts += 1
        want.not_before = now + self._backoff.seconds(want.attempts, self._random)
        self._refresh_reason = f"offsets of {want.topic}-{want.partition}: {error.message}"

    # -- the request

    def _call(self, node: int, asked: list[tuple[OffsetRequest, LeaderAndEpoch]]) -> PendingRequest:
        """The request has the client's timeout, not its wants': one that runs out closes the connection, with the
        fetches on it, and a want that expires first merely stops waiting."""
        wants = {(want.topic, want.partition): want for want, _ in asked}
        for want in wants.values():
            want.is_asked = True
        version_sent = -1

        def build(version: int) -> ListOffsetsRequest:
            nonlocal version_sent
            version_sent = version
            return list_offsets_request(asked, self._isolation_level, version)

        def done(result: Response | KwireError | None, now: float) -> None:
            if isinstance(result, ListOffsetsResponse):
                self._answered(wants, result, version_sent, now)
                return
            assert isinstance(result, KwireError)
            for want in wants.values():
                self._failed(want, result, now)

        return PendingRequest(ToNode(node), ListOffsetsRequest, build, done)

    def _answered(
        self, wants: Mapping[tuple[str, int], OffsetRequest], response: ListOffsetsResponse, version: int, now: float
    ) -> None:
        unanswered = dict(wants)
        for topic in response.topics:
            for answer in topic.partitions:
                want = unanswered.pop((topic.name, answer.partition_index), None)
                if want is not None:
                    self._answered_one(want, answer, version, now)
        for want in unanswered.values():  # a broker that leaves a partition out has nothing to say about it now
            self._answered_with_code(want, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now)

    def _answered_one(
        self, want: OffsetRequest, answer: ListOffsetsResponse.Topic.Partition, version: int, now: float
    ) -> None:
        if answer.error_code:
            self._answered_with_code(want, answer.error_code, now)
            return
        found = FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)
        if version == 0:
            found = FoundOffset(answer.old_style_offsets[0] if answer.old_style_offsets else NO_OFFSET)
            if found.offset == NO_OFFSET and want.timestamp >= 0:
                # No segment is that old: everything in the log is younger, so its start is what was asked for.
                want.timestamp, want.is_asked = EARLIEST, False
                return
        if found.offset == NO_OFFSET and want.timestamp < 0:
            self._answered_with_code(want, ErrorCode.OFFSET_NOT_AVAILABLE, now)
        else:
            self._finish(want, found, now)

    def _answered_with_code(self, want: OffsetRequest, code: int, now: float) -> None:
        self._failed(want, broker_error(code, api="ListOffsets", topic=want.topic, partition=want.partition), now)


_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def _without_duplicates(
    placed: list[tuple[OffsetRequest, LeaderAndEpoch]],
) -> Iterator[list[tuple[OffsetRequest, LeaderAndEpoch]]]:
    """Split into requests that name each partition once: brokers refuse one that asks twice about the same."""
    while placed:
        asked: dict[tuple[str, int], tuple[OffsetRequest, LeaderAndEpoch]] = {}
        rest: list[tuple[OffsetRequest, LeaderAndEpoch]] = []
        for want, place in placed:
            if asked.setdefault((want.topic, want.partition), (want, place))[0] is not want:
                rest.append((want, place))
        yield list(asked.values())
        placed = rest


def list_offsets_request(
    asked: list[tuple[OffsetRequest, LeaderAndEpoch]], isolation_level: int, version: int
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsRequest.Topic.Partition]] = {}
    for want, place in asked:
        partition = ListOffsetsRequest.Topic.Partition(
            partition_index=want.partition,
            current_leader_epoch=place.leader_epoch if version >= 4 else -1,
            timestamp=want.timestamp,
        )
        by_topic.setdefault(want.topic, []).append(partition)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level if version >= 2 else 0,
        topics=[ListOffsetsRequest.Topic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
    )


def _too_late(want: OffsetRequest, view: ClusterView) -> KwireError:
    """What a want that expired is told: the error it kept meeting says more than the clock does."""
    leader = leader_of(view.snapshot, want.topic, want.partition).node
    cause = want.last_error or (view.failure(leader) if leader != NO_NODE else None) or view.connection_error
    if isinstance(cause, BrokerError) and cause.code in _UNKNOWN:
        return cause
    why = f"; the last failure was: {cause}" if cause is not None else ""
    error = RequestTimeoutError(
        f"the offset was not found in time{why}",
        api="ListOffsets",
        topic=want.topic,
        partition=want.partition,
        remedy="check that the partition has a leader and that its broker can be reached from here",
    )
    error.__cause__ = cause
    return error


T = TypeVar("T")

# Seconds beyond the machine's own deadline, after which the loop must have broken without a word.
_GRACE = 5.0


def ask(runtime: LoopThread, machine: StateMachine, future: Future[T], timeout: float) -> T:
    """Let the machine take part in the loop until `future`, which it resolves, has its result."""
    runtime.add(machine)
    try:
        return future.result(timeout + _GRACE)
    except TimeoutError as error:
        if isinstance(error, KwireError):  # the machine's own answer
            raise
        raise RequestTimeoutError("the event loop did not answer") from error
    finally:
        with suppress(ClosedError):
            runtime.remove(machine)


class OffsetsQuery:
    """Puts its wants into `lookup`, which is the machine; `future` gets all that was found, or the first error."""

    def __init__(self, lookup: OffsetFetcher, timestamps: Mapping[tuple[str, int], int], timeout: float) -> None:
        self.future: Future[dict[tuple[str, int], FoundOffset]] = Future()
        self._found: dict[tuple[str, int], FoundOffset] = {}
        self._order = list(timestamps)
        if not timestamps:
            self.future.set_result({})
        lookup.want(
            OffsetRequest(topic, partition, timestamp, partial(self._answered, (topic, partition)), timeout)
            for (topic, partition), timestamp in timestamps.items()
        )

    def _answered(self, key: tuple[str, int], result: FoundOffset | KwireError, now: float) -> None:
        if self.future.done():
            return
        if isinstance(result, KwireError):
            self.future.set_exception(result)
            return
        self._found[key] = result
        if len(self._found) == len(self._order):
            self.future.set_result({one: self._found[one] for one in self._order})


class PartitionsQuery:
    """A `StateMachine`; `future` gets the number of a topic's partitions, from metadata newer than the question."""

    def __init__(self, topic: str, *, timeout: float, unknown_topic_timeout_ms: int) -> None:
        self.future: Future[int] = Future()
        self._topic = topic
        self._timeout = timeout
        self._unknown_patience = unknown_topic_timeout_ms / 1000
        self._since: float | None = None

    def topics(self) -> Collection[str]:
        return () if self.future.done() else (self._topic,)

    def deadline(self) -> float | None:
        if self._since is None or self.future.done():
            return None
        return self._since + min(self._timeout, self._unknown_patience)

    def closed(self, error: KwireError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        if self.future.done():
            return []
        if self._since is None:
            self._since = now
            view.request_metadata(f"the partitions of {self._topic} were asked for")
        waited = now - self._since
        topic = view.snapshot.topics.get(self._topic) if view.snapshot.at > self._since else None
        code = 0 if topic is None else topic.error_code
        if topic is not None and topic.partitions and not code:
            self.future.set_result(len(topic.partitions))
        elif view.has_fatal_error and view.connection_error is not None:
            self.future.set_exception(view.connection_error)
        elif code in _UNKNOWN and waited >= self._unknown_patience:
            self.future.set_exception(no_such_topic(self._topic))
        elif code and code not in _UNKNOWN and not broker_error(code).is_retriable:
            self.future.set_exception(broker_error(code, topic=self._topic))
        elif waited >= self._timeout:
            self.future.set_exception(self._too_late(code, view.connection_error))
        return []

    def _too_late(self, code: int, trouble: KwireError | None) -> KwireError:
        if code in _UNKNOWN:
            return no_such_topic(self._topic)
        cause = broker_error(code, topic=self._topic) if code else trouble
        why = f"; the last failure was: {cause}" if cause is not None else ""
        error = RequestTimeoutError(
            f"no metadata of the topic in time{why}",
            topic=self._topic,
            remedy="check that the brokers are up and that the addresses they advertise can be reached from here",
        )
        error.__cause__ = cause
        return error
