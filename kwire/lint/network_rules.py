"""Rules N01 to N09: metadata and connections."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

from kwire.lint.contents import fetches, produced, topic_name
from kwire.lint.rule import KEYS_MAX, Level, PerKey, Rule, Window, rule, thresholds
from kwire.lint.tcp_facts import TcpConnection
from kwire.lint.world import Seen
from kwire.protocol import ApiKey

_UNKNOWN = ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")
_CREATION_FLAG_SINCE = 4  # Metadata


@rule("N01", "metadata-storm", Level.WARN)
class MetadataStorm(Rule):
    """A client asks for metadata very often.

    It looks for a topic or a leader that is not there, or makes a client for each task.

    Fix: look at the errors in the responses; share one client."""

    apis = (ApiKey.METADATA,)
    limits = thresholds(requests=30, seconds=10)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._windows: PerKey[str, Window] = PerKey(Window)

    def see(self, seen: Seen) -> None:
        count, seconds = self.limit["requests"], self.limit["seconds"]
        if self._windows[seen.client.key].add(seen.at, count, seconds):
            self.report(seen.client.key, f"{count:g} Metadata in {seconds:g} s", seen)


@rule("N02", "metadata-of-all", Level.INFO)
class MetadataOfAll(Rule):
    """A client asks for the metadata of all topics.

    On a cluster with thousands of topics each response is megabytes.

    Fix: name the topics; subscribe by pattern only where it is needed."""

    apis = (ApiKey.METADATA,)
    limits = thresholds(requests=5)

    def see(self, seen: Seen) -> None:
        if seen.request is None or (seen.request.topics is not None if seen.version else bool(seen.request.topics)):
            return
        self.counts[seen.client.key] += 1
        if self.counts[seen.client.key] >= self.limit["requests"]:
            self.report(seen.client.key, f"{self.counts[seen.client.key]} Metadata of all topics", seen)


@rule("N03", "unknown-topic-loop", Level.ERROR)
class UnknownTopicLoop(Rule):
    """A client keeps asking for a topic that does not exist.

    A typing error, a topic that was deleted, or one that this user may not describe.

    Fix: create the topic, correct its name, or grant Describe."""

    apis = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS)
    limits = thresholds(errors=5)

    def see(self, seen: Seen) -> None:
        if not any(seen.errors[name] for name in _UNKNOWN):
            return
        names = ["a topic"]
        if seen.key == ApiKey.METADATA:
            names = [topic_name(seen.exchange, one) for one in seen.response.topics if one.error_code]
        for name in names:
            subject = f"{seen.client.key}: {name}"
            self.counts[subject] += 1
            if self.counts[subject] >= self.limit["errors"]:
                self.report(subject, f"{name} is unknown, {self.counts[subject]} times", seen)


@rule("N04", "auto-create", Level.WARN)
class AutoCreate(Rule):
    """A client's request for metadata creates a topic.

    It gets the broker's defaults, mostly one partition and one replica; a typing error makes a topic, too.

    Fix: create topics on purpose; set allow.auto.create.topics=false, or auto.create.topics.enable=false."""

    apis = (ApiKey.METADATA,)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._missing: set[str] = set()

    def see(self, seen: Seen) -> None:
        if seen.request is None or seen.response is None or not seen.request.topics:
            return
        allows = seen.version < _CREATION_FLAG_SINCE or seen.request.allow_auto_topic_creation
        if not allows:
            return
        for topic in seen.response.topics:
            name = topic_name(seen.exchange, topic)
            if topic.error_code == 5 or (not topic.error_code and name in self._missing):  # LEADER_NOT_AVAILABLE
                self._missing.discard(name)
                self.report(f"{seen.client.key}: {name}", f"asking for {name} creates it", seen)
            elif topic.error_code == 3 and len(self._missing) < 1_000:  # UNKNOWN_TOPIC_OR_PARTITION
                self._missing.add(name)


@rule("N05", "connection-churn", Level.WARN)
class ConnectionChurn(Rule):
    """A program opens connection after connection to a broker, each for a short time.

    Each costs a handshake, TLS and SASL on both sides; brokers run out of sockets. Connections that are open at the
    same time count once: a client may have several to each broker.

    Fix: keep one client and share it."""

    limits = thresholds(connections=15, seconds=60, life=10)

    def end(self) -> None:
        by_program: PerKey[str, list[Any]] = PerKey(list)
        for one in self.world.tcp:
            client = self.world.program_of(one)
            if one.closed_at is not None and one.is_answered and client is not None:
                by_program[client.program].append(one)
        for program, found in by_program.items():
            life = median(one.closed_at - one.began_at for one in found)
            if life < self.limit["life"] and self._follow_closely(found):
                text = f"{len(found)} connections, open for {life:.1f} s in the median"
                packets = [one.packet for one in found[:3]]
                self.report(program, text, packets=packets, at_ns=round(found[0].began_at * 1e9), client=program)

    def _follow_closely(self, closed: list[TcpConnection]) -> bool:
        """Return whether many connections to one broker followed one another within the time of the limit."""
        ends: dict[str, float] = {}
        windows: PerKey[str, Window] = PerKey(Window)
        for end, began, broker in sorted((one.closed_at or 0.0, one.began_at, one.broker) for one in closed):
            if began < ends.get(broker, 0.0):
                continue
            ends[broker] = end
            if windows[broker].add(began, self.limit["connections"], self.limit["seconds"]):
                return True
        return False


@rule("N06", "unanswered", Level.WARN)
class Unanswered(Rule):
    """A connection ends with requests that have no answer.

    Nobody knows whether they were carried out. It matters who closed: a client that gave up, or a broker that did not
    like a request, or restarted.

    Fix: raise request.timeout.ms if the client closed; read the broker's log if the broker did."""

    limits = thresholds(seconds=1)  # a client that closes may leave what it has just asked

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: list[Seen] = []

    def see(self, seen: Seen) -> None:
        frame = seen.exchange.pair.frame
        # A client that closes does not miss the response to a fetch that waits.
        is_missed = seen.exchange.response is None and frame.expects_response
        if is_missed and seen.key not in (ApiKey.FETCH, ApiKey.SHARE_FETCH) and len(self._open) < KEYS_MAX:
            self._open.append(seen)

    def end(self) -> None:
        for seen in self._open:
            ended = self.world.tcp_of(seen)
            if ended is None or ended.closed_at is None:
                continue
            waited = ended.closed_at - seen.at
            if ended.closed_by == "broker" or waited > self.limit["seconds"]:
                text = f"{seen.exchange.api_name} got no answer; the {ended.closed_by} closed ({ended.how})"
                self.report(f"{seen.client.key} > {seen.broker}", text, seen, packets=[ended.closed_packet])


@rule("N07", "bootstrap-only", Level.WARN)
class BootstrapOnly(Rule):
    """All traffic of a client goes to one address, though the leaders are several brokers.

    A load balancer or a proxy stands before them: requests go to brokers that are not the leader.

    Fix: give each broker an address of its own in advertised.listeners, through the balancer if there must be one."""

    apis = (ApiKey.PRODUCE, ApiKey.FETCH)
    limits = thresholds(requests=50)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._addresses: PerKey[str, Counter[str]] = PerKey(Counter)
        self._leaders: PerKey[str, set[int]] = PerKey(set)
        self._last: PerKey[str, list[Seen]] = PerKey(list)

    def see(self, seen: Seen) -> None:
        label = seen.client.key
        self._addresses[label][seen.broker] += 1
        self._last[label][:] = [seen]
        for one in produced(seen.exchange) if seen.key == ApiKey.PRODUCE else fetches(seen.exchange):
            leader, _ = self.world.leaders.get((label, one.topic, one.partition), (-1, 0.0))
            if leader >= 0:
                self._leaders[label].add(leader)

    def end(self) -> None:
        for label, addresses in self._addresses.items():
            leaders = self._leaders[label]
            if len(addresses) == 1 and len(leaders) > 1 and addresses.total() >= self.limit["requests"]:
                text = f"{addresses.total()} requests for {len(leaders)} leaders went to {next(iter(addresses))}"
                self.report(label, text, self._last[label][0])


@rule("N08", "unreachable-broker", Level.ERROR)
class UnreachableBroker(Rule):
    """A client tries to connect to a broker that does not answer.

    The address that the broker advertises is not reachable from this client: another network, a firewall, or a broker
    that is down.

    Fix: correct advertised.listeners, or open the way; `kwire doctor` says which."""

    def end(self) -> None:
        kafka = {seen_at.broker for seen_at in self.world.tcp if seen_at.is_answered}
        advertised = {str(node.port) for node in self.world.nodes.values()}
        for one in self.world.tcp:
            port = one.broker.rpartition(":")[2]
            if not one.is_answered and (one.broker in kafka or port in advertised):
                why = "was refused" if one.how == "RST" else "got no answer"
                text = f"a connection to {one.broker} {why}"
                client = self.world.program_of(one)
                label = client.key if client is not None else ""
                self.report(
                    f"{one.ip} > {one.broker}",
                    text,
                    packets=[one.packet],
                    at_ns=round(one.began_at * 1e9),
                    client=label,
                )


@rule("N09", "idle-closed", Level.INFO)
class IdleClosed(Rule):
    """A broker closes a connection that was idle for its connections.max.idle.ms (10 minutes).

    A client that does not close first meets it as an error at its next request.

    Fix: set connections.max.idle.ms of the client below that of the brokers."""

    limits = thresholds(least_seconds=530, most_seconds=630)

    def end(self) -> None:
        for one in self.world.tcp:
            if one.closed_by != "broker" or one.closed_at is None:
                continue
            idle = one.closed_at - one.last_data_at
            client = self.world.program_of(one)
            if client is not None and self.limit["least_seconds"] <= idle <= self.limit["most_seconds"]:
                text = f"{one.broker} closed a connection that was idle for {idle:.0f} s"
                at_ns = round(one.closed_at * 1e9)
                self.report(client.key, text, packets=[one.closed_packet], at_ns=at_ns, client=client.key)
