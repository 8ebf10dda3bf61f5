"""Offsets: committed ones, those by position or time (earliest, latest, timestamp), and the ListOffsets requests.

ListOffsets v0 (brokers before 0.10.1) returns a list of segment starts, newest first, that are not later than the
requested time. Its first entry is the best known start; an empty list means that the whole log is younger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from math import inf
from random import Random
from typing import Final, Literal, NamedTuple, Protocol, assert_never, cast

from kwire.cluster import Backoff
from kwire.cluster.metadata import NO_NODE
from kwire.cluster.requests import ClusterView, PendingRequest, ToNode
from kwire.consumer.routing import LeaderAndEpoch, leader_of, no_such_topic
from kwire.errors import (
    UNKNOWN_TOPIC_CODES,
    BrokerError,
    ClosedError,
    ConfigurationError,
    ErrorCode,
    KwireError,
    UnsupportedVersionError,
    broker_error,
    timeout_error,
)
from kwire.protocol import Response
from kwire.protocol.messages.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record written at or after this time (milliseconds since 1970); the end of the log if there is none."""

    timestamp_ms: int

    def __post_init__(self) -> None:
        if not _is_whole(self.timestamp_ms, _INT64_MAX):
            raise ConfigurationError(
                f"{self.timestamp_ms!r:.60} is no timestamp", remedy="give milliseconds since 1970, a whole number"
            )


@dataclass(frozen=True, slots=True, init=False)
class Ago:
    """The first record written at most this long ago; the end of the log if all are older (KIP-1106's by_duration).

    >>> Ago(hours=1, minutes=30)
    Ago(duration=datetime.timedelta(seconds=5400))
    """

    duration: timedelta

    def __init__(
        self,
        duration: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Give a timedelta, or its parts. Raises ConfigurationError unless they make a time above 0."""
        if duration is None:
            try:
                duration = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
            except (TypeError, OverflowError) as error:
                raise ConfigurationError(f"this is no time to go back: {error}", remedy=_AGO_REMEDY) from None
        elif days or hours or minutes or seconds:
            raise ConfigurationError("Ago got a timedelta and also its parts", remedy="give one of the two")
        if not isinstance(duration, timedelta) or duration <= timedelta(0):
            raise ConfigurationError(f"{duration!r} is no time to go back", remedy=_AGO_REMEDY)
        object.__setattr__(self, "duration", duration)

    def timestamp_ms(self, now_ms: int) -> int:
        """Return the time meant at `now_ms`, in milliseconds since 1970; 0 where that is before 1970."""
        return max(0, now_ms - self.duration // timedelta(milliseconds=1))


_AGO_REMEDY = "give a timedelta above 0, or its parts: Ago(hours=1)"
_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Offset:
    """An offset as groups commit it: of the next record, with the leader epoch of the record before it, if known.

    A start with a leader epoch is checked against the leader's log before anything is fetched (KIP-320).
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""

    def __post_init__(self) -> None:
        if not _is_whole(self.offset, _INT64_MAX):
            raise ConfigurationError(f"{self.offset!r} is not an offset", remedy="give a whole number from 0 up")
        if self.leader_epoch is not None and not _is_whole(self.leader_epoch, _INT32_MAX):
            raise ConfigurationError(
                f"{self.leader_epoch!r} is not a leader epoch", remedy="give a whole number from 0 up, or None"
            )
        if not isinstance(self.metadata, str):
            raise ConfigurationError(f"metadata is {self.metadata!r:.60}", remedy="give a str")


def _is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


# A start of internal use: where the group has committed, or else `on_no_offset`.
COMMITTED: Final = "committed"

# Places in a log that brokers can find.
# max_timestamp             the record with the newest timestamp (KIP-734, Kafka 3.0); of an empty log its end
# local_earliest            the first record that the broker has on its own disks (KIP-405, Kafka 3.5)
# latest_tiered             the last record in tiered storage (KIP-1005, Kafka 3.9); the beginning if there is none
# earliest_pending_upload   the first record that is to be copied there (KIP-1023, Kafka 4.2); the beginning if none is
SpecialOffset = Literal["max_timestamp", "local_earliest", "latest_tiered", "earliest_pending_upload"]
_SPECIAL: Mapping[SpecialOffset, int] = {
    "max_timestamp": MAX_TIMESTAMP,
    "local_earliest": EARLIEST_LOCAL,
    "latest_tiered": LATEST_TIERED,
    "earliest_pending_upload": EARLIEST_PENDING_UPLOAD,
}
# Their least versions of ListOffsets, and the Kafka that has it.
_LEAST_VERSIONS: Mapping[int, tuple[int, str]] = {
    MAX_TIMESTAMP: (7, "3.0"),
    EARLIEST_LOCAL: (8, "3.5"),
    LATEST_TIERED: (9, "3.9"),
    EARLIEST_PENDING_UPLOAD: (11, "4.2"),
}

# Where to look: ListOffsets finds the offset.
LookupStart = Literal["earliest", "latest"] | SpecialOffset | AtTimestamp | Ago
StartOffset = int | Offset | LookupStart
# What the fetcher takes: `COMMITTED` besides.
FetchStart = StartOffset | Literal["committed"]


def is_start_offset(value: object) -> bool:
    if isinstance(value, int):
        return _is_whole(value, _INT64_MAX)
    if isinstance(value, str):
        return value in ("earliest", "latest") or value in _SPECIAL
    return isinstance(value, (AtTimestamp, Ago, Offset))


def start_without_offset(start: FetchStart) -> Literal["earliest", "latest"]:
    """Return where to begin if a log has no record at this start."""
    return "earliest" if start in ("latest_tiered", "earliest_pending_upload") else "latest"


def known_offset(start: FetchStart) -> int | None:
    """Return the offset of a start, or None where it must be found first."""
    if isinstance(start, Offset):
        return start.offset
    return start if isinstance(start, int) else None


def list_offsets_timestamp(start: LookupStart, now_ms: int) -> int:
    """Return the timestamp that stands for this start in a ListOffsets request. `now_ms` is wall time."""
    match start:
        case AtTimestamp():
            return start.timestamp_ms
        case Ago():
            return start.timestamp_ms(now_ms)
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case "max_timestamp" | "local_earliest" | "latest_tiered" | "earliest_pending_upload":
            return _SPECIAL[start]
        case _:
            assert_never(start)


def special_timestamp(name: object) -> int | None:
    """Return the timestamp that stands for the name of a place in a log, or None for any other value."""
    return _SPECIAL.get(cast("SpecialOffset", name)) if isinstance(name, str) else None


@dataclass(slots=True, eq=False)
class CommittedRequest:
    """The wanted committed offset of one partition.

    `on_done(result, now)` gets the offset, None where the group has committed none, or the error for which it is not
    known: only None may lead to `on_no_offset`. The error at the `deadline`, a time of the loop, is a timeout.
    """

    topic: str
    partition: int
    on_done: Callable[[Offset | KwireError | None, float], None]
    deadline: float = inf


class CommittedOffsets(Protocol):
    """Looks up what a group has committed. Both methods belong to the loop thread."""

    def lookup(self, request: CommittedRequest) -> None:
        """Complete the request once, in a later turn. Retriable errors are retried until its deadline."""
        ...

    def cancel(self, request: CommittedRequest) -> None:
        """Forget a request; a response to it is ignored."""
        ...


class FoundOffset(NamedTuple):
    """`offset` is -1 where the log has no record that young; `timestamp_ms` is -1 where it is unknown."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class OffsetRequest:
    """The wanted offset of one partition. `timeout` (seconds, None: no limit) counts from its first turn."""

    topic: str
    partition: int
    timestamp: int
    on_done: Callable[[FoundOffset | KwireError, float], None]
    timeout: float | None = None
    expires_at: float | None = field(default=None, init=False)
    unknown_since: float | None = field(default=None, init=False)
    not_before: float = field(default=0.0, init=False)
    attempts: int = field(default=0, init=False)
    is_in_flight: bool = field(default=False, init=False)
    is_started: bool = field(default=False, init=False)
    last_error: KwireError | None = field(default=None, init=False)


class OffsetFetcher:
    """A `StateMachine` that completes each `OffsetRequest` once. Every method belongs to the loop thread.

    Requests for the same leader share a ListOffsets request. Retriable errors (a leader that moved, a broker that is
    down, a topic that is being created) are retried with back-off until the request expires; others fail at once.
    """

    def __init__(
        self, *, is_committed_only: bool, unknown_topic_timeout_ms: int, backoff: Backoff, random: Random
    ) -> None:
        self._isolation_level = int(is_committed_only)
        self._unknown_topic_timeout = unknown_topic_timeout_ms / 1000
        self._backoff = backoff
        self._random = random
        self._requests: dict[OffsetRequest, None] = {}  # a set that keeps its order
        self._refresh_reason: str | None = None
        self._end: KwireError | None = None
        self._now = 0.0  # of the last turn

    def add(self, requests: Iterable[OffsetRequest]) -> None:
        self._requests.update(dict.fromkeys(requests))
        if self._end is not None:
            self.closed(self._end)

    def cancel(self, request: OffsetRequest) -> None:
        """Forget a request; a response to it is ignored."""
        self._requests.pop(request, None)

    def topics(self) -> Collection[str]:
        return {request.topic for request in self._requests}

    def deadline(self) -> float | None:
        """Return the next time that is still to come. The last turn has handled those that have passed."""
        times: list[float] = []
        for request in self._requests:
            if request.expires_at is not None:
                times.append(request.expires_at)
            if not request.is_in_flight:
                times.append(request.not_before)
                if request.unknown_since is not None:
                    times.append(request.unknown_since + self._unknown_topic_timeout)
        return min((time for time in times if time > self._now), default=None)

    def closed(self, error: KwireError) -> None:
        self._end = error
        for request in list(self._requests):
            self._finish(request, error, self._now)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now = now
        if not self._requests:
            return []
        if self._refresh_reason is not None:
            view.request_metadata(self._refresh_reason)
            self._refresh_reason = None
        by_node: dict[int, list[tuple[OffsetRequest, LeaderAndEpoch]]] = {}
        for request in list(self._requests):
            if self._has_expired(request, now, view) or request.is_in_flight or now < request.not_before:
                continue
            leader = leader_of(view.snapshot, request.topic, request.partition)
            if leader.node != NO_NODE:
                if view.is_ready(leader.node):
                    if not self._can_find(request, leader.node, now, view):
                        continue
                    by_node.setdefault(leader.node, []).append((request, leader))
            else:
                self._handle_no_leader(request, leader, now, view)
        return [
            self._pending_request(node, entries)
            for node, requests in by_node.items()
            for entries in _without_duplicates(requests)
        ]

    def _can_find(self, request: OffsetRequest, node: int, now: float, view: ClusterView) -> bool:
        """Return whether a broker knows the place that is wanted; if not, fail the request."""
        least = _LEAST_VERSIONS.get(request.timestamp)
        if least is None:
            return True
        if view.supports(node, ListOffsetsRequest) and view.version(node, ListOffsetsRequest) >= least[0]:
            return True
        name = next(name for name, timestamp in _SPECIAL.items() if timestamp == request.timestamp)
        error = UnsupportedVersionError(
            f'the broker cannot find the offset "{name}": that needs ListOffsets v{least[0]}',
            broker=view.describe(node),
            topic=request.topic,
            partition=request.partition,
            remedy=f"use brokers from Kafka {least[1]} on, or begin elsewhere",
        )
        self._finish(request, error, now)
        return False

    # -- the end of a request

    def _finish(self, request: OffsetRequest, result: FoundOffset | KwireError, now: float) -> None:
        if request in self._requests:  # else it was cancelled, or expired while it was in flight
            del self._requests[request]
            request.on_done(result, now)

    def _has_expired(self, request: OffsetRequest, now: float, view: ClusterView) -> bool:
        if not request.is_started:
            request.is_started = True
            request.expires_at = None if request.timeout is None else now + request.timeout
        # Without a timeout of its own the request goes on; the fetcher reports the error, once for all partitions.
        if (
            view.has_fatal_error
            and view.connection_error is not None
            and not request.is_in_flight
            and request.timeout is not None
        ):
            self._finish(request, view.connection_error, now)
            return True
        if request.expires_at is None or now < request.expires_at:
            return False
        self._finish(request, _expired(request, view), now)
        return True

    def _handle_no_leader(self, request: OffsetRequest, leader: LeaderAndEpoch, now: float, view: ClusterView) -> None:
        if not leader.is_permanent:  # a partition that is not known may have been added
            view.request_metadata(f"{request.topic}-{request.partition} has no known leader")
        if leader.error is None:
            return
        request.last_error = leader.error
        if request.unknown_since is None:
            request.unknown_since = now
        if leader.is_permanent or now >= request.unknown_since + self._unknown_topic_timeout:
            self._finish(request, leader.error, now)

    def _retry_or_fail(self, request: OffsetRequest, error: KwireError, now: float) -> None:
        request.is_in_flight = False
        request.last_error = error
        if isinstance(error, BrokerError) and error.code in UNKNOWN_TOPIC_CODES:
            if request.unknown_since is None:
                request.unknown_since = now
            if now >= request.unknown_since + self._unknown_topic_timeout:
                self._finish(request, error, now)
                return
        if not error.is_retriable:
            self._finish(request, error, now)
            return
        request.attempts += 1
        request.not_before = now + self._backoff.seconds(request.attempts, self._random)
        self._refresh_reason = f"offsets of {request.topic}-{request.partition}: {error.message}"

    # -- the request

    def _pending_request(self, node: int, entries: list[tuple[OffsetRequest, LeaderAndEpoch]]) -> PendingRequest:
        """Return the ListOffsets request to a node. Its timeout is the client's: a request that times out closes its
        connection, with the fetches in flight on it. So an `OffsetRequest` that expires first only stops waiting."""
        requests = {(request.topic, request.partition): request for request, _ in entries}
        for request in requests.values():
            request.is_in_flight = True
        version_sent = -1

        def build(version: int) -> ListOffsetsRequest:
            nonlocal version_sent
            version_sent = version
            return list_offsets_request(entries, self._isolation_level, version)

        def done(result: Response | KwireError | None, now: float) -> None:
            if isinstance(result, ListOffsetsResponse):
                self._handle_response(requests, result, version_sent, now)
                return
            assert isinstance(result, KwireError)
            for request in requests.values():
                self._retry_or_fail(request, result, now)

        return PendingRequest(ToNode(node), ListOffsetsRequest, build, done)

    def _handle_response(
        self, requests: Mapping[tuple[str, int], OffsetRequest], response: ListOffsetsResponse, version: int, now: float
    ) -> None:
        missing = dict(requests)
        for topic in response.topics:
            for result in topic.partitions:
                request = missing.pop((topic.name, result.partition_index), None)
                if request is not None:
                    self._handle_partition(request, result, version, now)
        for request in missing.values():
            self._handle_partition_error(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now)

    def _handle_partition(
        self, request: OffsetRequest, result: ListOffsetsResponse.Topic.Partition, version: int, now: float
    ) -> None:
        if result.error_code:
            self._handle_partition_error(request, result.error_code, now)
            return
        found = FoundOffset(result.offset, result.timestamp, result.leader_epoch)
        if version == 0:
            found = FoundOffset(result.old_style_offsets[0] if result.old_style_offsets else NO_OFFSET)
            if found.offset == NO_OFFSET and request.timestamp >= 0:
                # No segment is that old: the whole log is younger, so its start is the offset to find.
                request.timestamp, request.is_in_flight = EARLIEST, False
                return
        if found.offset == NO_OFFSET and request.timestamp in (EARLIEST, LATEST):
            self._handle_partition_error(request, ErrorCode.OFFSET_NOT_AVAILABLE, now)
        else:
            self._finish(request, found, now)

    def _handle_partition_error(self, request: OffsetRequest, code: int, now: float) -> None:
        self._retry_or_fail(
            request, broker_error(code, api="ListOffsets", topic=request.topic, partition=request.partition), now
        )


def _without_duplicates(
    requests: list[tuple[OffsetRequest, LeaderAndEpoch]],
) -> Iterator[list[tuple[OffsetRequest, LeaderAndEpoch]]]:
    """Split into requests that name each partition once: brokers reject a request with duplicates."""
    while requests:
        entries: dict[tuple[str, int], tuple[OffsetRequest, LeaderAndEpoch]] = {}
        rest: list[tuple[OffsetRequest, LeaderAndEpoch]] = []
        for request, leader in requests:
            if entries.setdefault((request.topic, request.partition), (request, leader))[0] is not request:
                rest.append((request, leader))
        yield list(entries.values())
        requests = rest


def list_offsets_request(
    entries: list[tuple[OffsetRequest, LeaderAndEpoch]], isolation_level: int, version: int
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsRequest.Topic.Partition]] = {}
    for request, leader in entries:
        partition = ListOffsetsRequest.Topic.Partition(
            partition_index=request.partition,
            current_leader_epoch=leader.leader_epoch if version >= 4 else -1,
            timestamp=request.timestamp,
        )
        by_topic.setdefault(request.topic, []).append(partition)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level if version >= 2 else 0,
        topics=[ListOffsetsRequest.Topic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
    )


def _expired(request: OffsetRequest, view: ClusterView) -> KwireError:
    """Return the error of a request that has expired."""
    leader = leader_of(view.snapshot, request.topic, request.partition).node
    cause = request.last_error or (view.failure(leader) if leader != NO_NODE else None) or view.connection_error
    if isinstance(cause, BrokerError) and cause.code in UNKNOWN_TOPIC_CODES:
        return cause  # it says more than a timeout
    return timeout_error(
        "the offset was not found in time",
        cause,
        api="ListOffsets",
        topic=request.topic,
        partition=request.partition,
        remedy="check that the partition has a leader and that its broker can be reached from here",
    )


class OffsetsQuery:
    """The offsets of many partitions.

    `future` gets all of them, or the first error; `results` gets an offset or an error for each, or the ClosedError.
    `offset_fetcher` is the state machine to run.
    """

    def __init__(
        self, offset_fetcher: OffsetFetcher, timestamps: Mapping[tuple[str, int], int], timeout: float
    ) -> None:
        self.future: Future[dict[tuple[str, int], FoundOffset]] = Future()
        self.results: Future[dict[tuple[str, int], FoundOffset | KwireError]] = Future()
        self._found: dict[tuple[str, int], FoundOffset | KwireError] = {}
        self._order = list(timestamps)
        if not timestamps:
            self.future.set_result({})
            self.results.set_result({})
        offset_fetcher.add(
            OffsetRequest(topic, partition, timestamp, partial(self._add, (topic, partition)), timeout)
            for (topic, partition), timestamp in timestamps.items()
        )

    def _add(self, key: tuple[str, int], result: FoundOffset | KwireError, now: float) -> None:
        self._found[key] = result
        if isinstance(result, KwireError) and not self.future.done():
            self.future.set_exception(result)
        if isinstance(result, ClosedError) and not self.results.done():
            self.results.set_exception(result)
        if len(self._found) < len(self._order):
            return
        results = {one: self._found[one] for one in self._order}
        if not self.results.done():
            self.results.set_result(results)
        if not self.future.done():
            self.future.set_result({one: found for one, found in results.items() if not isinstance(found, KwireError)})


class PartitionsQuery:
    """A `StateMachine` whose `future` gets the number of a topic's partitions, from metadata newer than the query."""

    def __init__(self, topic: str, *, timeout: float, unknown_topic_timeout_ms: int) -> None:
        self.future: Future[int] = Future()
        self._topic = topic
        self._timeout = timeout
        self._unknown_topic_timeout = unknown_topic_timeout_ms / 1000
        self._started_at: float | None = None

    def topics(self) -> Collection[str]:
        return () if self.future.done() else (self._topic,)

    def deadline(self) -> float | None:
        if self._started_at is None or self.future.done():
            return None
        return self._started_at + min(self._timeout, self._unknown_topic_timeout)

    def closed(self, error: KwireError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        if self.future.done():
            return []
        if self._started_at is None:
            self._started_at = now
            view.request_metadata(f"the caller wants the partitions of {self._topic}")
        waited = now - self._started_at
        topic = view.snapshot.topics.get(self._topic) if view.snapshot.at > self._started_at else None
        code = 0 if topic is None else topic.error_code
        if topic is not None and topic.partitions and not code:
            self.future.set_result(len(topic.partitions))
        elif view.has_fatal_error and view.connection_error is not None:
            self.future.set_exception(view.connection_error)
        elif code in UNKNOWN_TOPIC_CODES and waited >= self._unknown_topic_timeout:
            self.future.set_exception(no_such_topic(self._topic))
        elif code and code not in UNKNOWN_TOPIC_CODES and not broker_error(code).is_retriable:
            self.future.set_exception(broker_error(code, api="Metadata", topic=self._topic))
        elif waited >= self._timeout:
            self.future.set_exception(self._expired(code, view.connection_error))
        return []

    def _expired(self, code: int, connection_error: KwireError | None) -> KwireError:
        if code in UNKNOWN_TOPIC_CODES:
            return no_such_topic(self._topic)
        return timeout_error(
            "no metadata of the topic in time",
            broker_error(code, api="Metadata", topic=self._topic) if code else connection_error,
            topic=self._topic,
            remedy="check that the brokers are up and that the addresses they advertise can be reached from here",
        )
