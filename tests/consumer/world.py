"""A fetcher on virtual time with a fake cluster: tests take its turns, read its requests and respond to them.

Requests and responses are encoded and decoded in their version, so that a test sees what a broker would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kwire.cluster import Backoff, Broker, CurrentLeader, PendingRequest, Snapshot, ToCoordinator, ToNode
from kwire.cluster.metadata import MetadataStatus
from kwire.cluster.recovery import Failure
from kwire.consumer.buffer import ClientError, FetchBuffer, Item, PartitionBuffer
from kwire.consumer.fetcher import Fetcher, Start
from kwire.consumer.offsets import CommittedRequest, FetchStart, Offset, OffsetFetcher, known_offset
from kwire.consumer.options import ConsumerOptions
from kwire.consumer.rebalance import RebalanceStep
from kwire.consumer.record import ConsumerRecord
from kwire.errors import KwireError, UnsupportedVersionError
from kwire.protocol import Request, Response
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kwire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kwire.records import encode_batch
from tests.cluster.snapshots import snapshot

Key = tuple[str, int]
_Leader = FetchResponse.Topic.Partition.Leader


def _epoch_end(epoch: int, end_offset: int) -> FetchResponse.Topic.Partition.EpochEndOffset:
    return FetchResponse.Topic.Partition.EpochEndOffset(epoch=epoch, end_offset=end_offset)


@dataclass
class FakeView:
    """Every broker is ready and speaks the newest Fetch and ListOffsets, unless a test says otherwise."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    connection_error: KwireError | None = None
    has_fatal_error: bool = False
    down: set[int] = field(default_factory=set)
    versions: dict[type[Request[Any]], int] = field(
        default_factory=lambda: {FetchRequest: 18, ListOffsetsRequest: 11, OffsetForLeaderEpochRequest: 4}
    )
    failures: dict[int, KwireError] = field(default_factory=dict)
    refreshes: list[str] = field(default_factory=list)
    creatable: list[str] = field(default_factory=list)

    def is_ready(self, node: int) -> bool:
        return node not in self.down

    def capacity(self, node: int) -> int:
        return 5

    def version(self, node: int, api: type[Request[Any]], at_most: int | None = None) -> int:
        if api not in self.versions:
            raise UnsupportedVersionError("not spoken here")
        return min(self.versions[api], 1_000 if at_most is None else at_most)

    def supports(self, node: int, api: type[Request[Any]]) -> bool:
        return api in self.versions

    def failure(self, node: int) -> KwireError | None:
        return self.failures.get(node)

    def feature(self, name: str) -> int:
        return 0

    def forget_coordinator(self, route: ToCoordinator) -> None:
        raise AssertionError("no consumer of this form has one")

    def withdraw(self, pending: PendingRequest) -> bool:
        return False

    def describe(self, node: int) -> str:
        return f"{node} at host-{node}:9092"

    def unreachable_since(self, node: int) -> Failure | None:
        return None

    def metadata_status(self) -> MetadataStatus:
        return MetadataStatus(None, 0.0, 0.0, None, None)

    def request_metadata(self, reason: str) -> None:
        self.refreshes.append(reason)

    def allow_topic_creation(self, topic: str) -> None:
        self.creatable.append(topic)

    def update_leaders(self, hints: Iterable[CurrentLeader], endpoints: Iterable[Broker]) -> frozenset[tuple[str, int]]:
        self.snapshot, news = self.snapshot.with_leaders(hints, endpoints)
        return news


def batch(base_offset: int, *values: bytes, **options: Any) -> bytes:
    """A v2 batch of records that differ in their values only."""
    return encode_batch([(1_000, None, value, ()) for value in values], base_offset=base_offset, **options)


def at_epoch(data: bytes, leader_epoch: int) -> bytes:
    """Return a v2 batch as the leader of this epoch stores it."""
    return data[:12] + leader_epoch.to_bytes(4, "big") + data[16:]


def take(buffer: PartitionBuffer, count: int) -> list[ConsumerRecord]:
    """Return the next records of a buffer that has some."""
    assert buffer.reader is not None
    return buffer.reader.take(count)


@dataclass
class Sent:
    """A request that the state machine has sent, and methods to respond to it."""

    world: World
    call: PendingRequest
    version: int
    request: Any

    @property
    def node(self) -> int:
        assert isinstance(self.call.route, ToNode)
        return self.call.route.node

    def respond(self, response: Response) -> None:
        decoded = type(response).decode(response.encode(self.version), self.version)
        self.call.on_done(decoded, self.world.now)

    def fail(self, error: KwireError) -> None:
        self.call.on_done(error, self.world.now)

    # -- Fetch

    @property
    def partitions(self) -> dict[Key, FetchRequest.Topic.Partition]:
        """In the order of the request."""
        return {(self._name(topic), one.partition): one for topic in self.request.topics for one in topic.partitions}

    @property
    def offsets(self) -> dict[Key, int]:
        return {key: one.fetch_offset for key, one in self.partitions.items()}

    def respond_fetch(
        self,
        records: Mapping[Key, bytes] | None = None,
        *,
        codes: Mapping[Key, int] | None = None,
        aborted: Sequence[tuple[int, int]] = (),
        leave_out: Sequence[Key] = (),
        preferred: int = -1,
        leaders: Mapping[Key, tuple[int, int]] | None = None,
        diverging: Mapping[Key, tuple[int, int]] | None = None,
        high_watermark: int = 1_000_000,
        **top: Any,
    ) -> None:
        """Respond with these records and error codes, and with no records for the other partitions of the request.

        `leaders` are current leaders, (node, leader epoch) by partition; broker n is at host-n:9092.
        """
        hints = {key: _Leader(leader_id=node, leader_epoch=epoch) for key, (node, epoch) in (leaders or {}).items()}
        if self.version >= 16:
            top["node_endpoints"] = [
                FetchResponse.NodeEndpoint(node_id=node, host=f"host-{node}", port=9092)
                for node in sorted({leader.leader_id for leader in hints.values()} - {-1})
            ]
        responses = []
        for topic in self.request.topics:
            partitions = [
                FetchResponse.Topic.Partition(
                    partition_index=one.partition,
                    error_code=(codes or {}).get((self._name(topic), one.partition), 0),
                    high_watermark=high_watermark,
                    diverging_epoch=_epoch_end(*(diverging or {}).get((self._name(topic), one.partition), (-1, -1))),
                    aborted_transactions=[
                        FetchResponse.Topic.Partition.AbortedTransaction(producer_id=producer_id, first_offset=offset)
                        for producer_id, offset in aborted
                    ],
                    preferred_read_replica=preferred,
                    current_leader=hints.get((self._name(topic), one.partition), _Leader()),
                    records=(records or {}).get((self._name(topic), one.partition), b""),
                )
                for one in topic.partitions
                if (self._name(topic), one.partition) not in leave_out
            ]
            responses.append(FetchResponse.Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        self.respond(FetchResponse(responses=responses, **top))

    def _name(self, topic: FetchRequest.Topic) -> str:
        return topic.topic or self.world.view.snapshot.topic_name(topic.topic_id) or "?"

    # -- OffsetForLeaderEpoch

    @property
    def epochs(self) -> dict[Key, tuple[int, int]]:
        """(current leader epoch, epoch whose end is wanted) by partition."""
        return {
            (topic.topic, one.partition): (one.current_leader_epoch, one.leader_epoch)
            for topic in self.request.topics
            for one in topic.partitions
        }

    def respond_epoch_ends(
        self, ends: Mapping[Key, tuple[int, int]] | None = None, *, codes: Mapping[Key, int] | None = None
    ) -> None:
        """Respond with (leader epoch, end offset) by partition, and error codes."""
        found = OffsetForLeaderEpochResponse.Topic.Partition
        topics = [
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic,
                partitions=[
                    found(
                        error_code=(codes or {}).get((topic.topic, one.partition), 0),
                        partition=one.partition,
                        leader_epoch=(ends or {}).get((topic.topic, one.partition), (-1, -1))[0],
                        end_offset=(ends or {}).get((topic.topic, one.partition), (-1, -1))[1],
                    )
                    for one in topic.partitions
                ],
            )
            for topic in self.request.topics
        ]
        self.respond(OffsetForLeaderEpochResponse(topics=topics))

    # -- ListOffsets

    @property
    def timestamps(self) -> dict[Key, int]:
        return {
            (topic.name, one.partition_index): one.timestamp
            for topic in self.request.topics
            for one in topic.partitions
        }

    def respond_offsets(
        self,
        found: Mapping[Key, int | list[int]],
        *,
        codes: Mapping[Key, int] | None = None,
        leave_out: Sequence[Key] = (),
    ) -> None:
        """Respond with offsets by partition; a list is for v0."""
        topics = []
        for topic in self.request.topics:
            partitions = []
            for one in topic.partitions:
                key = topic.name, one.partition_index
                if key in leave_out:
                    continue
                partition = ListOffsetsResponse.Topic.Partition(
                    partition_index=one.partition_index, error_code=(codes or {}).get(key, 0)
                )
                offset = found.get(key, -1)
                if isinstance(offset, list):
                    partition.old_style_offsets = offset
                elif self.version > 0:
                    partition.offset = offset
                partitions.append(partition)
            topics.append(ListOffsetsResponse.Topic(name=topic.name, partitions=partitions))
        self.respond(ListOffsetsResponse(topics=topics))


@dataclass
class FakeCommitted:
    """What a group has committed: its requests, which a test completes."""

    requests: dict[Key, CommittedRequest] = field(default_factory=dict)

    def lookup(self, request: CommittedRequest) -> None:
        assert (request.topic, request.partition) not in self.requests, "two requests of one partition"
        self.requests[request.topic, request.partition] = request

    def cancel(self, request: CommittedRequest) -> None:
        assert self.requests.pop((request.topic, request.partition)) is request

    def complete(self, key: Key, result: Offset | KwireError | None) -> None:
        self.requests.pop(key).on_done(result, 0.0)


class World:
    """A fetcher and its reader's buffers. Topic "t" has partitions 0 and 1 on broker 1, and 2 on broker 2."""

    def __init__(
        self,
        topics: Mapping[str, Sequence[tuple[int, int]]] | None = None,
        *,
        max_frame_bytes: int = 100 * 1024 * 1024,
        **options: Any,
    ) -> None:
        self.now = 100.0
        self.wall_offset_ms = 0
        self.view = FakeView(snapshot({"t": [(1, 7), (1, 7), (2, 7)]} if topics is None else topics))
        self.options = ConsumerOptions(**options)
        self.wakes = 0
        self.fetch_buffer = FetchBuffer(max_bytes=self.options.max_buffered_bytes, wake_loop=self._wake)
        backoff, random = Backoff(100, 1_000), Random(5)
        self.offset_fetcher = OffsetFetcher(
            is_committed_only=self.options.is_committed_only,
            unknown_topic_timeout_ms=self.options.unknown_topic_timeout_ms,
            backoff=backoff,
            random=random,
        )
        self.committed = FakeCommitted()
        self.fetcher = Fetcher(
            self.options,
            self.fetch_buffer,
            self.offset_fetcher,
            backoff=backoff,
            random=random,
            request_timeout_ms=30_000,
            max_frame_bytes=max_frame_bytes,
            replica_max_age_ms=300_000,
            wall_ms=lambda: round(self.now * 1000) + self.wall_offset_ms,
            committed=self.committed,
        )
        self.assignment_epoch = 0
        self.buffers: dict[int, PartitionBuffer] = {}
        self.failures: dict[int, KwireError] = {}
        self.client_errors: list[KwireError] = []

    def _wake(self) -> None:
        self.wakes += 1

    def assign(self, *starts: tuple[str, int, FetchStart]) -> None:
        self.fetcher.assign([self.start(*start) for start in starts])

    def start(self, topic: str, partition: int, start: FetchStart) -> Start:
        """Return a start in a new assignment epoch, which gets its buffer."""
        self.assignment_epoch += 1
        self.buffers[self.assignment_epoch] = PartitionBuffer(
            topic,
            partition,
            self.assignment_epoch,
            known_offset(start),
            check_crc=True,
            release=self.fetch_buffer.release,
            retire=lambda reader: None,
        )
        return Start(topic, partition, self.assignment_epoch, start)

    def turn(self, seconds: float = 0.0) -> list[Sent]:
        """Advance the time, take a turn, and return the requests. A loop would not turn before `deadline`."""
        self.now += seconds
        sent = []
        for call in self.fetcher.turn(self.now, self.view):
            assert isinstance(call.route, ToNode)
            version = self.view.version(call.route.node, call.api, call.at_most)
            request = call.build(version)
            sent.append(Sent(self, call, version, type(request).decode(request.encode(version), version)))
        return sent

    def turn_one(self, seconds: float = 0.0) -> Sent:
        sent = self.turn(seconds)
        assert len(sent) == 1, sent
        return sent[0]

    def until_deadline(self) -> list[Sent]:
        """Advance the time to the deadline, as the loop does when nothing happens, and take a turn."""
        deadline = self.fetcher.deadline()
        assert deadline is not None
        assert deadline > self.now, "nothing is due"
        return self.turn(deadline - self.now)

    def posted(self) -> list[Item]:
        return self.fetch_buffer.take()

    def read(self) -> dict[Key, list[bytes | None]]:
        """Return the values of everything that arrived, by partition. Errors go to `failures` and `client_errors`."""
        values: dict[Key, list[bytes | None]] = {}
        for item in self.posted():
            if isinstance(item, ClientError):
                self.client_errors.append(item.error)
            else:
                assert not isinstance(item, RebalanceStep)
                self.buffers[item.assignment_epoch].put(item)
        for buffer in self.buffers.values():
            while buffer.has_next():
                values.setdefault((buffer.topic, buffer.partition), []).extend(r.value for r in take(buffer, 100))
            if buffer.error is not None:
                self.failures[buffer.assignment_epoch] = buffer.error
        return values
