"""Members of groups on virtual time, against a script or against the embedded cluster.

`MemberWorld` is one member with a caller that takes the steps of rebalances. A test takes its turns, reads its requests
and responds to them. `GroupCluster` runs many of them against the coordinators of `VirtualCluster`. Requests and
responses are encoded and decoded in their version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any
from uuid import UUID

from kwire.cluster import Backoff, PendingRequest, Snapshot, ToCoordinator
from kwire.consumer.assignors import make_assignors
from kwire.consumer.buffer import ClientError
from kwire.consumer.commits import CommitManager
from kwire.consumer.membership import GroupContext, GroupOptions, Membership, MemberState, PollTimer
from kwire.consumer.offsets import CommittedRequest, Offset
from kwire.consumer.rebalance import RebalanceStep
from kwire.consumer.subscription import Subscription
from kwire.errors import DisconnectedError, KwireError, RequestTimeoutError, UnsupportedVersionError
from kwire.protocol import Request, Response
from kwire.protocol.messages.metadata import MetadataRequest
from tests.broker.virtual_cluster import SentRequest, VirtualCluster
from tests.cluster.snapshots import snapshot
from tests.consumer.world import FakeView, Key

GROUP = "g"
IDS = {"t": UUID(int=1), "u": UUID(int=2)}
Results = Mapping[Key, KwireError | None]


class GroupView(FakeView):
    """Every coordinator is reachable and speaks the newest versions, unless a test says otherwise."""

    forgotten: int

    def forget_coordinator(self, route: ToCoordinator) -> None:
        self.forgotten = getattr(self, "forgotten", 0) + 1


class FakeFetcher:
    """Remembers what may be fetched, as the caller and the member say."""

    def __init__(self) -> None:
        self.fetching: set[Key] = set()
        self.stopped: set[Key] = set()

    def add(self, keys: Iterable[Key]) -> None:
        self.fetching.update(keys)
        self.stopped.difference_update(keys)

    def stop_fetching(self, keys: Iterable[Key]) -> None:
        self.stopped.update(keys)

    def remove(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.fetching.discard(key)
            self.stopped.discard(key)


@dataclass(eq=False)
class Sent:
    """A request of the member, and methods to respond to it."""

    world: MemberWorld
    call: PendingRequest
    version: int
    request: Any

    @property
    def name(self) -> str:
        return self.call.api.__name__.removesuffix("Request")

    def respond(self, response: Response) -> None:
        self.call.on_done(type(response).decode(response.encode(self.version), self.version), self.world.now)

    def fail(self, error: KwireError | None = None) -> None:
        self.call.on_done(error or DisconnectedError("cut", broker="1 at host-1:9092"), self.world.now)


@dataclass
class Caller:
    """The user's side: takes steps while `is_polling`, and checks that each partition is given and taken in turn."""

    world: MemberWorld
    is_polling: bool = True  # the gate is open
    processed: dict[Key, Offset] = field(default_factory=dict)  # to commit before the next revocation
    events: list[tuple[str, list[Key]]] = field(default_factory=list)
    owned: set[Key] = field(default_factory=set)
    errors: list[KwireError] = field(default_factory=list)
    items: list[RebalanceStep] = field(default_factory=list)

    def post(self, item: RebalanceStep | ClientError) -> None:
        if isinstance(item, ClientError):
            self.errors.append(item.error)
        else:
            self.items.append(item)

    def take(self) -> bool:
        """Take one step, if there is one and the gate is open."""
        if not self.items or not self.is_polling:
            return False
        step = self.items.pop(0)
        membership, keys = self.world.membership, set(step.partitions)
        if step.kind == "prepare":
            membership.prepared(step, {key: self.processed.pop(key) for key in list(self.processed)})
            return True
        if step.kind == "assign":
            assert not keys & self.owned, "assigned twice"
            self.owned |= keys
            self.world.fetcher.add(keys)
            self.events.append(("assigned", sorted(keys)))
        else:
            assert keys <= self.owned, "taken away without being assigned"
            self.owned -= keys
            self.events.append(("revoked" if step.kind == "revoke" else "lost", sorted(keys)))
        membership.step_done(step)
        return True

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


class MemberWorld:
    """A member of group "g". Topic "t" has 4 partitions, "u" has 2."""

    def __init__(
        self,
        protocol: str = "classic",
        *,
        topics: Any = ("t",),
        assignors: Any = ("cooperative-sticky",),
        seed: int = 1,
        auto_turn: bool = False,
        **options: Any,
    ) -> None:
        self.now = 100.0
        self.view = GroupView(snapshot({"t": [(1, 7)] * 4, "u": [(2, 7)] * 2}, ids=IDS))
        self.view.forgotten = 0
        self.versions: dict[type[Request[Any]], int] = {}
        self.options = GroupOptions(GROUP, protocol, assignors=tuple(make_assignors(list(assignors))), **options)  # type: ignore[arg-type]
        self.is_woken = False
        self.fetcher = FakeFetcher()
        self.caller = Caller(self)
        self.poll_timer = PollTimer()
        self.background: list[tuple[Callable[[], Any], Callable[[Any], object]]] = []
        self.is_background_slow = False
        backoff, random = Backoff(100, 1_000), Random(seed)
        self.commits = CommitManager(
            GROUP,
            instance_id=self.options.instance_id,
            unknown_topic_timeout_ms=5_000,
            backoff=backoff,
            random=random,
            wake=self._wake,
        )
        self.membership = Membership(
            GroupContext(
                self.options, self.fetcher, self.commits, self.caller.post, self.poll_timer, backoff, random,
                30_000, self._in_background, self._wake,
            )
        )  # fmt: skip
        self._has_left = False
        if topics:
            self.membership.subscribe(Subscription.of(topics if not isinstance(topics, tuple) else list(topics)))

    def _wake(self) -> None:
        self.is_woken = True

    def _in_background(self, function: Callable[[], Any], on_done: Callable[[Any], object]) -> None:
        self.background.append((function, on_done))

    def run_background(self) -> bool:
        """Run what waits for another thread; return whether there was any."""
        jobs, self.background = self.background, []
        for function, on_done in jobs:
            try:
                result = function()
            except Exception as error:
                result = error
            on_done(result)
        return bool(jobs)

    # -- turns

    def turn(self, seconds: float = 0.0) -> list[Sent]:
        """Advance the time, and take turns until nothing moves; return the requests."""
        self.now += seconds
        sent: list[Sent] = []
        for _ in range(1_000):
            self.is_woken = False
            if not self.is_background_slow:
                self.is_woken |= self.run_background()
            for machine in (self.membership, self.commits):
                for call in machine.turn(self.now, self.view):
                    made = self._made(call)
                    if made is not None:
                        sent.append(made)
            has_work = bool(self.background) and not self.is_background_slow
            if not self.caller.take() and not self.is_woken and not has_work:
                return sent
        raise AssertionError("turns without an end")

    def _made(self, call: PendingRequest) -> Sent | None:
        version = min(
            self.versions.get(call.api, call.api.VERSIONS[-1]), 1_000 if call.at_most is None else call.at_most
        )
        try:
            if version < 0:
                raise UnsupportedVersionError("not spoken here")
            request = call.build(version)
        except KwireError as error:
            call.on_done(error, self.now)
            self.is_woken = True
            return None
        return Sent(self, call, version, type(request).decode(request.encode(version), version))

    def turn_one(self, name: str, seconds: float = 0.0) -> Sent:
        """Take a turn, which must send this request and no other."""
        sent = self.turn(seconds)
        assert [one.name for one in sent] == [name]
        return sent[0]

    def deadline(self) -> float:
        times = [time for time in (self.membership.deadline(), self.commits.deadline()) if time is not None]
        return min((time for time in times if time > self.now), default=float("inf"))

    def until(self, name: str, limit: float = 60.0) -> Sent:
        """Advance from deadline to deadline until this request is sent; nothing else may be."""
        end = self.now + limit
        sent = self.turn()
        while not sent:
            deadline = self.deadline()
            assert deadline <= end, f"no {name} within {limit} s"
            sent = self.turn(deadline - self.now)
        assert [one.name for one in sent] == [name]
        return sent[0]

    # -- the user's calls

    def commit(self, offsets: Mapping[Key, int], *, retries: bool = True, timeout: float = 10.0, **more: Any) -> Commit:
        return Commit(self, {key: Offset(offset) for key, offset in offsets.items()}, retries, timeout, **more)

    def lookup(self, topic: str, partition: int, deadline: float = inf) -> Lookup:
        return Lookup(self, topic, partition, deadline)

    def leave(self, mode: Any = "default", until: float | None = None) -> None:
        def left() -> None:
            self._has_left = True

        self.membership.leave(mode, left, until)

    def poll(self) -> None:
        """Poll once: the gate is open, and the poll interval starts again."""
        self.poll_timer.poll_began()
        self.poll_timer.poll_ended(self.now)

    def is_in(self, state: MemberState) -> bool:
        return self.membership.member().state is state

    def has_left(self) -> bool:
        return self._has_left


class Commit:
    """A call of `commit` and its results."""

    def __init__(
        self, world: MemberWorld, offsets: Mapping[Key, Offset], retries: bool, timeout: float, **more: Any
    ) -> None:
        self.results: Results | None = None
        world.commits.commit(offsets, self._done, deadline=world.now + timeout, retries=retries, **more)

    def _done(self, results: Results) -> None:
        assert self.results is None, "resolved twice"
        self.results = dict(results)

    @property
    def error(self) -> KwireError | None:
        """The error of the only partition, or None."""
        assert self.results is not None, "not resolved"
        (error,) = self.results.values()
        return error


class Lookup:
    """A lookup of a committed offset and its result."""

    def __init__(self, world: MemberWorld, topic: str, partition: int, deadline: float = inf) -> None:
        self.results: list[Offset | KwireError | None] = []
        self.request = CommittedRequest(topic, partition, lambda result, now: self.results.append(result), deadline)
        world.commits.lookup(self.request)

    @property
    def result(self) -> Offset | KwireError | None:
        (result,) = self.results
        return result


class GroupCluster:
    """Members against the embedded cluster, from event to event on virtual time."""

    def __init__(self, **options: Any) -> None:
        self.cluster = VirtualCluster(**options)
        self.cluster.state.create_topic("t", 4)
        self.members: list[MemberWorld] = []
        self.cut: set[MemberWorld] = set()  # whose requests get lost
        self.hidden: set[str] = set()  # topics that the metadata lacks now
        self.log: list[tuple[float, MemberWorld, Any]] = []  # all requests that members sent
        self._pending: list[tuple[Sent, SentRequest | None, float]] = []
        self._refreshed: dict[int, float] = {}
        self._coordinators: dict[MemberWorld, int] = {}
        self.metadata_max_age = 300.0
        self._joined = 0

    @property
    def now(self) -> float:
        return self.cluster.now

    def join(self, protocol: str = "classic", *, polls: bool = True, **options: Any) -> MemberWorld:
        member = MemberWorld(protocol, seed=self._joined, **options)
        member.now = self.now
        member.view.snapshot = Snapshot()
        self.members.append(member)
        self._joined += 1
        self.refresh(member)
        if not polls:
            member.poll_timer.poll_ended(self.now)
        return member

    def stop(self, member: MemberWorld) -> None:
        """Let a member end without a word."""
        self.members.remove(member)
        self._pending = [entry for entry in self._pending if entry[0].world is not member]

    def refresh(self, member: MemberWorld) -> None:
        """Give a member the metadata of now."""
        response = self.cluster.request(self.cluster.state.live_nodes[0].id, MetadataRequest(topics=None))
        response.topics[:] = [topic for topic in response.topics if topic.name not in self.hidden]
        wanted = set(member.membership.topics()) | {"t", "u"}
        if "*" not in wanted:
            response.topics[:] = [topic for topic in response.topics if topic.name in wanted]
        # A refresh is newer than the one before also when no time has passed.
        at = max(self.now, member.view.snapshot.at + 1e-6)
        member.view.snapshot = member.view.snapshot.updated(response, at)
        member.view.refreshes.clear()
        self._refreshed[id(member)] = self.now

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> None:
        """Run for a time, or until a condition holds."""
        end = self.now + seconds
        for _ in range(200_000):
            if self._step():
                if until is not None and until():
                    return
                continue
            if until is not None and until():
                return
            times = [member.deadline() for member in self.members]
            times += [deadline for _, _, deadline in self._pending]
            times += [self._metadata_due(member) for member in self.members]
            times.append(self.cluster.state.timers.next_at)
            soonest = min(max(min(times), self.now + 1e-4), end)
            self.cluster.advance(soonest - self.now)
            if self.now >= end:
                assert until is None, "it never happened"
                return
        raise AssertionError("endless activity")

    def run_while(self, seconds: float, condition: Callable[[], bool]) -> bool:
        """Run for a time; return False at once when the condition no longer holds."""
        end = self.now + seconds
        while self.now < end:
            self.run(min(0.5, end - self.now))
            if not condition():
                return False
        return True

    def _metadata_due(self, member: MemberWorld) -> float:
        age = 0.1 if member.view.refreshes else self.metadata_max_age
        return self._refreshed[id(member)] + age

    def _step(self) -> bool:
        """Let all members take a turn, and deliver what has come; return whether anything moved."""
        moved = False
        for member in list(self.members):
            member.now = self.now
            if self.now >= self._metadata_due(member):
                self.refresh(member)
            for sent in member.turn():
                moved = True
                self._send(sent)
        pending, self._pending = self._pending, []
        for sent, reply, deadline in pending:
            is_cut = sent.world in self.cut
            if reply is not None and not reply.is_pending and not is_cut:
                moved = True
                sent.world.now = self.now
                sent.respond(reply.response)
            elif reply is None and not is_cut:
                moved = True
                sent.world.now = self.now
                sent.fail()  # what was sent while the link was cut
            elif self.now >= deadline:
                moved = True
                sent.world.now = self.now
                sent.fail(RequestTimeoutError("no response in time"))
            else:
                self._pending.append((sent, reply, deadline))
        return moved

    def _send(self, sent: Sent) -> None:
        self.log.append((self.now, sent.world, sent.request))
        timeout = (30_000 if sent.call.timeout_ms is None else sent.call.timeout_ms) / 1000
        reply = None
        world = sent.world
        if world not in self.cut:
            if world.view.forgotten or world not in self._coordinators:
                world.view.forgotten = 0
                self._coordinators[world] = self.cluster.coordinator(GROUP)
            node = self._coordinators[world]
            if node in {one.id for one in self.cluster.state.live_nodes}:
                reply = self.cluster.send(node, sent.request, sent.version)
            else:
                timeout = 0.001  # the connection is refused
        self._pending.append((sent, reply, self.now + timeout))

    # -- what is seen

    def requests(self, api: type[Request[Any]], since: float = 0.0) -> list[Any]:
        return [request for at, _, request in self.log if isinstance(request, api) and at >= since]

    def is_settled(self) -> bool:
        """Whether each partition has one owner, and all members are stable."""
        owned = [key for member in self.members for key in member.caller.owned]
        wanted = [key for member in self.members for key in member.membership._steps.owned]
        return (
            all(member.is_in(MemberState.STABLE) for member in self.members)
            and sorted(owned) == sorted(wanted)
            and len(set(owned)) == len(owned)
        )

    def owns_all(self, topics: Mapping[str, int]) -> bool:
        owned = sorted(key for member in self.members for key in member.caller.owned)
        return self.is_settled() and owned == sorted((topic, p) for topic, n in topics.items() for p in range(n))
