"""When metadata is asked for, of whom, and what for: a state machine without I/O.

It owns the newest `Snapshot` and the decision to refresh it: when a topic is wanted that the snapshot lacks, when some
partition is in error, when somebody asks, and when it has grown old. One request is in flight at a time; after a
failure, or an answer that still has leaderless partitions, the next one waits for its back-off, so that an election is
never met with a storm of requests. It refuses to know how a request travels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import inf
from random import Random
from typing import Any, NamedTuple

from kwire.cluster.snapshot import NO_NODE, Broker, LeaderHint, Snapshot
from kwire.errors import KwireError
from kwire.net.backoff import Backoff
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse


class MetadataStatus(NamedTuple):
    """Where the wish for newer metadata stands. Times are the loop's.

    asked_node   the node that is being asked, since `asked_at`; None while nobody is
    next_at      when the next request may leave; it leaves then if a broker is ready
    reason       why one is wanted; None while none is
    last_error   what became of the last request, if it failed
    told_by      the broker that answered last, as errors name it, and the version of its answer
    """

    asked_node: int | None
    asked_at: float
    next_at: float
    reason: str | None
    last_error: KwireError | None
    told_by: tuple[str | None, int | None] = (None, None)

    @property
    def place(self) -> dict[str, Any]:
        """Where an error comes from that the metadata tells."""
        return {"broker": self.told_by[0], "api": "Metadata", "version": self.told_by[1]}


class MetadataUpdater:
    """Owns `snapshot`.

    `due_at` says when to ask; `request(version)` what; `answered`, with `go_on`, and `failed` take the outcome.
    """

    def __init__(self, *, max_age_ms: int, backoff: Backoff, random: Random, allow_auto_create: bool) -> None:
        self.snapshot = Snapshot()
        self.reason: str | None = "first"
        self.due_at = 0.0  # from then on a request may leave; infinite while one is out
        self._max_age = max_age_ms / 1000
        self._backoff = backoff
        self._random = random
        self._allow_auto_create = allow_auto_create
        self.topics: frozenset[str] = frozenset()  # that are wanted
        self._asked: frozenset[str] = frozenset()
        self._in_flight = False
        self._asked_node, self._asked_at = NO_NODE, 0.0
        self._last_error: KwireError | None = None
        self._told_by: tuple[str | None, int | None] = (None, None)
        self._attempts = 0  # requests in a row that did not bring what was wanted
        self._not_before = 0.0
        self.taking: Iterator[Snapshot | None] | None = None  # what is left of an answer that is being taken in
        self._learnt: list[tuple[tuple[LeaderHint, ...], tuple[Broker, ...]]] = []  # meanwhile

    def want(self, topics: Collection[str]) -> None:
        """Tell which topics are needed from now on; a new one makes a refresh due."""
        if topics == self.topics:  # a set, or the keys of a dict
            return
        wanted = frozenset(topics)
        if wanted == self.topics:
            return
        if not wanted <= self.topics:
            self.request_refresh(f"topics {', '.join(sorted(wanted - self.topics)[:3])} are new")
            if not wanted <= self._asked:
                self._not_before = 0.0  # a new topic need not wait out an old one's back-off
                self._plan()
        self.topics = wanted

    def request_refresh(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            self._plan()

    def _plan(self) -> None:
        if self._in_flight:
            self.due_at = inf
        elif self.reason is not None:
            self.due_at = self._not_before
        else:
            self.due_at = max(self._not_before, self.snapshot.at + self._max_age)

    @property
    def status(self) -> MetadataStatus:
        asked = self._asked_node if self._in_flight else None
        return MetadataStatus(asked, self._asked_at, self._not_before, self.reason, self._last_error, self._told_by)

    def start(self, node: int = NO_NODE, now: float = 0.0) -> None:
        """A request is about to be sent."""
        assert not self._in_flight
        self._in_flight = True
        self._asked_node, self._asked_at = node, now
        self._asked = self.topics
        self.reason = None
        self._plan()

    def request(self, version: int) -> MetadataRequest:
        """What to send. Before v1 an empty list means every topic: then a client without topics hears of all."""
        topics = [MetadataRequest.Topic(name=name) for name in sorted(self._asked)]
        if version < 4:
            return MetadataRequest(topics=topics)
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self._allow_auto_create)

    def answered(
        self, response: MetadataResponse, now: float, told_by: tuple[str | None, int | None] = (None, None)
    ) -> bool:
        """Begin to take an answer in; whether that is done. If not, `go_on` is to be called until it is."""
        self._told_by = told_by
        self._last_error = None
        self.taking = self.snapshot.updating(response, now)
        return self.go_on()

    def go_on(self) -> bool:
        """Take in some more of the answer; whether that was all, so that `snapshot` is new."""
        assert self.taking is not None
        taken = next(self.taking)
        if taken is None:
            return False
        self.taking = None
        self._in_flight = False
        self.snapshot = taken
        for told in self._learnt:
            self.learn(*told)
        self._learnt.clear()
        now = taken.at
        unsettled = self._unsettled()
        if unsettled is None:
            self._attempts = 0
            self._not_before = now + self._backoff.first_ms / 1000
        else:
            self.request_refresh(unsettled)
            self._wait(now)
        if not self.topics <= self._asked:  # the wish grew while the request was in flight
            self.request_refresh("topics became wanted")
            self._not_before = now
        self._plan()
        return True

    def learn(self, hints: Iterable[LeaderHint], endpoints: Iterable[Broker]) -> frozenset[tuple[str, int]]:
        """Take leaders that brokers named beside an error; the partitions for which that is news."""
        told = tuple(hints), tuple(endpoints)
        self.snapshot, news = self.snapshot.with_leaders(*told)
        if news and self.taking is not None:
            self._learnt.append(told)  # the answer that is being taken in may be older
        return news

    def failed(self, now: float, error: KwireError | None = None) -> None:
        self._in_flight = False
        self._last_error = error
        self.request_refresh("the last request failed")
        self._wait(now)
        self._plan()

    def _wait(self, now: float) -> None:
        self._attempts += 1
        self._not_before = now + self._backoff.seconds(self._attempts, self._random)

    def _unsettled(self) -> str | None:
        """What keeps the loop asking, with back-off."""
        wanted = self._asked & self.topics
        for name in sorted(wanted & self.snapshot.unsettled | wanted - self.snapshot.topics.keys()):
            topic = self.snapshot.topics.get(name)
            if topic is None or topic.error_code:
                return f"topic {name} is not known yet"
            for partition in topic.partitions:
                if partition.leader == NO_NODE:
                    return f"topic {name} partition {partition.index} has no leader"
        return None
