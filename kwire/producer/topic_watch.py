"""Who waits for a topic's metadata: callers whose own partitioner needs to see the leaders before it can choose.

A `Machine` that sends nothing: it makes the loop ask for the topics, and tells when they are there or will never be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from kwire.cluster import Call, View
from kwire.errors import ErrorCode, KwireError, broker_error

Tell = Callable[[KwireError | None], object]

_LASTING = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


class TopicWatch:
    """All methods are for the loop's thread."""

    def __init__(self, max_idle: float = 300.0) -> None:
        """`max_idle`: seconds for which a topic stays wanted after it was found; from then on its records keep it."""
        self._max_idle = max_idle
        self._topics: dict[str, list[Tell]] = {}
        self._until: dict[str, float] = {}  # when a topic is wanted no more, by the order of its end
        self._closed: KwireError | None = None

    def want(self, topic: str, tell: Tell) -> None:
        """Call `tell(None)` when the topic has partitions, `tell(error)` when that cannot be; exactly once."""
        if self._closed is not None:
            tell(self._closed)
        else:
            self._topics.setdefault(topic, []).append(tell)
            self._until.pop(topic, None)

    def trouble(self, topic: str, view: View) -> KwireError | None:
        """Why the topic is not known yet, for who has waited long enough."""
        known = view.snapshot.topics.get(topic)
        if known is not None and known.error_code:
            return broker_error(known.error_code, topic=topic, **view.metadata_status().place)
        return view.trouble

    def topics(self) -> Collection[str]:
        return self._topics.keys()

    def turn(self, now: float, view: View) -> Iterable[Call]:
        while self._until and (first := next(iter(self._until.items())))[1] <= now:
            del self._until[first[0]], self._topics[first[0]]
        for topic, waiting in self._topics.items():
            if waiting:
                view.allow_topic_creation(topic)
                is_over, error = self._outcome(topic, view)
                if is_over:
                    self._topics[topic] = []
                    self._until[topic] = now + self._max_idle
                    for tell in waiting:
                        tell(error)
        return ()

    def deadline(self) -> float | None:
        return next(iter(self._until.values()), None)

    def closed(self, error: KwireError) -> None:
        self._closed = error
        for waiting in self._topics.values():
            while waiting:
                waiting.pop(0)(error)

    def _outcome(self, topic: str, view: View) -> tuple[bool, KwireError | None]:
        known = view.snapshot.topics.get(topic)
        if known is not None and known.partitions:
            return True, None
        if known is not None and known.error_code in _LASTING:
            return True, broker_error(known.error_code, topic=topic, **view.metadata_status().place)
        return view.is_hopeless, view.trouble if view.is_hopeless else None
