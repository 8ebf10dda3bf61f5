"""When metadata is asked for, of whom, and what for: a state machine without I/O.

It owns the newest `Snapshot` and the decision to refresh it: when a topic is wanted that the snapshot lacks, when some
partition is in error, when somebody asks, and when it has grown old. One request is in flight at a time; after a
failure, or an answer that still has leaderless partitions, the next one waits for its back-off, so that an election is
never met with a storm of requests. It refuses to know how a request travels.

Brokers may create a topic that a request names (auto.create.topics.enable), and the permission in a request is for all
its topics. So topics that may be created are asked for alone, until they were seen for the first time; every other
request forbids it. A topic that was deleted is thus never created again by a refresh. Brokers before 0.11 know no such
permission: there every request may create.
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
        self._asked: frozenset[str] = frozenset()  # of which the snapshot tells, or will when the answer is here
        self._named: frozenset[str] = frozenset()  # by the last request
        self._is_whole = True  # whether those were all that are wanted
        self._creatable: set[str] = set()  # those of the wanted that brokers may create, not seen yet
        self._to_create: set[str] = set()  # those of them that the next request is for
        self._in_flight = False
        self._asked_node, self._asked_at = NO_NODE, 0.0
        self._last_error: KwireError | None = None
        self._told_by: tuple[str | None, int | None] = (None, None)
        self._attempts = 0  # requests in a row that did not bring what was wanted
        self._not_before = 0.0
        self._answered_at = 0.0
        self._refreshed_at = 0.0  # when all wanted topics were asked for
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
            new = wanted - self.topics - self._to_create
            if new:
                self.request_refresh(f"topics {', '.join(sorted(new)[:3])} are new")
            if not wanted <= self._asked:
                self._not_before = 0.0  # a new topic need not wait out an old one's back-off
                self._plan()
        self.topics = wanted
        self._creatable &= wanted
        self._to_create &= wanted

    def allow_creation(self, topic: str) -> None:
        """Let the brokers create a topic that is wanted, or about to be; no more when it was seen once."""
        if not self._allow_auto_create or topic in self._creatable or self._is_there(topic):
            return
        self._creatable.add(topic)
        self._to_create.add(topic)
        self._plan()

    def _is_there(self, name: str) -> bool:
        known = self.snapshot.topics.get(name)
        return known is not None and bool(known.partitions)

    def request_refresh(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            self._plan()

    def _plan(self) -> None:
        if self._in_flight:
            self.due_at = inf
        elif self.reason is not None or self._to_create:
            self.due_at = self._not_before
        else:
            self.due_at = max(self._not_before, self._refreshed_at + self._max_age)

    @property
    def status(self) -> MetadataStatus:
        asked = self._asked_node if self._in_flight else None
        reason = self.reason
        if reason is None and self._to_create:
            reason = f"topics {', '.join(sorted(self._to_create)[:3])} are new"
        return MetadataStatus(asked, self._asked_at, self._not_before, reason, self._last_error, self._told_by)

    def start(self, node: int = NO_NODE, now: float = 0.0) -> None:
        """A request is about to be sent; for all wanted topics, unless some are to be created first."""
        assert not self._in_flight
        self._in_flight = True
        self._asked_node, self._asked_at = node, now
        new = self.topics & self._to_create
        self._to_create.clear()
        if new:
            self._named = new
        else:
            self._named = self.topics
        self._is_whole = self._named == self.topics
        if self._is_whole:
            self._asked = self._named
            self.reason = None
        else:
            self._asked |= self._named
        self._plan()

    def request(self, version: int) -> MetadataRequest:
        """What to send. Before v1 an empty list means every topic: then a client without topics hears of all."""
        topics = [MetadataRequest.Topic(name=name) for name in sorted(self._named)]
        if version < 4:
            return MetadataRequest(topics=topics)
        may_create = bool(self._named) and self._named <= self._creatable
        return MetadataRequest(topics=topics, allow_auto_topic_creation=may_create)

    def answered(
        self, response: MetadataResponse, now: float, told_by: tuple[str | None, int | None] = (None, None)
    ) -> bool:
        """Begin to take an answer in; whether that is done. If not, `go_on` is to be called until it is."""
        self._told_by = told_by
        self._last_error = None
        if self._is_whole:
            self._refreshed_at = now
        kept = () if self._is_whole else self.topics - self._named
        self.taking = self.snapshot.updating(response, now, kept=kept)
        self._answered_at = now
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
        now = self._answered_at
        self._creatable = {name for name in self._creatable if not self._is_there(name)}
        if self._is_whole:
            self._to_create |= self._creatable & self._named
        is_more_wanted = not self._is_whole and self.reason is not None
        unsettled = self._unsettled()
        if unsettled is not None:
            self.request_refresh(unsettled)
        if unsettled is not None or self._to_create:
            self._wait(now)
        else:
            self._attempts = 0
            self._not_before = now + self._backoff.first_ms / 1000
        if not self.topics <= self._asked:  # the wish grew while the request was in flight
            self.request_refresh("topics became wanted")
            is_more_wanted = True
        if is_more_wanted:
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
        self._to_create |= self._creatable & self._named
        self.request_refresh("the last request failed")
        self._wait(now)
        self._plan()

    def _wait(self, now: float) -> None:
        self._attempts += 1
        self._not_before = now + self._backoff.seconds(self._attempts, self._random)

    def _unsettled(self) -> str | None:
        """What keeps the loop asking, with back-off."""
        wanted = (self._asked & self.topics) - self._to_create  # which are asked for apart
        for name in sorted(wanted & self.snapshot.unsettled | wanted - self.snapshot.topics.keys()):
            topic = self.snapshot.topics.get(name)
            if topic is None or topic.error_code:
                return f"topic {name} is not known yet"
            for partition in topic.partitions:
                if partition.leader == NO_NODE:
                    return f"topic {name} partition {partition.index} has no leader"
        return None
