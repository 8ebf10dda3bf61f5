"""Questions that a user's thread asks and waits for: offsets of many partitions, the partitions of a topic.

Each is a state machine that joins the event loop until it has its answer. One failure fails the whole question: half of
the offsets are of no use to whoever asked for all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypeVar

from kwire.cluster.calls import Call, Machine, View
from kwire.cluster.runtime import Runtime
from kwire.consumer.offsets import Found, OffsetLookup, Want
from kwire.consumer.place import no_such_topic
from kwire.errors import ClosedError, ErrorCode, KwireError, RequestTimeoutError, broker_error

T = TypeVar("T")

# Seconds beyond the machine's own deadline, after which the loop must have broken without a word.
_GRACE = 5.0
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def ask(runtime: Runtime, machine: Machine, future: Future[T], timeout: float) -> T:
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

    def __init__(self, lookup: OffsetLookup, timestamps: Mapping[tuple[str, int], int], timeout: float) -> None:
        self.future: Future[dict[tuple[str, int], Found]] = Future()
        self._found: dict[tuple[str, int], Found] = {}
        self._order = list(timestamps)
        if not timestamps:
            self.future.set_result({})
        lookup.want(
            Want(topic, partition, timestamp, partial(self._answered, (topic, partition)), timeout)
            for (topic, partition), timestamp in timestamps.items()
        )

    def _answered(self, key: tuple[str, int], result: Found | KwireError, now: float) -> None:
        if self.future.done():
            return
        if isinstance(result, KwireError):
            self.future.set_exception(result)
            return
        self._found[key] = result
        if len(self._found) == len(self._order):
            self.future.set_result({one: self._found[one] for one in self._order})


class PartitionsQuery:
    """A `Machine`; `future` gets the number of a topic's partitions, from metadata newer than the question."""

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

    def turn(self, now: float, view: View) -> list[Call]:
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
        elif view.is_hopeless and view.trouble is not None:
            self.future.set_exception(view.trouble)
        elif code in _UNKNOWN and waited >= self._unknown_patience:
            self.future.set_exception(no_such_topic(self._topic))
        elif code and code not in _UNKNOWN and not broker_error(code).is_retriable:
            self.future.set_exception(broker_error(code, topic=self._topic))
        elif waited >= self._timeout:
            self.future.set_exception(self._too_late(code, view.trouble))
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
