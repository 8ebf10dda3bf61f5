"""Where in a log to stand: earliest, latest, or by time; and the lookup that asks the leaders for it (ListOffsets).

`OffsetLookup` takes wants, one per partition and timestamp, and resolves each exactly once. Wants for the same leader
share a request. A leader that moved, a broker that is gone or a topic that is only just being created is retried with
back-off until the want expires; what waiting does not cure fails at once.

ListOffsets v0 (brokers before 0.10.1) answers a list of segment starts, newest first, not later than the time asked
for: the first of them is the best start known, and an empty list means that the whole log is younger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple

from kwire.cluster import Backoff
from kwire.cluster.calls import Call, ToNode, View
from kwire.cluster.snapshot import NO_NODE
from kwire.consumer.place import Place, locate
from kwire.errors import (
    BrokerError,
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


class Found(NamedTuple):
    """`offset` is -1 when no record is that young; `timestamp_ms` that of the record, -1 where unknown."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class Want:
    """One partition's question. `timeout` (seconds, None: for ever) counts from the first turn that sees it."""

    topic: str
    partition: int
    timestamp: int
    on_done: Callable[[Found | KwireError, float], None]
    timeout: float | None = None
    expires_at: float | None = field(default=None, init=False)
    unknown_since: float | None = field(default=None, init=False)
    not_before: float = field(default=0.0, init=False)
    attempts: int = field(default=0, init=False)
    is_asked: bool = field(default=False, init=False)
    is_seen: bool = field(default=False, init=False)
    last_error: KwireError | None = field(default=None, init=False)


class OffsetLookup:
    """A state machine. `want` and `drop` belong to the loop's thread, as everything here."""

    def __init__(
        self, *, is_committed_only: bool, unknown_topic_timeout_ms: int, backoff: Backoff, random: Random
    ) -> None:
        self._isolation_level = int(is_committed_only)
        self._unknown_patience = unknown_topic_timeout_ms / 1000
        self._backoff = backoff
        self._random = random
        self._wants: dict[Want, None] = {}  # a set that keeps its order
        self._refresh_reason: str | None = None
        self._end: KwireError | None = None
        self._now = 0.0  # of the last turn

    def want(self, wants: Iterable[Want]) -> None:
        self._wants.update(dict.fromkeys(wants))
        if self._end is not None:
            self.closed(self._end)

    def drop(self, want: Want) -> None:
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

    def turn(self, now: float, view: View) -> list[Call]:
        self._now = now
        if not self._wants:
            return []
        if self._refresh_reason is not None:
            view.request_metadata(self._refresh_reason)
            self._refresh_reason = None
        by_node: dict[int, list[tuple[Want, Place]]] = {}
        for want in list(self._wants):
            if self._has_expired(want, now, view) or want.is_asked or now < want.not_before:
                continue
            place = locate(view.snapshot, want.topic, want.partition)
            if place.node != NO_NODE:
                if view.is_ready(place.node):
                    by_node.setdefault(place.node, []).append((want, place))
            else:
                self._without_leader(want, place, now, view)
        return [self._call(node, asked) for node, placed in by_node.items() for asked in _without_duplicates(placed)]

    # -- what becomes of a want

    def _finish(self, want: Want, result: Found | KwireError, now: float) -> None:
        if want in self._wants:  # else it was dropped or has expired while its answer was under way
            del self._wants[want]
            want.on_done(result, now)

    def _has_expired(self, want: Want, now: float, view: View) -> bool:
        if not want.is_seen:
            want.is_seen = True
            want.expires_at = None if want.timeout is None else now + want.timeout
        # Who waits without end is told of the trouble by the fetcher, once for all partitions.
        if view.is_hopeless and view.trouble is not None and not want.is_asked and want.timeout is not None:
            self._finish(want, view.trouble, now)
            return True
        if want.expires_at is None or now < want.expires_at:
            return False
        self._finish(want, _too_late(want, view), now)
        return True

    def _without_leader(self, want: Want, place: Place, now: float, view: View) -> None:
        if place.error is None:
            view.request_metadata(f"{want.topic}-{want.partition} has no known leader")
            return
        want.last_error = place.error
        if want.unknown_since is None:
            want.unknown_since = now
        if place.is_lasting or now >= want.unknown_since + self._unknown_patience:
            self._finish(want, place.error, now)

    def _failed(self, want: Want, error: KwireError, now: float) -> None:
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

    def _call(self, node: int, asked: list[tuple[Want, Place]]) -> Call:
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

        return Call(ToNode(node), ListOffsetsRequest, build, done)

    def _answered(
        self, wants: Mapping[tuple[str, int], Want], response: ListOffsetsResponse, version: int, now: float
    ) -> None:
        unanswered = dict(wants)
        for topic in response.topics:
            for answer in topic.partitions:
                want = unanswered.pop((topic.name, answer.partition_index), None)
                if want is not None:
                    self._answered_one(want, answer, version, now)
        for want in unanswered.values():  # a broker that leaves a partition out has nothing to say about it now
            self._answered_with_code(want, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now)

    def _answered_one(self, want: Want, answer: ListOffsetsResponse.Topic.Partition, version: int, now: float) -> None:
        if answer.error_code:
            self._answered_with_code(want, answer.error_code, now)
            return
        found = Found(answer.offset, answer.timestamp, answer.leader_epoch)
        if version == 0:
            found = Found(answer.old_style_offsets[0] if answer.old_style_offsets else NO_OFFSET)
            if found.offset == NO_OFFSET and want.timestamp >= 0:
                # No segment is that old: everything in the log is younger, so its start is what was asked for.
                want.timestamp, want.is_asked = EARLIEST, False
                return
        if found.offset == NO_OFFSET and want.timestamp < 0:
            self._answered_with_code(want, ErrorCode.OFFSET_NOT_AVAILABLE, now)
        else:
            self._finish(want, found, now)

    def _answered_with_code(self, want: Want, code: int, now: float) -> None:
        self._failed(want, broker_error(code, api="ListOffsets", topic=want.topic, partition=want.partition), now)


_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def _without_duplicates(placed: list[tuple[Want, Place]]) -> Iterator[list[tuple[Want, Place]]]:
    """Split into requests that name each partition once: brokers refuse one that asks twice about the same."""
    while placed:
        asked: dict[tuple[str, int], tuple[Want, Place]] = {}
        rest: list[tuple[Want, Place]] = []
        for want, place in placed:
            if asked.setdefault((want.topic, want.partition), (want, place))[0] is not want:
                rest.append((want, place))
        yield list(asked.values())
        placed = rest


def list_offsets_request(asked: list[tuple[Want, Place]], isolation_level: int, version: int) -> ListOffsetsRequest:
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


def _too_late(want: Want, view: View) -> KwireError:
    """What a want that expired is told: the error it kept meeting says more than the clock does."""
    leader = locate(view.snapshot, want.topic, want.partition).node
    cause = want.last_error or (view.failure(leader) if leader != NO_NODE else None) or view.trouble
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
