"""Prepare a recording: a running broker, its versions, a topic, and available coordinators."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from brokers.cluster import KafkaCluster
from brokers.jars import version_numbers

from kwire.protocol import Request, Response
from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.session.versions import BROKERS_BEFORE_API_VERSIONS, common
from recording.wire import Wire

TOPIC = "recorded"
NO_ID = UUID(int=0)
_PATIENCE_S = 30
_POLL_S = 0.1

R = TypeVar("R", bound=Response)


@dataclass
class Scene:
    """Hold a running broker, its versions, and the state of its topic."""

    cluster: KafkaCluster
    wire: Wire
    offered: Mapping[int, range]
    topic_id: UUID = NO_ID
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def versions(self, request: type[Request[Any]]) -> range:
        return spoken(self.cluster.version, self.offered, request)

    def newest(self, request: Request[R], at_most: int | None = None) -> R:
        """Send a request that is not recorded, in the newest version, and return the response."""
        version = self.versions(type(request))[-1]
        return self.wire.ask(request, version if at_most is None else min(version, at_most))

    def new_name(self, kind: str) -> str:
        return f"{kind}-{next(self.numbers)}"


def spoken(broker_version: str, offered: Mapping[int, range], request: type[Request[Any]]) -> range:
    """Return the versions of an API that both kwire and the broker support."""
    both = common(request.VERSIONS, offered.get(request.API_KEY, range(0)))
    if request is ProduceRequest and version_numbers(broker_version) >= (4,):
        # Brokers from 4.0 on offer Produce from version 0, for a check in old versions of librdkafka, but close the
        # connection on versions before 3.
        return range(max(3, both.start), both.stop)
    return both


def set_up(cluster: KafkaCluster, wire: Wire) -> Scene:
    """Request the broker's versions, and wait until it has the topic and its coordinators."""
    old = version_numbers(cluster.version) < (0, 10)
    scene = Scene(cluster, wire, BROKERS_BEFORE_API_VERSIONS["0.8.2"] if old else _offered(wire))
    cluster.commands.create_topic(TOPIC, partitions=2)

    def has_leaders() -> bool:
        topic = scene.newest(MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)])).topics[0]
        scene.topic_id = topic.topic_id
        return not topic.error_code and all(partition.leader_id > 0 for partition in topic.partitions)

    def has_coordinator(kind: int) -> bool:
        return not scene.newest(FindCoordinatorRequest(key="anything", key_type=kind), at_most=3).error_code

    def has_producer_ids(transactional_id: str | None) -> bool:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        return not scene.newest(request).error_code

    wait_for(has_leaders, "leaders of the topic")
    wait_for(lambda: has_coordinator(GROUP), "a group coordinator")
    if scene.versions(InitProducerIdRequest):
        wait_for(lambda: has_producer_ids(None), "producer ids")
        wait_for(lambda: has_coordinator(TRANSACTION), "a transaction coordinator")
        wait_for(lambda: has_producer_ids("anything"), "transactions")
    return scene


def _offered(wire: Wire) -> Mapping[int, range]:
    keys = wire.ask(ApiVersionsRequest(), 0).api_keys
    return {one.api_key: range(one.min_version, one.max_version + 1) for one in keys}


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds. Raises TimeoutError."""
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} after {_PATIENCE_S} s")
        time.sleep(_POLL_S)
