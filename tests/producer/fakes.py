"""A fake view of a cluster, and a bench that drives the sender step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from kwire.cluster import Backoff, Broker, CurrentLeader, PendingRequest, Snapshot, ToCoordinator
from kwire.cluster.metadata import NO_ID, MetadataStatus
from kwire.cluster.recovery import Failure
from kwire.errors import KwireError, UnsupportedVersionError
from kwire.producer.accumulator import BufferPool, PendingRecord
from kwire.producer.client import make_accumulator
from kwire.producer.futures import ProduceResponse
from kwire.producer.options import ProducerSettings
from kwire.producer.producer_request import DeliveryOptions
from kwire.producer.sender import Sender
from kwire.protocol import Request
from kwire.protocol.messages import produce
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import Batch, decode_batches
from tests.cluster.snapshots import metadata


@dataclass
class FakeView:
    """Every broker is ready and speaks Produce v12 (by name) unless a test says otherwise."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    connection_error: KwireError | None = None
    has_fatal_error: bool = False
    down: set[int] = field(default_factory=set)
    versions: dict[type[Request[Any]], int] = field(
        default_factory=lambda: {ProduceRequest: 12, InitProducerIdRequest: 5}
    )
    too_old: set[int] = field(default_factory=set)  # brokers that give no producer ids
    failures: dict[int, KwireError] = field(default_factory=dict)
    refreshes: list[str] = field(default_factory=list)
    creatable: list[str] = field(default_factory=list)
    rooms: dict[int, int] = field(default_factory=dict)
    outages: dict[int, Failure] = field(default_factory=dict)
    metadata: MetadataStatus = field(default_factory=lambda: MetadataStatus(None, 0.0, 0.0, None, None))
    features: dict[str, int] = field(default_factory=dict)
    forgotten: list[ToCoordinator] = field(default_factory=list)
    waiting: list[PendingRequest] = field(default_factory=list)  # of those returned, what cannot be written yet

    def is_ready(self, node: int) -> bool:
        return node not in self.down

    def capacity(self, node: int) -> int:
        return self.rooms.get(node, 5)

    def version(self, node: int, api: type[Request[Any]], at_most: int | None = None) -> int:
        if api not in self.versions:
            raise UnsupportedVersionError("not spoken here")
        return min(self.versions[api], at_most if at_most is not None else 1_000)

    def supports(self, node: int, api: type[Request[Any]]) -> bool:
        return api in self.versions and not (node in self.too_old and api is InitProducerIdRequest)

    def failure(self, node: int) -> KwireError | None:
        return self.failures.get(node)

    def feature(self, name: str) -> int:
        return self.features.get(name, 0)

    def forget_coordinator(self, route: ToCoordinator) -> None:
        self.forgotten.append(route)

    def withdraw(self, pending: PendingRequest) -> bool:
        if pending not in self.waiting:
            return False
        self.waiting.remove(pending)
        return True

    def describe(self, node: int) -> str:
        return f"{node} at host-{node}:9092"

    def unreachable_since(self, node: int) -> Failure | None:
        return self.outages.get(node)

    def metadata_status(self) -> MetadataStatus:
        return self.metadata

    def request_metadata(self, reason: str) -> None:
        self.refreshes.append(reason)

    def allow_topic_creation(self, topic: str) -> None:
        self.creatable.append(topic)

    def update_leaders(self, hints: Iterable[CurrentLeader], endpoints: Iterable[Broker]) -> frozenset[tuple[str, int]]:
        self.snapshot, news = self.snapshot.with_leaders(hints, endpoints)
        return news


@dataclass
class Sent:
    """A ProduceRequest that the sender returned; `respond` and `fail` complete it."""

    call: PendingRequest
    node: int
    version: int
    request: ProduceRequest
    ids: Mapping[str, UUID] = field(default_factory=dict)  # of the topics, as they were then

    def batches(self) -> dict[tuple[str, int], Batch]:
        return {
            (self._name(topic), partition.index): next(iter(decode_batches(partition.records or b"")))
            for topic in self.request.topic_data
            for partition in topic.partition_data
        }

    def values(self) -> dict[tuple[str, int], list[bytes | None]]:
        return {place: [record.value for record in batch.records()] for place, batch in self.batches().items()}

    def respond(
        self,
        now: float,
        codes: Mapping[tuple[str, int], int] | int = 0,
        base_offset: int = 100,
        throttle_time_ms: int = 0,
        leaders: Mapping[tuple[str, int], tuple[int, int]] | None = None,
        *,
        was_appended: bool = False,
    ) -> None:
        """Respond to the request. `leaders` are hints: (leader, leader epoch) by partition; broker n is at host-n:9092.

        `was_appended`: a response with an error code has an offset all the same.
        """
        topics: dict[str, list[produce.ProduceResponse.Topic.Partition]] = {}
        for name, index in self.batches():
            code = codes if isinstance(codes, int) else codes.get((name, index), 0)
            topics.setdefault(name, []).append(
                produce.ProduceResponse.Topic.Partition(
                    index=index,
                    error_code=code,
                    base_offset=-1 if code and not was_appended else base_offset,
                    current_leader=_leader(*(leaders or {}).get((name, index), (-1, -1))),
                )
            )
        self.call.on_done(
            produce.ProduceResponse(
                responses=[
                    produce.ProduceResponse.Topic(
                        name=name, topic_id=self.ids.get(name, NO_ID), partition_responses=partitions
                    )
                    for name, partitions in topics.items()
                ],
                throttle_time_ms=throttle_time_ms,
                node_endpoints=[
                    produce.ProduceResponse.NodeEndpoint(node_id=node, host=f"host-{node}", port=9092)
                    for node, _ in (leaders or {}).values()
                ],
            ),
            now,
        )

    def _name(self, topic: ProduceRequest.Topic) -> str:
        return topic.name or next(name for name, topic_id in self.ids.items() if topic_id == topic.topic_id)

    def fail(self, now: float, error: KwireError, *, was_written: bool = True) -> None:
        self.call.was_written = was_written
        self.call.on_done(error, now)


class Bench:
    """A sender on virtual time. `turn` advances the time and returns requests; producer ids are assigned at once."""

    def __init__(
        self, topics: Mapping[str, Sequence[tuple[int, int]]] | None = None, *, gives_ids: bool = True, **settings: Any
    ) -> None:
        self.view = FakeView()
        self.now = 1.0
        self.wakes = 0
        self.settings = ProducerSettings(**{"linger_ms": 0, **settings})
        self.buffer_pool = BufferPool(make_accumulator(self.settings, _run_now, self._wake), "raise", 0.0, self._wake)
        self.sender = Sender(
            self.settings, self.buffer_pool, backoff=Backoff(100, 1_000), request_timeout_ms=30_000, random=Random(1)
        )
        self.identities = 0
        self.gives_ids = gives_ids
        self.id_requests: list[PendingRequest] = []
        if topics is not None:
            self.know(topics)

    def _wake(self) -> None:
        self.wakes += 1

    def know(self, topics: Mapping[str, Sequence[tuple[int, int]]], **options: Any) -> None:
        """Set new metadata; topics get no ids, so requests have their names."""
        self.view.snapshot = self.view.snapshot.updated(
            metadata(topics, ids=dict.fromkeys(topics, NO_ID), **options), self.now
        )

    def send(
        self,
        value: bytes | None,
        topic: str = "t",
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        size_bytes: int = 100,
        terms: DeliveryOptions | None = None,
    ) -> ProduceResponse:
        return self.buffer_pool.append_or_wait(
            PendingRecord(topic, partition, (1_000, key, value, headers), size_bytes, terms)
        )

    def turn(self, after: float = 0.0) -> list[Sent]:
        self.now += after
        sent: list[Sent] = []
        for call in self.sender.turn(self.now, self.view):
            if call.api is ProduceRequest:
                sent.append(self._sent(call))
            else:
                assert call.api is InitProducerIdRequest
                self.id_requests.append(call)
        if self.id_requests and self.gives_ids:
            self.give_id()
            sent += self.turn()
        return sent

    def give_id(self) -> None:
        self.identities += 1
        response = InitProducerIdResponse(error_code=0, producer_id=1_000 + self.identities, producer_epoch=0)
        self.id_requests.pop(0).on_done(response, self.now)

    def _sent(self, call: PendingRequest) -> Sent:
        node: int = call.route.node  # type: ignore[union-attr]
        version = self.view.version(node, ProduceRequest, call.at_most)
        request = call.build(version)
        assert isinstance(request, ProduceRequest)
        request.encode(version)  # it must be sendable
        ids = {topic.name: topic.id for topic in self.view.snapshot.topics.values()}
        return Sent(call, node, version, request, ids)


def _leader(node: int, epoch: int) -> produce.ProduceResponse.Topic.Partition.Leader:
    return produce.ProduceResponse.Topic.Partition.Leader(leader_id=node, leader_epoch=epoch)


def _run_now(function: Callable[..., object], *args: Any) -> None:
    function(*args)
