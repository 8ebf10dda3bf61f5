"""The embedded brokers in a simulated world: the real `Server`, state and logs, on a simulated selector and clock.

`SimulatedBroker` adds what one broker can do wrong by itself: stale metadata and throttling. `SimulatedCluster` changes
brokers, leaders and topics between two turns, and copies logs before their records are lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from kwire.broker.broker import Broker
from kwire.broker.cluster import served_versions
from kwire.broker.cluster_state import ClusterState, Node, Topic
from kwire.broker.faults import Effect, Fault
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.metadata import METADATA
from kwire.broker.handlers.produce import PRODUCE
from kwire.broker.handlers.table import HANDLERS
from kwire.broker.options import Options
from kwire.broker.partition import NO_LEADER, Partition
from kwire.broker.request_context import Completion, Reply, RequestContext
from kwire.broker.server import Server
from kwire.errors import ErrorCode, broker_error
from kwire.protocol import ApiKey
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from kwire.records import Record
from kwire.session import SaslServer
from kwire.simulation.history import History, LogCopy, RecordId
from kwire.simulation.network import Address, Network, SimulatedSelector
from kwire.simulation.world import Loop

_FIRST_PORT = 9091


class SimulatedBroker(Broker):
    """A broker that can return stale metadata and throttle. `seen` counts its responses."""

    def __init__(
        self, id: int, cluster: ClusterState, seen: Counter[str], acting_client: Callable[[str, bool], object]
    ) -> None:
        super().__init__(id, cluster, HANDLERS)
        # Gets the client whose request is handled now, and whether its connection is gone.
        self.acting_client = acting_client
        self._is_late = False
        # Gets the client that a record of a share group is locked for, the partition, and the offset.
        self.on_acquired: Callable[[str, tuple[str, int], int], object] = lambda client, partition, offset: None
        self._seen = seen
        self._lags_until = 0.0
        self._past: MetadataResponse | None = None
        self._throttles = 0
        self._throttle_ms = 0
        self._throttles_all = False

    def lag(self, until: float, now: float) -> None:
        """Return the present metadata to clients until `until`."""
        everything = MetadataRequest(topics=None)
        context = RequestContext(
            everything, MetadataRequest.VERSIONS[-1], client_id=None, client_host="", on_complete=_ignore
        )
        past = METADATA.handle(self, everything, context, now)
        assert isinstance(past, MetadataResponse)
        self._past, self._lags_until = past, until

    def throttle(self, ms: int, times: int, *, is_all: bool = False) -> None:
        """Throttle the next produce responses, or those to all requests."""
        self._throttle_ms, self._throttles, self._throttles_all = ms, times, is_all

    def heal(self) -> None:
        self._lags_until, self._throttles = 0.0, 0

    def _run(self, handler: Handler[Any], context: RequestContext, now: float) -> None:
        self.acting_client(context.client_id or "", self._is_late or context.is_complete)
        if isinstance(context.request, ShareFetchRequest):  # here, as a fault may delay its response, or drop it
            fetch, context = context, context.with_callback(partial(self._share_fetched, context))
            context.partition_fault = fetch.partition_fault
        super()._run(handler, context, now)

    def _apply(self, handler: Handler[Any], context: RequestContext, now: float) -> None:
        self._is_late = context.is_complete
        super()._apply(handler, context, now)
        self._is_late = False

    def handle(self, context: RequestContext, now: float) -> None:
        request = context.request
        if self._throttles and self._throttles_all:
            context.change_completion(self._throttled)
        if isinstance(request, ProduceRequest):
            ends = [self._end_offset(*place) for place in PRODUCE.named_partitions(self, request)]
            super().handle(context.with_callback(partial(self._produced, context, ends)), now)
        elif isinstance(request, MetadataRequest) and now < self._lags_until:
            super().handle(context.with_callback(partial(self._remembered, context)), now)
        else:
            super().handle(context, now)

    def _throttled(self, completion: Completion) -> Completion:
        if self._throttles and isinstance(completion, Reply) and hasattr(completion.response, "throttle_time_ms"):
            self._throttles -= 1
            setattr(completion.response, "throttle_time_ms", self._throttle_ms)  # noqa: B010 (most responses have it)
            self._seen["responses throttled"] += 1
        return completion

    def _end_offset(self, topic: str, index: int) -> int:
        known = self.cluster.topics.get(topic)
        partition = known.partition(index) if known is not None else None
        return partition.log.end_offset if partition is not None else 0

    def _produced(self, context: RequestContext, ends: list[int], outcome: Completion) -> None:
        if isinstance(outcome, Reply) and isinstance(outcome.response, ProduceResponse):
            results = [result for topic in outcome.response.responses for result in topic.partition_responses]
            for result, end in zip(results, ends, strict=True):
                if result.error_code:
                    self._seen[f"returned {broker_error(result.error_code).name}"] += 1
                elif result.base_offset < end:
                    self._seen["duplicates recognised"] += 1
            if self._throttles and not self._throttles_all:
                self._throttles -= 1
                outcome.response.throttle_time_ms = self._throttle_ms
                self._seen["responses throttled"] += 1
        context.complete(outcome)

    def _share_fetched(self, context: RequestContext, outcome: Completion) -> None:
        if isinstance(outcome, Reply) and isinstance(outcome.response, ShareFetchResponse):
            for topic in outcome.response.responses:
                for result in topic.partitions:
                    for records in result.acquired_records:
                        at = self.cluster.topics_by_id[topic.topic_id].name, result.partition_index
                        for offset in range(records.first_offset, records.last_offset + 1):
                            self.on_acquired(context.client_id or "", at, offset)
        context.complete(outcome)

    def _remembered(self, context: RequestContext, outcome: Completion) -> None:
        if isinstance(outcome, Reply) and isinstance(outcome.response, MetadataResponse) and self._past is not None:
            self._seen["stale metadata"] += 1
            past = {topic.name: topic for topic in self._past.topics}
            now = outcome.response
            topics = [past.get(topic.name) or _unknown(topic) for topic in now.topics]
            outcome = Reply(
                MetadataResponse(
                    brokers=self._past.brokers, cluster_id=now.cluster_id, controller_id=self._past.controller_id,
                    topics=topics,
                )
            )  # fmt: skip
        context.complete(outcome)


class SimulatedCluster:
    """Brokers 1 to `brokers` at broker-1:9091, broker-2:9092, ..."""

    def __init__(
        self,
        net: Network,
        history: History,
        random: Random,
        *,
        brokers: int = 3,
        api_versions: Mapping[ApiKey, range] | None = None,
        api_versions_of: Mapping[int, Mapping[ApiKey, range]] | None = None,
        sasl: SaslServer | None = None,
        **options: Any,
    ) -> None:
        self.world = net.world
        self._net = net
        self._history = history
        nodes = [Node(id, f"broker-{id}", _FIRST_PORT - 1 + id) for id in range(1, brokers + 1)]
        origin = self.world.now(), self.world.time_ms()
        self.state = ClusterState(Options(**options, seed=random.getrandbits(32)), nodes, origin=origin)
        self.loop = Loop(self.world, "brokers", self._turn)
        self._selector = SimulatedSelector(net, "brokers", random, wake_loop=self.loop.wake)
        if sasl is not None:
            sasl.unix_time = lambda: self.world.time_ms() / 1000
        self.server = Server(
            self.state, self._selector, self.world, apis=served_versions(api_versions or {}),  # type: ignore[arg-type]
            apis_of={node: served_versions(versions) for node, versions in (api_versions_of or {}).items()},
            sasl=sasl,
        )  # fmt: skip
        self.acting_client = ""  # whose request a broker handles, or handled last
        self.is_late = False  # the client of that request had given it up before
        self.brokers = {id: SimulatedBroker(id, self.state, net.seen, self._act) for id in self.state.nodes}
        self.server.brokers.update(self.brokers)
        for node in nodes:
            self.server.listen(node.id, node.host, node.port)
        self.loop.wake()

    def _turn(self) -> None:
        self.server.turn()

    def _act(self, client: str, is_late: bool) -> None:
        self.acting_client, self.is_late = client, is_late

    @property
    def bootstrap(self) -> list[str]:
        return [f"{node.host}:{node.port}" for node in self.state.nodes.values()]

    def address(self, node: int) -> Address:
        return self.state.nodes[node].host, self.state.nodes[node].port

    def create_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
        leaders: Mapping[int, int] | None = None,
    ) -> None:
        """Create a topic. `leaders` maps partitions to brokers, which lead where they have a replica."""
        if name not in self.state.topics:
            topic = self.state.create_topic(name, partitions, configs=configs)
            for index, node in (leaders or {}).items():
                partition = topic.partition(index)
                if partition is not None and node in partition.isr and node != partition.leader:
                    partition.move_leader(node, self.world.now())
            self._settle()

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition; nothing for an unknown topic."""
        known = self.state.topics.get(topic)
        return {} if known is None else {one.index: one.leader for one in known.partitions}

    def add_partitions(self, name: str, more: int) -> None:
        topic = self.state.topics.get(name)
        if topic is not None:
            self.state.add_partitions(topic, len(topic.partitions) + more)
            self._settle()

    def delete_topic(self, name: str) -> None:
        topic = self.state.topics.get(name)
        if topic is not None:
            self._history.logs += _copies(topic, is_deleted=True)
            self.state.delete_topic(topic, self.world.now())
            self._settle()

    def stop(self, node: int, *, is_silent: bool) -> None:
        """Stop a broker. With `is_silent` its connections stay open, as when its host dies."""
        if not self.state.nodes[node].is_up:
            return
        if is_silent:
            for connection in self._net.between(None, self.address(node)):
                connection.silence()
        tails = {partition: _tail(partition) for partition in self.state.partitions() if partition.leader == node}
        self.server.stop_broker(node)
        self.state.stop_node(node, self.world.now())
        for partition, tail in tails.items():
            self._history.truncated.update(
                id for offset, id in tail if id is not None and offset >= partition.log.end_offset
            )
        self._settle()

    def restart(self, node: int) -> None:
        if not self.state.nodes[node].is_up:
            self.server.listen(node, *self.address(node))
            self.state.start_node(node, self.world.now())
            self._settle()

    def move_leader(self, topic: str, index: int, *, is_same: bool = False) -> bool:
        """Move a partition to the next in-sync broker, or with `is_same` to the same broker in a new epoch.

        Return False if there is no such broker.
        """
        known = self.state.topics.get(topic)
        partition = known.partition(index) if known is not None else None
        if partition is None or partition.leader == NO_LEADER:
            return False
        heirs = [node for node in partition.isr if self.state.nodes[node].is_up]
        heirs = [node for node in heirs if (node == partition.leader) is is_same]
        if not heirs:
            return False
        later = [node for node in heirs if node > partition.leader]
        partition.move_leader((later or heirs)[0], self.world.now())
        self._settle()
        return True

    def move_coordinators(self) -> None:
        """Let other brokers coordinate groups and transactions; all brokers run on."""
        self.state.move_coordinators(self.world.now())
        self._settle()

    def elect_uncleanly(self, topic: str, index: int, lost: int) -> bool:
        """Elect a replica that lacks the newest `lost` records. Return False if no broker can lead."""
        known = self.state.topics.get(topic)
        partition = known.partition(index) if known is not None else None
        if partition is None or not self.move_leader(topic, index):
            return False
        before = [RecordId.of(value) for _, value in _records(partition)]
        partition.log.truncate(max(partition.log.start_offset, partition.log.end_offset - lost))  # whole batches only
        left = len(_records(partition))
        self._history.unclean.update(id for id in before[left:] if id is not None)
        self._settle()
        return True

    def jump_clock(self, ms: int) -> None:
        """Set the clock of all brokers to another time."""
        since, wall_ms = self.state._origin
        self.state._origin = since, wall_ms + ms

    def forget_producers(self, topic: str, index: int) -> None:
        """Drop the producer state of a partition, as after `producer.id.expiration.ms`."""
        known = self.state.topics.get(topic)
        partition = known.partition(index) if known is not None else None
        if partition is not None:
            partition.log.producers.clear()

    def add_fault(self, effect: Effect, **match: Any) -> Fault:
        return self.state.faults.add(Fault(effect=effect, **match))

    def heal(self) -> None:
        """Start every broker and end all faults."""
        self.state.faults.clear()
        for id, broker in self.brokers.items():
            broker.heal()
            self.restart(id)

    def log(self, topic: str, index: int = 0) -> LogCopy:
        return _copies(self.state.find_topic(topic))[index]

    def end_offsets(self) -> dict[tuple[str, int], int]:
        return {(one.topic, one.index): one.log.end_offset for one in self.state.partitions()}

    def copy_logs(self, *, without: str = "") -> None:
        """Copy the logs of all topics but one."""
        for name, topic in self.state.topics.items():
            if name != without:
                self._history.logs += _copies(topic)

    def committed_records(self, topic: str) -> list[tuple[int, Record]]:
        """Return partition and record of what no open or aborted transaction has, in the order of the logs."""
        found: list[tuple[int, Record]] = []
        for partition in self.state.partitions():
            if partition.topic != topic:
                continue
            open_records: defaultdict[int, list[tuple[int, Record]]] = defaultdict(list)
            for stored in partition.log:
                batch = stored.batch()
                if not stored.is_control:
                    into = open_records[batch.producer_id] if batch.is_transactional else found
                    into += [(partition.index, record) for record in batch.records()]
                elif batch.control().kind == "commit":
                    found += open_records.pop(batch.producer_id, [])
                else:
                    open_records.pop(batch.producer_id, None)
        return sorted(found, key=lambda one: (one[0], one[1].offset))

    def _settle(self) -> None:
        """Let the brokers send the responses that a change has made possible."""
        self.server.process_ready(self.world.now())
        self._selector.wakeup()


def _records(partition: Partition) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for stored in partition.log
        if not stored.is_control
        for record in stored.batch().records()
    ]


def _copies(topic: Topic, *, is_deleted: bool = False) -> list[LogCopy]:
    return [
        LogCopy(
            topic.name, topic.id, partition.index, tuple(_records(partition)), is_deleted,
            open_from=partition.log.producers.first_open_offset(),
        )
        for partition in topic.partitions
    ]  # fmt: skip


def _tail(partition: Partition) -> list[tuple[int, RecordId | None]]:
    """Return the records above the high watermark: they are lost if the leader stops."""
    if partition.log.high_watermark >= partition.log.end_offset:
        return []
    return [
        (offset, RecordId.of(value)) for offset, value in _records(partition) if offset >= partition.log.high_watermark
    ]


def _unknown(topic: MetadataResponse.Topic) -> MetadataResponse.Topic:
    return MetadataResponse.Topic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=topic.name, topic_id=topic.topic_id, partitions=[]
    )


def _ignore(outcome: Completion) -> None:
    pass
