"""What all rules know: clients, the versions that brokers offer, leaders, and how connections ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

from kwire.capture import CapturedConnection, Exchange
from kwire.lint.contents import error_names, request_of, response_of, topic_name, transactional_id_of
from kwire.lint.rule import PerKey
from kwire.lint.tcp_facts import TcpConnection
from kwire.protocol import ApiKey

# Connections of one program to one address have ports near to each other: it opens them one soon after the other.
_PORTS_APART_MAX = 256
# A program that tells its group or transactional id opened its connections so many seconds before, or later.
_OPENED_BEFORE_MAX = 5.0
ASSUMED: Mapping[str, float] = {
    "max.poll.interval.ms": 300_000, "session.timeout.ms": 45_000, "transaction.timeout.ms": 60_000,
}  # fmt: skip


@dataclass(slots=True, eq=False)
class Client:
    """A program, as far as a capture tells one from another: address, software, client id, group, transactional id."""

    number: int
    ip: str
    software: str
    client_id: str
    ports: dict[str, list[int]] = field(default_factory=dict)  # by the broker's address: others say nothing
    opened: dict[int, tuple[CapturedConnection, float]] = field(default_factory=dict)  # by number: and when
    opened_last: float = 0.0
    group: str = ""
    transactional_id: str = ""

    @property
    def key(self) -> str:
        """Return what findings call it until the end, when more of its name is known: `World.named` has the names."""
        return f"#{self.number}"

    def differs(self, group: str, transactional_id: str) -> bool:
        """Return whether this client is known to have another group or transactional id."""
        has_other_group = bool(group and self.group and group != self.group)
        ids = transactional_id, self.transactional_id
        return has_other_group or (all(ids) and ids[0] != ids[1])

    def add(self, connection: CapturedConnection, at: float) -> None:
        """Note a connection that was seen first at this time."""
        if connection.number in self.opened:
            return
        self.opened[connection.number] = connection, at
        self.opened_last = max(self.opened_last, at)
        self.ports.setdefault(connection.broker, []).append(int(connection.client.rpartition(":")[2]))

    def may_have(self, broker: str, port: int) -> bool:
        """Return whether a connection may be this client's: its port is near, or it is the first to this broker."""
        ports = self.ports.get(broker)
        return ports is None or any(abs(port - other) <= _PORTS_APART_MAX for other in ports)

    @property
    def name(self) -> str:
        return self.client_id or self.ip

    @property
    def use(self) -> str:
        """Return the group or transactional id; empty if none is known."""
        return self.group or self.transactional_id

    @property
    def label(self) -> str:
        return f"{self.name} / {self.use}" if self.use else self.name

    @property
    def program(self) -> str:
        """Return the name of all clients of one program's kind."""
        return f"{self.client_id or self.ip} on {self.ip}"


class Seen:
    """An exchange as rules look at it."""

    def __init__(self, exchange: Exchange, client: Client) -> None:
        self.exchange = exchange
        self.client = client
        self.at_ns = exchange.at_ns
        self.at = exchange.at_ns / 1e9
        self.key = exchange.api.key if exchange.api is not None else None
        self.version = exchange.version
        self.request: Any = request_of(exchange)
        self.response: Any = response_of(exchange)
        self.packet = exchange.packets[0]
        self.latency_ms = exchange.latency_ms
        self.connection = exchange.connection

    @property
    def ended_at(self) -> float:
        return self.at + (self.latency_ms or 0.0) / 1000

    @cached_property
    def errors(self) -> Counter[str]:
        return Counter(error_names(self.exchange))

    @property
    def broker(self) -> str:
        return self.connection.broker


@dataclass(slots=True)
class Node:
    """A broker as Metadata named it."""

    id: int
    host: str
    port: int
    rack: str | None = None


class World:
    """Learns from each exchange, before the rules see it."""

    def __init__(self, tcp: list[TcpConnection], assumed: Mapping[str, float]) -> None:
        self.assumed = {**ASSUMED, **assumed}
        self.tcp = tcp
        self.is_lossy = False
        self.begin = self.end = 0.0
        self.nodes: dict[int, Node] = {}
        self.versions: PerKey[str, dict[int, range]] = PerKey(dict)  # broker address -> API -> versions
        self.partitions: PerKey[str, int] = PerKey(int)  # topic -> how many
        self.replicas: PerKey[tuple[str, int], tuple[int, ...]] = PerKey(tuple)
        # (client, topic, partition) -> the leader, and since when the client knows it
        self.leaders: PerKey[tuple[str, str, int], tuple[int, float]] = PerKey(lambda: (-1, 0.0))
        self.group_of_member: PerKey[str, str] = PerKey(str)
        self._clients: dict[int, Client] = {}
        self._by_key: PerKey[str, Client] = PerKey(lambda: Client(0, "?", "", "?"))
        self._numbers = count(1)
        self._programs: PerKey[tuple[str, str, str], list[Client]] = PerKey(list)
        self._tcp_at: dict[tuple[str, str], list[TcpConnection]] = {}
        for one in tcp:
            self._tcp_at.setdefault((one.client, one.broker), []).append(one)

    def learn(self, exchange: Exchange) -> Seen:
        """Return the exchange with its client."""
        seen = Seen(exchange, self._client(exchange))
        self.begin = min(self.begin or seen.at, seen.at)
        self.end = max(self.end, seen.ended_at)
        if seen.key == ApiKey.METADATA and seen.response is not None:
            self._learn_metadata(seen)
        elif seen.key == ApiKey.API_VERSIONS and seen.response is not None and not seen.response.error_code:
            self.versions[seen.broker] = {
                one.api_key: range(one.min_version, one.max_version + 1) for one in seen.response.api_keys
            }
        elif seen.key in (ApiKey.PRODUCE, ApiKey.FETCH) and seen.response is not None:
            self._learn_leaders(seen)
        return seen

    def node_at(self, broker: str) -> int | None:
        """Return the id of the broker with this address, as far as Metadata tells."""
        host, _, port = broker.rpartition(":")
        exact = [node.id for node in self.nodes.values() if (node.host, str(node.port)) == (host.strip("[]"), port)]
        by_port = [node.id for node in self.nodes.values() if str(node.port) == port]
        found = exact or by_port
        return found[0] if len(found) == 1 else None

    def tcp_of(self, seen: Seen) -> TcpConnection | None:
        """Return how the connection of an exchange began and ended."""
        found = self._tcp_at.get((seen.connection.client, seen.broker), [])
        return next((one for one in reversed(found) if one.began_at <= seen.at + 0.001), None)

    def program_of(self, one: TcpConnection) -> Client | None:
        return next(
            (
                client
                for client in self._clients.values()
                if client.ip == one.ip and one.client_port in client.ports.get(one.broker, ())
            ),
            None,
        )

    def client_on(self, connection: int) -> Client | None:
        """Return the client that used a connection last, by the connection's number."""
        return self._clients.get(connection)

    def named(self, subject: str) -> str:
        """Return a subject with the names of its clients in place of their keys."""
        return re.sub(
            r"#\d+", lambda match: self._by_key[match[0]].label if match[0] in self._by_key else match[0], subject
        )

    def _client(self, exchange: Exchange) -> Client:
        number = exchange.connection.number
        request = request_of(exchange)
        group = getattr(request, "group_id", None) or getattr(request, "consumer_group_id", None) or ""
        transactional_id = transactional_id_of(request)
        at = exchange.at_ns / 1e9
        found = self._clients.get(number)
        # The connection's first request may not have said who it is.
        is_new = found is None or (exchange.client_id or "", exchange.software) != (found.client_id, found.software)
        if found is None or is_new or found.differs(group, transactional_id):
            found = self._find(exchange, group, transactional_id)
        found.add(exchange.connection, at)
        self._clients[number] = found
        if (group or transactional_id) and not found.use:
            found = self._separate(found, exchange)
        found.group = found.group or group
        found.transactional_id = found.transactional_id or transactional_id
        return found

    def _find(self, exchange: Exchange, group: str, transactional_id: str) -> Client:
        """Return the client of a connection: of those that may have it, the one that was the last to open another."""
        connection = exchange.connection
        ip, _, port = connection.client.rpartition(":")
        known = self._programs[ip, exchange.software, exchange.client_id or ""]
        fit = [
            one
            for one in known
            if not one.differs(group, transactional_id) and one.may_have(connection.broker, int(port))
        ]
        return max(fit, key=lambda one: one.opened_last) if fit else self._make(ip, exchange)

    def _make(self, ip: str, exchange: Exchange) -> Client:
        software, client_id = exchange.software, exchange.client_id or ""
        made = Client(next(self._numbers), ip, software, client_id)
        self._by_key[made.key] = made
        self._programs[ip, software, client_id].append(made)
        return made

    def _separate(self, client: Client, exchange: Exchange) -> Client:
        """Return the client that a group or transactional id names: a new one if `client` has older connections.

        They may be of another program with the same name, which must not get this one's group.
        """
        since = client.opened[exchange.connection.number][1] - _OPENED_BEFORE_MAX
        earlier = [one for one in client.opened.values() if one[1] < since]
        if not earlier:
            return client
        made = self._make(client.ip, exchange)
        later = [one for one in client.opened.values() if one[1] >= since]
        for side, connections in ((client, earlier), (made, later)):
            side.opened, side.ports, side.opened_last = {}, {}, 0.0
            for connection, at in connections:
                side.add(connection, at)
        self._clients.update({connection.number: made for connection, _ in later})
        return made

    def _learn_metadata(self, seen: Seen) -> None:
        for broker in seen.response.brokers:
            self.nodes[broker.node_id] = Node(broker.node_id, broker.host, broker.port, broker.rack)
        for topic in seen.response.topics:
            name = topic_name(seen.exchange, topic)
            if topic.error_code:
                continue
            self.partitions[name] = len(topic.partitions)
            for one in topic.partitions:
                self.replicas[name, one.partition_index] = tuple(one.replica_nodes)
                self.leaders[seen.client.key, name, one.partition_index] = one.leader_id, seen.ended_at

    def _learn_leaders(self, seen: Seen) -> None:
        """Learn the leaders that brokers name beside an error (KIP-951)."""
        for topic in seen.response.responses:
            parts = getattr(topic, "partition_responses", None) or getattr(topic, "partitions", None) or ()
            for one in parts:
                if one.error_code and one.current_leader.leader_id >= 0:
                    number = one.index if hasattr(one, "index") else one.partition_index
                    key = seen.client.key, topic_name(seen.exchange, topic), number
                    self.leaders[key] = one.current_leader.leader_id, seen.ended_at
