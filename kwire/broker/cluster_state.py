"""What all brokers of a cluster know: nodes, topics, leaders, coordinators, ids, groups (Kafka's controller).

Every broker sees the same state at once: metadata takes no time to spread. There is no clock and no socket. `now` is
the caller's, in seconds; wall time is computed from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from uuid import UUID
from zlib import crc32

from kwire.broker.authorizer import Authorizer
from kwire.broker.classic_members import ClassicMembers
from kwire.broker.configs import Configs
from kwire.broker.consumer_groups import ConsumerGroupCoordinator
from kwire.broker.delegation_tokens import DelegationTokens
from kwire.broker.diagnostics import Oddities, logger
from kwire.broker.faults import Faults
from kwire.broker.features import Features
from kwire.broker.fetch_sessions import FetchSessionCache
from kwire.broker.group_configs import GroupConfigs
from kwire.broker.group_registry import GroupRegistry
from kwire.broker.groups import GroupCoordinator
from kwire.broker.ids import ProducerIdManager, make_uuid
from kwire.broker.log import Storage
from kwire.broker.offsets import OffsetManager
from kwire.broker.options import Options, TopicSettings
from kwire.broker.partition import NO_LEADER, Partition
from kwire.broker.quotas import Quotas
from kwire.broker.reassignments import Reassignments
from kwire.broker.request_log import RequestLog
from kwire.broker.share_coordinator import ShareCoordinator, ShareKey
from kwire.broker.share_groups import ShareGroup, ShareGroupCoordinator
from kwire.broker.share_partition_manager import SharePartitionManager
from kwire.broker.share_sessions import SessionKey
from kwire.broker.streams_groups import StreamsGroupCoordinator
from kwire.broker.telemetry import Telemetry
from kwire.broker.transactions import MarkerWriter, TransactionCoordinator
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.net.timers import Timers
from kwire.protocol import ApiKey
from kwire.session import SaslServer

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_NAME_LENGTH_MAX = 249
METADATA_TOPIC = "__cluster_metadata"
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(slots=True)
class Node:
    """A broker as the cluster knows it. `host` and `port` are of the first listener; it sets the port."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_up: bool = True
    advertised: dict[str, tuple[str, int]] = field(default_factory=dict)  # by listener, if not `host` and `port`

    def seen_by(self, listener: str) -> Node:
        """Return this broker with the address that clients of a listener receive."""
        address = self.advertised.get(listener)
        return self if address is None else replace(self, host=address[0], port=address[1])


@dataclass(slots=True, eq=False)
class Topic:
    """A topic and its partitions."""

    name: str
    id: UUID
    settings: TopicSettings
    partitions: list[Partition]
    replication_factor: int

    @property
    def is_internal(self) -> bool:
        return self.name in _INTERNAL

    def partition(self, index: int) -> Partition | None:
        """Return a partition, None if there is none of this index."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class ClusterState:
    """The state of a cluster. `origin` is (now, wall milliseconds) of one moment."""

    def __init__(
        self,
        options: Options,
        nodes: Sequence[Node],
        *,
        origin: tuple[float, int] = (0.0, 0),
        sasl: SaslServer | None = None,
    ) -> None:
        assert nodes
        self.options = options
        self.nodes: dict[int, Node] = {node.id: node for node in nodes}
        self.timers = Timers()
        self.storage = Storage(options.storage_bytes_max)
        self.random = Random(options.seed)
        self.fetch_sessions = {
            node.id: FetchSessionCache(options.fetch_session_slots, Random(options.seed)) for node in nodes
        }
        self.quotas = Quotas(options.fetch_quota_bytes_per_second)
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self._metric_names: dict[str, str] = {}
        self.topics_revision = 0  # grows with every change of topics
        self.group_registry = GroupRegistry(options.max_groups)
        self.group_configs = GroupConfigs(options)
        self.groups = GroupCoordinator(options, self.timers, self.random, self.group_registry)
        self.consumer_groups = ConsumerGroupCoordinator(
            options, self.timers, self.random, self.group_registry, self, self.group_configs
        )
        self.classic_members = ClassicMembers(
            options, self.timers, self.group_registry, self, self.groups, self.consumer_groups
        )
        self.streams_groups = StreamsGroupCoordinator(
            options, self.timers, self.group_registry, self, self.group_configs
        )
        self.offsets = OffsetManager(options, self.group_registry)
        markers = MarkerWriter(self.maybe_partition, self.offsets, self.wall_ms)
        self.producer_ids = ProducerIdManager()
        self.transactions = TransactionCoordinator(
            options, self.timers, self.producer_ids, write_markers=markers.write, wall_ms=self.wall_ms
        )
        self.share_states = ShareCoordinator()
        self.share_partitions = SharePartitionManager(self, self.group_configs, self.share_states)
        self.share_groups = ShareGroupCoordinator(
            options, self.timers, self.group_configs, topics=self._topic_sizes,
            registry=self.group_registry,
            on_subscribed=self._initialize_share_states, on_member_left=self._close_share_sessions,
            on_empty=self.share_partitions.drop_group,
        )  # fmt: skip
        self.authorizer = Authorizer(
            is_enabled=options.authorizer, super_users=options.super_users,
            allow_without_acl=options.allow_everyone_if_no_acl_found,
        )  # fmt: skip
        self.sasl = sasl or SaslServer({})  # without SASL on the brokers, users are only stored
        self.tokens = DelegationTokens(Random(options.seed), self.sasl)
        self.configs = Configs(self)
        self.features = Features(options)
        self.telemetry = Telemetry(self.configs, self.random)
        self.reassignments = Reassignments(self)
        self.faults = Faults()
        self.oddities = Oddities()
        self.request_log = RequestLog(options.request_log_size)
        self.told_leaders: dict[tuple[int, str, int], int] = {}  # (broker, topic, partition): a leader that is wrong
        self.rejected_members: set[tuple[str, str, str]] = set()  # (host, client id, group) that the log has named
        self.connection_numbers = count(1)
        self.requests: Counter[ApiKey] = Counter()  # handled, of each API
        self.log_dir = "/tmp/kraft-combined-logs"  # Kafka's default; what brokers say unless there is a data directory
        # Called with new ones before anybody sees them. May raise BrokerError.
        self.on_partitions: Callable[[Topic, list[Partition]], None] | None = None
        self._origin = origin
        self._coordinator_moves = 0
        self._created = 0  # topics ever created: it selects the first leader of the next one
        self.schedule(options.retention_check_ms, self._retain)
        self.schedule(options.cleaner_backoff_ms, self._clean_logs)
        self.schedule(options.offsets_retention_check_ms, self.offsets.expire)

    def wall_ms(self, now: float) -> int:
        """Return wall time in milliseconds."""
        return self._origin[1] + int((now - self._origin[0]) * 1000)

    # Brokers.

    @property
    def live_nodes(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up]

    def nodes_seen_by(self, listener: str) -> list[Node]:
        """Return all brokers with the addresses that clients of a listener receive."""
        return [node.seen_by(listener) for node in self.nodes.values()]

    @property
    def controller_id(self) -> int:
        """Return the first broker that is up, -1 if there is none."""
        return next((node.id for node in self.live_nodes), NO_LEADER)

    def coordinator_of(self, key: str) -> int:
        """Return the coordinator of a group or a transactional id, -1 if no broker is up.

        While that broker is stopped, the next one coordinates.
        """
        ids = list(self.nodes)
        start = (crc32(key.encode()) + self._coordinator_moves) % len(ids)
        ordered = ids[start:] + ids[:start]
        return next((id for id in ordered if self.nodes[id].is_up), NO_LEADER)

    def told_leader(self, node: int, partition: Partition) -> int:
        """Return the leader that a broker's metadata names: a test may have set a stale one."""
        if not self.told_leaders:
            return partition.leader
        return self.told_leaders.get((node, partition.topic, partition.index), partition.leader)

    def move_coordinators(self, now: float) -> None:
        """Let the next broker coordinate each group and transactional id, while the former one runs on."""
        groups, transactions = self._coordinators()
        self._coordinator_moves += 1
        self._groups_moved(self._moved_keys(groups), now)
        self.transactions.coordinators_moved(self._moved_keys(transactions))

    def stop_node(self, id: int, now: float) -> None:
        """Stop a broker: its partitions, groups and transactions move to others."""
        if not self.nodes[id].is_up:
            return
        self.fetch_sessions[id].sessions.clear()
        groups, transactions = self._coordinators()
        self.nodes[id].is_up = False
        self.share_partitions.node_stopped(id)
        for partition in self.partitions():
            partition.broker_stopped(id, self._is_up, now)
        self._groups_moved(self._moved_keys(groups), now)
        self.transactions.coordinators_moved(self._moved_keys(transactions))

    def start_node(self, id: int, now: float) -> None:
        """Start a broker with its data. It is in sync at once, and leads only partitions without a leader."""
        if self.nodes[id].is_up:
            return
        groups, transactions = self._coordinators()
        self.nodes[id].is_up = True
        for partition in self.partitions():
            partition.broker_started(id, self._is_up, now)
        self.reassignments.broker_started(now)
        self._groups_moved(self._moved_keys(groups), now)
        self.transactions.coordinators_moved(self._moved_keys(transactions))

    def classic_protocol(self, group_id: str) -> GroupCoordinator | ClassicMembers:
        """Return who handles the classic protocol for a group: it may be a consumer group with members."""
        group = self.consumer_groups.get(group_id)
        return self.groups if group is None or group.is_empty else self.classic_members

    def _groups_moved(self, group_ids: list[str], now: float) -> None:
        self.groups.coordinators_moved(group_ids, now)
        self.consumer_groups.coordinators_moved(group_ids, now)
        self.streams_groups.coordinators_moved(group_ids, now)
        self.share_groups.coordinators_moved(group_ids, now)

    def _is_up(self, id: int) -> bool:
        return id in self.nodes and self.nodes[id].is_up

    def _coordinators(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the coordinators of all groups, and of all transactional ids."""
        groups = {group.id: self.coordinator_of(group.id) for group in self.group_registry}
        return groups, {transaction.id: self.coordinator_of(transaction.id) for transaction in self.transactions}

    def _moved_keys(self, before: Mapping[str, int]) -> list[str]:
        return [key for key, node in before.items() if self.coordinator_of(key) != node]

    # Share groups.

    def _topic_sizes(self) -> Mapping[str, tuple[UUID, int]]:
        return {name: (topic.id, len(topic.partitions)) for name, topic in self.topics.items()}

    def _initialize_share_states(self, group: str, partitions: Sequence[tuple[UUID, int]]) -> None:
        for topic_id, index in partitions:
            self.share_states.initialize(ShareKey(group, topic_id, index))

    def delete_share_group(self, group: ShareGroup) -> ErrorCode:
        """Delete an empty share group and what it has done. Return NONE."""
        self.share_groups.delete(group)
        self.share_partitions.drop_group(group.id)
        for key in self.share_states.of_group(group.id):
            self.share_states.delete(key)
        return ErrorCode.NONE

    def _close_share_sessions(self, group: str, member: str, now: float) -> None:
        """Release the records of a member that left, where its coordinator leads; elsewhere its locks expire."""
        self.share_partitions.close_session(SessionKey(self.coordinator_of(group), group, member), now)

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        topic_id: UUID | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic. -1 means the cluster's default. `assignments` are the replicas of each partition, the
        preferred leader first. Raises BrokerError."""
        check_topic_name(name)
        if name in self.topics:
            raise broker_error(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {name} already")
        other = self._metric_names.get(_metric_name(name))
        if other is not None and topic_id is None:  # a topic with an id was created by an earlier cluster
            why = f"Topic '{name}' collides with existing topic: {other}"
            raise broker_error(ErrorCode.INVALID_TOPIC_EXCEPTION, why, topic=name)
        settings = TopicSettings.parse(self.options, configs or {})
        if assignments:
            self._check_partition_limit(len(assignments))
            replicas = self._check_assignments(assignments)
        else:
            count = self.options.default_partitions if partitions == -1 else partitions
            self._check_partition_limit(count)
            replicas = self._assign_replicas(count, replication_factor)
        topic = Topic(name, topic_id or make_uuid(self.random), settings, [], len(replicas[0]))
        self._add_partitions(topic, replicas)
        if not validate_only:
            if self.on_partitions is not None:
                self.on_partitions(topic, topic.partitions)
            self._created += 1
            self.topics[name] = self.topics_by_id[topic.id] = topic
            self._metric_names[_metric_name(name)] = name
            self.topics_revision += 1
        return topic

    def add_partitions(
        self,
        topic: Topic,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """CreatePartitions. Raises BrokerError."""
        has = len(topic.partitions)
        added = total - has
        if added <= 0:
            why = f"{topic.name} has {has} partitions, {total} is no increase"
            raise broker_error(ErrorCode.INVALID_PARTITIONS, why)
        self._check_partition_limit(added)
        if assignments is not None:
            if len(assignments) != added:
                why = f"{added} partitions more, {len(assignments)} assigned"
                raise broker_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
            replicas = self._check_assignments(dict(enumerate(assignments)))
        else:
            replicas = self._assign_replicas(added, topic.replication_factor, first=len(topic.partitions))
        if not validate_only:
            self._add_partitions(topic, replicas)
            try:
                if self.on_partitions is not None:
                    self.on_partitions(topic, topic.partitions[has:])
            except BrokerError:
                del topic.partitions[has:]
                raise
            self.topics_revision += 1

    def alter_topic(self, topic: Topic, configs: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Replace the topic's configs. Raises INVALID_CONFIG."""
        settings = TopicSettings.parse(self.options, configs)
        if not validate_only:
            topic.settings = settings
            for partition in topic.partitions:
                partition.log.settings = settings

    def delete_topic(self, topic: Topic, now: float) -> None:
        del self.topics[topic.name]
        self._metric_names.pop(_metric_name(topic.name), None)
        del self.topics_by_id[topic.id]
        self.topics_revision += 1
        self.offsets.delete_topic(topic.name)
        self.share_partitions.drop_topic(topic.id)
        for partition in topic.partitions:
            partition.delete(now)

    def find_topic(self, name: str) -> Topic:
        """Return a topic. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.topics.get(name)
        if topic is None:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}", topic=name)
        return topic

    def find_topic_by_id(self, id: UUID) -> Topic:
        """Return a topic by its id. Raises UNKNOWN_TOPIC_ID."""
        topic = self.topics_by_id.get(id)
        if topic is None:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {id}")
        return topic

    def maybe_auto_create(self, name: str) -> Topic | None:
        """Return a topic, created if the cluster auto-creates topics. Raises BrokerError for an invalid name."""
        topic = self.topics.get(name)
        if topic is None and self.options.auto_create_topics:
            topic = self.create_topic(name)
            logger.info("auto-created topic %s, requested by a client; partitions: %d", name, len(topic.partitions))
        return topic

    def partition(self, topic: str, index: int) -> Partition:
        """Return a partition. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        found = self.find_topic(topic).partition(index)
        if found is None:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition", topic=topic, partition=index)
        return found

    def maybe_partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        return found.partition(index) if found is not None else None

    def partitions(self) -> list[Partition]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def _check_partition_limit(self, added: int) -> None:
        count = sum(len(topic.partitions) for topic in self.topics.values())
        if count + added > self.options.max_partitions:
            most = self.options.max_partitions
            raise broker_error(ErrorCode.POLICY_VIOLATION, f"{count} + {added} partitions, max_partitions is {most}")

    def _assign_replicas(self, count: int, factor: int, first: int = 0) -> list[tuple[int, ...]]:
        """Return the replicas of `count` partitions: leaders in rotation, each followed by the next brokers."""
        if count < 1:
            raise broker_error(ErrorCode.INVALID_PARTITIONS, f"{count} partitions")
        ids = [node.id for node in self.live_nodes]
        if factor == -1:
            factor = min(self.options.default_replication_factor, len(ids))
        if not 1 <= factor <= len(ids):
            raise broker_error(ErrorCode.INVALID_REPLICATION_FACTOR, f"{factor} replicas on {len(ids)} brokers")
        start = self._created + first
        return [tuple(ids[(start + index + step) % len(ids)] for step in range(factor)) for index in range(count)]

    def _check_assignments(self, assignments: Mapping[int, Sequence[int]]) -> list[tuple[int, ...]]:
        if sorted(assignments) != list(range(len(assignments))):
            raise broker_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 on")
        replicas = [tuple(assignments[index]) for index in range(len(assignments))]
        for brokers in replicas:
            if not brokers or len(set(brokers)) != len(brokers) or any(id not in self.nodes for id in brokers):
                raise broker_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"replicas {list(brokers)}")
        if len({len(brokers) for brokers in replicas}) != 1:
            raise broker_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "all partitions must have as many replicas")
        return replicas

    def _add_partitions(self, topic: Topic, replicas: Sequence[tuple[int, ...]]) -> None:
        for brokers in replicas:
            partition = Partition(
                topic.name,
                len(topic.partitions),
                brokers,
                self.options,
                topic.settings,
                self.storage,
                self.timers,
                self._is_up,
            )
            topic.partitions.append(partition)

    # Periodic work.

    def _retain(self, now: float) -> None:
        wall_ms = self.wall_ms(now)
        for partition in self.partitions():
            partition.log.retain(wall_ms)
            partition.log.producers.expire(wall_ms - self.options.producer_id_expiration_ms)
        self.transactions.expire(wall_ms)

    def _clean_logs(self, now: float) -> None:
        wall_ms = self.wall_ms(now)
        for partition in self.partitions():
            if partition.settings.is_compacted:
                partition.log.maybe_clean(wall_ms)

    def schedule(self, interval_ms: int, action: Callable[[float], None]) -> None:
        """Call `action(now)` every `interval_ms`."""

        def run(now: float) -> None:
            action(now)
            self.timers.at(now + interval_ms / 1000, run)

        self.timers.at(self._origin[0] + interval_ms / 1000, run)


def _metric_name(topic: str) -> str:
    """Return a topic's name in Kafka's metrics, where two topics must not have the same."""
    return topic.replace(".", "_")


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that Kafka does not allow."""
    good = name and name not in (".", "..") and len(name) <= _NAME_LENGTH_MAX and set(name) <= _NAME_CHARACTERS
    if not good:
        raise broker_error(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{name}' is not a topic name", topic=name)
