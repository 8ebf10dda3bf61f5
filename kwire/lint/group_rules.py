"""Rules G01 to G10: groups."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

from kwire.consumer.assignors.protocol import parse_assignment, parse_subscription
from kwire.errors import KwireError
from kwire.lint.rule import Level, PerKey, Rule, rule, thresholds
from kwire.lint.world import Seen
from kwire.protocol import ApiKey

_GROUP_APIS = (
    ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT, ApiKey.CONSUMER_GROUP_HEARTBEAT,
)  # fmt: skip
_ZOMBIE = (
    "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID", "FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH",
)  # fmt: skip
_CONSUMER = "consumer"
# Software that has the consumer protocol of KIP-848, and since which version.
_HAS_848 = {"apache-kafka-java": (4, 0), "librdkafka": (2, 12), "confluent-kafka-python": (2, 12), "kwire": (0, 1)}


@rule("G01", "rebalance-loop", Level.ERROR)
class RebalanceLoop(Rule):
    """A group begins a new generation again and again.

    Members stop and start over; nobody works in the meantime. Members time out, or keep joining and leaving.

    Fix: look at what the members do between two polls, and at session.timeout.ms; use static members for restarts."""

    apis = (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT)
    limits = thresholds(generations=5, seconds=300)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._begun: PerKey[str, deque[tuple[float, int]]] = PerKey(deque)

    def see(self, seen: Seen) -> None:
        if seen.response is None or seen.response.error_code or seen.request is None:
            return
        number = seen.response.generation_id if seen.key == ApiKey.JOIN_GROUP else seen.response.member_epoch
        begun = self._begun[seen.request.group_id]
        if number <= 0 or (begun and number <= begun[-1][1]):
            return
        begun.append((seen.at, number))
        while len(begun) > self.limit["generations"]:
            begun.popleft()
        if len(begun) >= self.limit["generations"] and seen.at - begun[0][0] <= self.limit["seconds"]:
            text = f"{len(begun)} generations in {seen.at - begun[0][0]:.0f} s, now {number}"
            self.report(seen.request.group_id, text, seen)


@rule("G02", "session-timeout-low", Level.WARN)
class SessionTimeoutLow(Rule):
    """A member's session timeout is short.

    A pause of the garbage collector, or of the network, removes it from its group.

    Fix: leave session.timeout.ms at 45 s."""

    apis = (ApiKey.JOIN_GROUP,)
    limits = thresholds(ms=10_000)

    def see(self, seen: Seen) -> None:
        if seen.request is not None and seen.request.session_timeout_ms < self.limit["ms"]:
            text = f"session.timeout.ms is {seen.request.session_timeout_ms} in group {seen.request.group_id}"
            self.report(seen.client.key, text, seen)


@rule("G03", "mixed-assignors", Level.WARN)
class MixedAssignors(Rule):
    """Members of a group offer different assignors.

    The coordinator takes one that all have; with none in common, new members are refused.

    Fix: give all members the same partition.assignment.strategy, or finish the rolling change."""

    apis = (ApiKey.JOIN_GROUP,)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._offers: PerKey[str, dict[str, tuple[str, ...]]] = PerKey(dict)  # group -> member -> names

    def see(self, seen: Seen) -> None:
        if seen.request is None or seen.response is None or seen.request.protocol_type != _CONSUMER:
            return
        member = seen.response.member_id or seen.request.member_id
        names = tuple(one.name for one in seen.request.protocols)
        offers = self._offers[seen.request.group_id]
        if len(offers) < 1_000:
            offers[member] = names
        kinds = sorted(set(offers.values()))
        if len(kinds) > 1:
            text = "members offer " + " or ".join("+".join(kind) for kind in kinds[:3])
            self.report(seen.request.group_id, text, seen)


@rule("G04", "eager", Level.INFO)
class Eager(Rule):
    """A member has no cooperative assignor.

    At each rebalance all members give up all partitions, and work stops.

    Fix: use cooperative-sticky, or the consumer protocol of KIP-848."""

    apis = (ApiKey.JOIN_GROUP,)

    def see(self, seen: Seen) -> None:
        if seen.request is None or seen.request.protocol_type != _CONSUMER:
            return
        names = [one.name for one in seen.request.protocols]
        if names and not any("cooperative" in name for name in names):
            self.report(seen.client.key, f"offers {', '.join(names)} only", seen)


@rule("G05", "slow-rebalance", Level.WARN)
class SlowRebalance(Rule):
    """A JoinGroup waits long for the other members.

    One of them works on its records and does not come back; all others wait for it. The first generation of a group
    does not count, since the coordinator waits for members then (group.initial.rebalance.delay.ms).

    Fix: find the member that joins last; lower max.poll.records there."""

    apis = (ApiKey.JOIN_GROUP,)
    limits = thresholds(ms=3_000)

    def see(self, seen: Seen) -> None:
        if seen.response is None or (seen.latency_ms or 0) <= self.limit["ms"] or seen.response.generation_id <= 1:
            return
        text = f"JoinGroup waited {(seen.latency_ms or 0) / 1000:.1f} s for generation {seen.response.generation_id}"
        self.report(seen.request.group_id if seen.request else seen.client.key, text, seen)


@rule("G06", "no-leave-group", Level.WARN)
class NoLeaveGroup(Rule):
    """A member's connection ends, and it did not leave its group.

    Its partitions stay unread until the session timeout is over.

    Fix: close the consumer before the program ends, also at a signal."""

    apis = (
        ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SYNC_GROUP,
    )  # fmt: skip

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._last: PerKey[tuple[str, str], list[Seen]] = PerKey(list)

    def see(self, seen: Seen) -> None:
        request = seen.request
        if request is None:
            return
        if seen.key == ApiKey.LEAVE_GROUP:
            members = [request.member_id, *(one.member_id for one in request.members)]
            for member in members:
                self._last.pop((request.group_id, member), None)
            return
        member = request.member_id or getattr(seen.response, "member_id", "") or ""
        if getattr(request, "group_instance_id", None) or getattr(request, "instance_id", None) or not member:
            return
        if getattr(request, "member_epoch", 0) < 0 or seen.errors:
            self._last.pop((request.group_id, member), None)
        else:
            self._last[request.group_id, member][:] = [seen]

    def end(self) -> None:
        for (group, member), (seen, *_) in self._last.items():
            ended = self.world.tcp_of(seen)
            if ended is None or ended.closed_at is None or ended.closed_by != "client":
                continue
            # The member may go on by another connection.
            text = f"member {member} of {group} closed its connection without leaving"
            self.report(seen.client.key, text, seen, packets=[ended.closed_packet])


@rule("G07", "zombie-member", Level.ERROR)
class ZombieMember(Rule):
    """A member works on with a generation or an id that its group has given up.

    It was removed while it worked; its commits fail, and another member reads the same records.

    Fix: make the work between two polls shorter than max.poll.interval.ms; give static members distinct ids."""

    apis = (*_GROUP_APIS, ApiKey.TXN_OFFSET_COMMIT)

    def see(self, seen: Seen) -> None:
        names = [name for name in _ZOMBIE if seen.errors[name]]
        if names and not (seen.key == ApiKey.JOIN_GROUP and "UNKNOWN_MEMBER_ID" in names):
            self.report(seen.client.key, f"{names[0]} to {seen.exchange.api_name}", seen)


@rule("G08", "heartbeat-gap", Level.WARN)
class HeartbeatGap(Rule):
    """A member is silent for more than half its session timeout.

    It will be removed from its group if the pause is a little longer.

    Fix: leave heartbeat.interval.ms at a third of session.timeout.ms; look for pauses of the process."""

    apis = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
    limits = thresholds(share=0.5)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._timeouts: PerKey[tuple[str, str], float] = PerKey(lambda: self.world.assumed["session.timeout.ms"])
        self._last: PerKey[tuple[str, str], float] = PerKey(float)

    def see(self, seen: Seen) -> None:
        if seen.request is None:
            return
        member = seen.request.member_id or getattr(seen.response, "member_id", "") or ""
        key = seen.request.group_id, member
        if seen.key == ApiKey.JOIN_GROUP:
            self._timeouts[key] = seen.request.session_timeout_ms
        last, timeout = self._last.get(key), self._timeouts[key] / 1000
        if last is not None and seen.at - last > self.limit["share"] * timeout:
            text = f"no sign of {member or 'the member'} for {seen.at - last:.1f} s, with a session of {timeout:g} s"
            self.report(seen.client.key, text, seen)
        self._last[key] = max(self._last[key], seen.ended_at)


@rule("G09", "unbalanced-assignment", Level.WARN)
class UnbalancedAssignment(Rule):
    """Members with the same subscription have very different numbers of partitions, or none.

    The one with the most decides how fast the group is; idle members do nothing.

    Fix: use another assignor, add partitions, or stop idle members."""

    apis = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
    limits = thresholds(apart=2)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._topics: PerKey[tuple[str, str], tuple[str, ...]] = PerKey(tuple)

    def see(self, seen: Seen) -> None:
        if seen.request is None or seen.response is None:
            return
        group = seen.request.group_id
        if seen.key == ApiKey.JOIN_GROUP:
            for member in seen.response.members:
                with suppress(KwireError):
                    subscription = parse_subscription(bytes(member.metadata))
                    self._topics[group, member.member_id] = tuple(sorted(subscription.topics))
            return
        counts: dict[tuple[str, ...], dict[str, int]] = {}
        for one in seen.request.assignments:
            with suppress(KwireError):
                assigned = parse_assignment(bytes(one.assignment))
                kind = self._topics.get((group, one.member_id), ())
                counts.setdefault(kind, {})[one.member_id] = _count(assigned)
        for kind, found in counts.items():
            idle = [member for member, count in found.items() if not count]
            if kind and len(found) > 1 and (idle or max(found.values()) - min(found.values()) > self.limit["apart"]):
                shown = ", ".join(map(str, sorted(found.values(), reverse=True)))
                self.report(group, f"members have {shown} partitions", seen)


def _count(assigned: Any) -> int:
    partitions = getattr(assigned, "partitions", assigned)
    if isinstance(partitions, dict):
        return sum(len(numbers) for numbers in partitions.values())
    return len(list(partitions))


@rule("G10", "classic-on-848", Level.INFO)
class ClassicOn848(Rule):
    """A member uses the classic protocol, though broker and client have the one of KIP-848.

    Rebalances stop the whole group; the new protocol has no such barrier.

    Fix: set group.protocol=consumer."""

    apis = (ApiKey.JOIN_GROUP,)

    def see(self, seen: Seen) -> None:
        if ApiKey.CONSUMER_GROUP_HEARTBEAT not in self.world.versions.get(seen.broker, {}):
            return
        name, _, version = seen.client.software.partition(" ")
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if name in _HAS_848 and numbers >= _HAS_848[name]:
            self.report(seen.client.key, f"{seen.client.software} joins by JoinGroup", seen)
