"""The metadata of a cluster: what a client knows at one moment, and when it requests a newer version.

A broker may create a topic that a request names (auto.create.topics.enable), and the permission in a request is for all
of its topics. So topics that may be created are requested alone until they were seen for the first time; every other
request forbids it. A refresh never creates a deleted topic again. Brokers before 0.11 have no such permission: there
every request may create topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard
from uuid import UUID

from kwire.errors import ErrorCode, KwireError
from kwire.net import show_address
from kwire.net.backoff import Backoff
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse

NO_ID = UUID(int=0)
NO_NODE = -1

# Errors of a topic that a later response may not have.
_TRANSIENT = frozenset(
    {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)

# Among the topics of a state machine: it needs all that this client may see. No topic can have this name.
ALL_TOPICS = "*"

STEP = 2_000  # partitions, a topic counting as one more
# How many partitions a response may lack of a topic: an index beyond that is ignored.
MISSING_MAX = 10_000
TOPIC_NAME_BYTES_MAX = 0x7FFF  # of a string in requests


def is_topic_name(name: object) -> TypeGuard[str]:
    """Return whether a request can carry the name. One wrong name would fail a request for all its topics."""
    if not isinstance(name, str):
        return False
    try:
        return 0 < len(name.encode()) <= TOPIC_NAME_BYTES_MAX
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


class Broker(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.id} at {show_address(self.host, self.port)}"


class Partition(NamedTuple):
    """A partition. `leader` is -1 while there is none; `leader_epoch` is -1 from brokers that lack it (before v7).

    `leaderless_since` is the loop's time of the first response in a row that named no leader. A tuple because
    refreshed metadata makes one of these for each partition of a cluster, and the loop stands still meanwhile.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int
    leaderless_since: float | None = None


class Topic(NamedTuple):
    name: str
    id: UUID
    partitions: tuple[Partition, ...]
    is_internal: bool
    error_code: int


class CurrentLeader(NamedTuple):
    """The leader of a partition, as a broker that is not the leader names it. `topic_id` is that of the request."""

    topic: str
    topic_id: UUID
    partition: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True)
class Snapshot:
    """What a client knows of a cluster at one moment: brokers, topics, leaders. Immutable.

    A new snapshot is made from the old one and a MetadataResponse, or from leaders that brokers named beside an error
    (KIP-951). It never goes back in time: a broker that does not know of a leader change yet sends an older leader
    epoch, and then the partition stays as it was, with its broker (as in Kafka's `Metadata` since KIP-320). A topic
    with a new id was deleted and created again, so its epochs start again.

    `at` is the clock's time of the newest response for all topics at once; 0.0 with no topics and brokers means
    that nothing is known yet.

    `unsettled` topics lacked a leader in that response, or were in an error that passes by itself.
    """

    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    controller_id: int = NO_NODE
    cluster_id: str | None = None
    at: float = 0.0
    unsettled: frozenset[str] = frozenset()

    def partition(self, topic: str, index: int) -> Partition | None:
        known = self.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return None
        return known.partitions[index]

    def leader(self, topic: str, index: int) -> int:
        """Return the node id of a partition's leader, or -1 when there is none or the partition is not known."""
        partition = self.partition(topic, index)
        return NO_NODE if partition is None else partition.leader

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; None when no known topic has it."""
        return self._names_by_id.get(topic_id)

    @cached_property
    def _names_by_id(self) -> dict[UUID, str]:
        return {topic.id: topic.name for topic in self.topics.values() if topic.id != NO_ID}

    def updated(self, response: MetadataResponse, now: float, *, kept: Collection[str] = ()) -> Snapshot:
        """Return the snapshot after `response`. Topics that it lacks are dropped, except those in `kept`."""
        for taken in self.updating(response, now, kept=kept):
            if taken is not None:
                return taken
        raise AssertionError("the last step brings the snapshot")

    def updating(
        self, response: MetadataResponse, now: float, *, kept: Collection[str] = ()
    ) -> Iterator[Snapshot | None]:
        """Do the same in steps, so that the loop is not blocked: None after every STEP to 2 * STEP partitions, then
        the snapshot.

        The response is consumed: each topic is freed when it was read. So the number of objects does not grow, and the
        garbage collector, which counts them, has no reason to run over all of them.
        """
        brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        topics: dict[str, Topic] = {name: self.topics[name] for name in kept if name in self.topics}
        nodes: _Nodes = {}
        leaders: set[int] = set(self.brokers) if topics else set()  # with those of kept topics
        unsettled: set[str] = set(self.unsettled & topics.keys())
        done = 0
        response.topics.reverse()
        while response.topics:
            topic = response.topics.pop()
            if topic.name is None:  # v12 and later, after a request by an id that no longer exists
                continue
            old = self.topics.get(topic.name)
            before = old.partitions if old is not None and old.id in (topic.topic_id, NO_ID) else ()
            received: Sequence[MetadataResponse.Topic.Partition | None] = topic.partitions
            partitions: list[Partition] = []
            led: set[int] = set()
            start, is_sorted = 0, False
            while start == 0 or start < len(received):
                step = received[start : start + STEP]
                if not is_sorted and not _is_in_place(step, start):
                    received, is_sorted = _in_place(topic.partitions), True
                    continue
                for index, one in enumerate(step, start):
                    known = before[index] if index < len(before) else None
                    partitions.append(_newer(known, index, one, nodes, now))
                led.update(partition.leader for partition in partitions[start:])
                done += 1 + len(partitions) - start
                start += STEP
                if done >= STEP:
                    yield None
                    done = 0
            fields = topic.name, topic.topic_id, tuple(partitions), topic.is_internal, topic.error_code
            # The same object where nothing is new, so that a comparison is cheap.
            topics[topic.name] = old if old is not None and tuple.__eq__(old, fields) else Topic._make(fields)
            leaders |= led
            if NO_NODE in led or topic.error_code in _TRANSIENT:
                unsettled.add(topic.name)
        for node in leaders - brokers.keys() & self.brokers.keys():
            brokers[node] = self.brokers[node]  # the leader by a newer epoch than this response knows
        yield Snapshot(
            MappingProxyType(brokers), MappingProxyType(topics), response.controller_id, response.cluster_id,
            self.at if kept else now, frozenset(unsettled),
        )  # fmt: skip

    def forgotten(self, now: float) -> Snapshot:
        """Return the snapshot without brokers and leaders. Topics keep their ids and leader epochs (KIP-899)."""
        topics = {
            name: topic._replace(
                partitions=tuple(
                    partition._replace(
                        leader=NO_NODE,
                        leaderless_since=now if partition.leaderless_since is None else partition.leaderless_since,
                    )
                    for partition in topic.partitions
                )
            )
            for name, topic in self.topics.items()
        }
        return Snapshot(topics=MappingProxyType(topics), at=self.at, unsettled=frozenset(topics))

    def with_leaders(
        self, hints: Iterable[CurrentLeader], endpoints: Iterable[Broker]
    ) -> tuple[Snapshot, frozenset[tuple[str, int]]]:
        """Return the snapshot after hints, and the partitions whose leader is new.

        News are a higher leader epoch, of the same topic (not one created again under its name), and a leader whose
        address is known. A broker that is known keeps its address: only a MetadataResponse says that it moved.
        """
        brokers = {**{broker.id: broker for broker in endpoints}, **self.brokers}
        led: dict[str, dict[int, Partition]] = {}
        for hint in hints:
            topic, known = self.topics.get(hint.topic), self.partition(hint.topic, hint.partition)
            if topic is None or known is None or topic.id != hint.topic_id or hint.leader not in brokers:
                continue
            if hint.leader_epoch > known.leader_epoch:
                moved = known._replace(
                    leader=hint.leader, leader_epoch=hint.leader_epoch, error_code=0, leaderless_since=None
                )
                led.setdefault(hint.topic, {})[hint.partition] = moved
        if not led:
            return self, frozenset()
        needed = {partition.leader for partitions in led.values() for partition in partitions.values()}
        topics = dict(self.topics)
        for name, moves in led.items():
            partitions = tuple(moves.get(partition.index, partition) for partition in topics[name].partitions)
            topics[name] = topics[name]._replace(partitions=partitions)
        kept = {node: broker for node, broker in brokers.items() if node in self.brokers or node in needed}
        learnt = replace(self, brokers=MappingProxyType(kept), topics=MappingProxyType(topics))
        return learnt, frozenset((name, index) for name, moves in led.items() for index in moves)


def _is_in_place(step: Sequence[MetadataResponse.Topic.Partition | None], start: int) -> bool:
    """Return whether these partitions have the indexes from `start` on, as nearly every response has them."""
    return all(one is not None and one.partition_index == index for index, one in enumerate(step, start))


def _in_place(
    received: Sequence[MetadataResponse.Topic.Partition],
) -> Sequence[MetadataResponse.Topic.Partition | None]:
    """Return the partitions so that partition n has index n.

    A broker that leaves a partition out (0.8.2 does, for one that is being created) gets None for it, so that partition
    2 is never found in place 1.
    """
    by_index = {partition.partition_index: partition for partition in received}
    count_max = len(received) + MISSING_MAX
    return [by_index.get(index) for index in range(max(index for index in [*by_index, -1] if index < count_max) + 1)]


# Lists of nodes, as the partitions share them: most are one of few. Tuples of their own that last, three a partition,
# would make the garbage collector look through all of them again and again.
_Nodes = dict[tuple[int, ...], tuple[int, ...]]


def _newer(
    known: Partition | None, index: int, received: MetadataResponse.Topic.Partition | None, nodes: _Nodes, now: float
) -> Partition:
    """Return the newer of the known and the received state of a partition.

    That is the known object where both are equal, as in nearly every refresh.
    """
    if received is None:
        newer = Partition(index, NO_NODE, -1, (), (), (), ErrorCode.LEADER_NOT_AVAILABLE)
    else:
        if known is not None and -1 < received.leader_epoch < known.leader_epoch:
            return known
        replicas, isr = tuple(received.replica_nodes), tuple(received.isr_nodes)
        offline = tuple(received.offline_replicas)
        fields = index, received.leader_id, received.leader_epoch, replicas, isr, offline, received.error_code, None
        if known is not None and received.leader_id != NO_NODE and tuple.__eq__(known, fields):
            return known
        newer = Partition(
            index, received.leader_id, received.leader_epoch, nodes.setdefault(replicas, replicas),
            nodes.setdefault(isr, isr), nodes.setdefault(offline, offline), received.error_code,
        )  # fmt: skip
    if newer.leader != NO_NODE:
        return newer
    since = known.leaderless_since if known is not None else None
    return newer._replace(leaderless_since=now if since is None else since)


class MetadataStatus(NamedTuple):
    """Whether metadata is being requested, or why and when it will be. Times are the loop's.

    request_node the node that a request was sent to, at `requested_at`; None while none is in flight
    next_at      when the next request may be sent, if a broker is ready
    reason       why one is needed; None while none is
    last_error   the error of the last request, if it failed
    responder    the broker that responded last, as errors name it, and the version of its response
    """

    request_node: int | None
    requested_at: float
    next_at: float
    reason: str | None
    last_error: KwireError | None
    responder: tuple[str | None, int | None] = (None, None)

    @property
    def source(self) -> dict[str, Any]:
        """Return the place of an error that the metadata has, for `KwireError.where`."""
        return {"broker": self.responder[0], "api": "Metadata", "version": self.responder[1]}


class MetadataUpdater:
    """Decides when to request metadata, and keeps the newest `snapshot`. A state machine without I/O.

    A request is due when a topic is new, a partition is in error, a caller wants one, or the snapshot is old. One is in
    flight at a time. After a failure, or a response with leaderless partitions, the next one waits for its back-off, so
    that an election does not cause a storm of requests.

    `due_at` is the time of the next request and `request(version)` makes it. Its result goes to `handle_response`,
    which `continue_update` continues, or to `failed`.
    """

    def __init__(self, *, max_age_ms: int, backoff: Backoff, random: Random, rebootstrap_after_ms: float = inf) -> None:
        self.snapshot = Snapshot()
        self.rebootstrap_at = inf  # a client that has metadata, and then gets none for so long, begins again
        self._rebootstrap_after = rebootstrap_after_ms / 1000
        self.reason: str | None = "first"
        self.due_at = 0.0  # when the next request may be sent; infinite while one is in flight
        self._max_age = max_age_ms / 1000
        self._backoff = backoff
        self._random = random
        self.topics: frozenset[str] = frozenset()  # that are needed
        self._requested: frozenset[str] = frozenset()  # that the snapshot has, or will have after the response
        self._named: frozenset[str] = frozenset()  # in the last request
        self._is_whole = True  # whether those were all topics that are needed
        self._creatable: set[str] = set()  # needed topics that brokers may create, not seen yet
        self._to_create: set[str] = set()  # those of them that the next request names
        self._in_flight = False
        self._request_node, self._requested_at = NO_NODE, 0.0
        self._last_error: KwireError | None = None
        self._responder: tuple[str | None, int | None] = (None, None)
        self._attempts = 0  # requests in a row without the topics that are needed
        self._not_before = 0.0
        self._received_at = 0.0
        self._refreshed_at = 0.0  # when all needed topics were requested
        self.update_steps: Iterator[Snapshot | None] | None = None  # the rest of a response that is being applied
        self._leaders_meanwhile: list[tuple[tuple[CurrentLeader, ...], tuple[Broker, ...]]] = []  # during the update

    def set_topics(self, topics: Collection[str]) -> None:
        """Set the topics that are needed from now on. A new one makes a request due."""
        if topics == self.topics:  # a set, or the keys of a dict
            return
        wanted = frozenset(topics)
        if wanted == self.topics:
            return
        if not wanted <= self.topics:
            new = wanted - self.topics - self._to_create
            if new:
                self.request_refresh(f"topics {', '.join(sorted(new)[:3])} are new")
            if not wanted <= self._requested:
                self._not_before = 0.0  # a new topic does not wait for the back-off of an old one
                self._plan()
        self.topics = wanted
        self._creatable &= wanted
        self._to_create &= wanted

    def allow_creation(self, topic: str) -> None:
        """Let the brokers create a topic that is needed, or soon will be, until it was seen once."""
        if topic in self._creatable or self._is_there(topic):
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
        node = self._request_node if self._in_flight else None
        reason = self.reason
        if reason is None and self._to_create:
            reason = f"topics {', '.join(sorted(self._to_create)[:3])} are new"
        return MetadataStatus(node, self._requested_at, self._not_before, reason, self._last_error, self._responder)

    def attempt(self, now: float) -> None:
        """Note that metadata is needed, whether or not a broker is ready for the request."""
        if self.rebootstrap_at == inf and self.snapshot.brokers:
            self.rebootstrap_at = now + self._rebootstrap_after

    def rebootstrap(self, now: float, reason: str) -> None:
        """Forget brokers and leaders, and need new metadata. What a request in flight brings must not come here."""
        self.snapshot = self.snapshot.forgotten(now)
        self.rebootstrap_at = inf
        self.update_steps = None
        self._leaders_meanwhile.clear()
        self._in_flight = False
        self._to_create |= self._creatable & self._named
        self.request_refresh(reason)
        self._plan()

    def start(self, node: int = NO_NODE, now: float = 0.0) -> None:
        """Note that a request is being sent: for the topics to create, if any, else for all that are needed."""
        assert not self._in_flight
        self.attempt(now)
        self._in_flight = True
        self._request_node, self._requested_at = node, now
        new = self.topics & self._to_create
        self._to_create.clear()
        if new:
            self._named = new
        else:
            self._named = self.topics
        self._is_whole = self._named == self.topics
        if self._is_whole:
            self._requested = self._named
            self.reason = None
        else:
            self._requested |= self._named
        self._plan()

    def request(self, version: int) -> MetadataRequest:
        """Return the request. Before v1 an empty list means all topics; then a client without topics gets all."""
        if ALL_TOPICS in self._named:
            return MetadataRequest(
                topics=None if version >= 1 else [], **({"allow_auto_topic_creation": False} if version >= 4 else {})
            )
        topics = [MetadataRequest.Topic(name=name) for name in sorted(self._named)]
        if version < 4:
            return MetadataRequest(topics=topics)
        may_create = bool(self._named) and self._named <= self._creatable
        return MetadataRequest(topics=topics, allow_auto_topic_creation=may_create)

    def handle_response(
        self, response: MetadataResponse, now: float, responder: tuple[str | None, int | None] = (None, None)
    ) -> bool:
        """Begin to apply a response; return whether that is done. If not, call `continue_update` until it is."""
        self._responder = responder
        self._last_error = None
        if self._is_whole:
            self._refreshed_at = now
        wanted = self.snapshot.topics.keys() if ALL_TOPICS in self.topics else self.topics
        kept = () if self._is_whole else wanted - self._named
        self.update_steps = self.snapshot.updating(response, now, kept=kept)
        self._received_at = now
        return self.continue_update()

    def continue_update(self) -> bool:
        """Apply the next part of the response; return whether it was the last, so that `snapshot` is new."""
        assert self.update_steps is not None
        taken = next(self.update_steps)
        if taken is None:
            return False
        self.update_steps = None
        self._in_flight = False
        self.rebootstrap_at = inf
        self.snapshot = taken
        for received in self._leaders_meanwhile:
            self.update_leaders(*received)
        self._leaders_meanwhile.clear()
        now = self._received_at
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
        if not self.topics <= self._requested:  # more topics were needed while the request was in flight
            self.request_refresh("topics became wanted")
            is_more_wanted = True
        if is_more_wanted:
            self._not_before = now
        self._plan()
        return True

    def update_leaders(self, hints: Iterable[CurrentLeader], endpoints: Iterable[Broker]) -> frozenset[tuple[str, int]]:
        """Apply leaders that brokers named beside an error; return the partitions whose leader is new."""
        received = tuple(hints), tuple(endpoints)
        self.snapshot, news = self.snapshot.with_leaders(*received)
        if news and self.update_steps is not None:
            self._leaders_meanwhile.append(received)  # the response that is being applied may be older
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
        """Return the reason for another request, with back-off, if a topic or a leader is still missing."""
        wanted = (self._requested & self.topics) - self._to_create  # those have a request of their own
        wanted -= {ALL_TOPICS}
        for name in sorted(wanted & self.snapshot.unsettled | wanted - self.snapshot.topics.keys()):
            topic = self.snapshot.topics.get(name)
            if topic is None or topic.error_code:
                return f"topic {name} is not known yet"
            for partition in topic.partitions:
                if partition.leader == NO_NODE:
                    return f"topic {name} partition {partition.index} has no leader"
        return None
