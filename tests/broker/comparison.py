"""The two brokers to compare, real Kafka and the embedded one, and the requests of the comparison's cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from kwire.net import SystemClock
from kwire.protocol.messages.create_topics import CreateTopicsRequest
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire.protocol.messages.heartbeat import HeartbeatRequest
from kwire.protocol.messages.join_group import JoinGroupRequest
from kwire.protocol.messages.list_offsets import ListOffsetsRequest
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.messages.sync_group import SyncGroupRequest
from kwire.protocol.schema import Request, Response
from tests.broker.client import Client
from tests.waiting import wait_for

R = TypeVar("R", bound=Response)
NOW_MS = SystemClock().time_ms()
RETRIABLE = (14, 15, 16)  # the coordinator is not ready while Kafka creates __consumer_offsets


class Side:
    """One of the two brokers. Each case has its own topic."""

    def __init__(self, host: str, port: int) -> None:
        self.client = Client((host, port))
        self.case = ""
        self.made = 0
        # The first FindCoordinator creates Kafka's __consumer_offsets.
        self.until_coordinated(lambda: self.request(FindCoordinatorRequest(key="g", key_type=0), 3))

    def request(self, request: Request[R], version: int | None = None) -> R:
        """Return the response."""
        response: R = self.client.request(request, version)
        assert response is not None, self.client.cause
        return response

    def topic(self, partitions: int = 1, configs: Mapping[str, str] = MappingProxyType({})) -> tuple[str, UUID]:
        self.made += 1
        name = f"{self.case}-{self.made}"
        chosen = [CreateTopicsRequest.Topic.Config(name=name, value=value) for name, value in configs.items()]
        topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1, configs=chosen)
        (made,) = self.request(CreateTopicsRequest(topics=[topic])).topics
        assert made.error_code == 0, made
        self.until_led(name, partitions)
        return name, made.topic_id

    def until_led(self, name: str, partitions: int = 1) -> None:
        """Wait until the leaders know their role: in Kafka they learn it a moment after the topic is created."""
        requested = [ListOffsetsRequest.Topic.Partition(partition_index=p, timestamp=-1) for p in range(partitions)]
        topic = ListOffsetsRequest.Topic(name=name, partitions=requested)
        wait_for(
            lambda: self.request(ListOffsetsRequest(replica_id=-1, topics=[topic]), 9),
            lambda response: not any(codes(response.topics[0].partitions)),
        )

    def produce(
        self, topic: tuple[str, UUID], records: bytes | None, version: int = 12, *, acks: int = -1, partition: int = 0
    ) -> tuple[Any, ...]:
        data = ProduceRequest.Topic.Partition(index=partition, records=records)
        requested = ProduceRequest.Topic(name=topic[0], topic_id=topic[1], partition_data=[data])
        response = self.request(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[requested]), version)
        (result,) = response.responses[0].partition_responses
        return result.error_code, result.base_offset, result.log_start_offset, result.log_append_time_ms >= 0

    def fetch(
        self, topic: tuple[str, UUID], offset: int, version: int = 17, *, limit: int = 1 << 20, epoch: int = -1,
        committed: bool = False, session: tuple[int, int] = (0, -1), partition: int = 0, last_epoch: int = -1,
    ) -> Any:  # fmt: skip
        requested = FetchRequest.Topic.Partition(
            partition=partition, fetch_offset=offset, partition_max_bytes=limit, current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
        )  # fmt: skip
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, isolation_level=int(committed), session_id=session[0],
            session_epoch=session[1],
            topics=[FetchRequest.Topic(topic=topic[0], topic_id=topic[1], partitions=[requested])],
        )  # fmt: skip
        response = self.request(request, version)
        if response.error_code:
            return response.error_code
        (result,) = response.responses[0].partitions
        return (
            result.error_code, result.high_watermark, result.last_stable_offset, result.log_start_offset,
            result.aborted_transactions, len(result.records or b""), result.diverging_epoch,
        )  # fmt: skip

    def join(self, group: str, member_id: str = "", version: int = 9, **more: Any) -> Any:
        fields = {
            "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer",
            "protocols": [JoinGroupRequest.Protocol(name="range", metadata=b"sub")], **more,
        }  # fmt: skip
        request = JoinGroupRequest(group_id=group, member_id=member_id, **fields)
        return self.until_coordinated(lambda: self.request(request, version))

    def until_coordinated(self, send: Callable[[], Any]) -> Any:
        return wait_for(send, lambda response: getattr(response, "error_code", 0) not in RETRIABLE)

    def joined(self, group: str) -> Any:
        """Return the JoinGroup response of a group of one member, which is in its sync phase."""
        given = self.join(group)
        assert given.error_code == 79
        return self.join(group, given.member_id)

    def sync(self, group: str, joined: Any, generation: int | None = None, **more: Any) -> int:
        fields = {"protocol_type": "consumer", "protocol_name": "range", "member_id": joined.member_id, **more}
        request = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id if generation is None else generation,
            assignments=[SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"part")], **fields,
        )  # fmt: skip
        return self.request(request).error_code

    def heartbeat(self, group: str, joined: Any, **more: Any) -> int:
        fields = {"generation_id": joined.generation_id, "member_id": joined.member_id, **more}
        return self.request(HeartbeatRequest(group_id=group, **fields)).error_code

    def commit(
        self, group: str, topic: str, offset: int = 5, *, generation: int = -1, member_id: str = "",
        metadata: str = "", partition: int = 0, version: int = 9,
    ) -> int:  # fmt: skip
        partition_data = OffsetCommitRequest.Topic.Partition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member_id,
            topics=[OffsetCommitRequest.Topic(name=topic, partitions=[partition_data])],
        )  # fmt: skip
        return self.request(request, version).topics[0].partitions[0].error_code


def codes(results: list[Any]) -> list[int]:
    return [result.error_code for result in results]


def results_by_side(sides: tuple[Side, Side], case: Callable[[Side], Iterator[Any]]) -> list[list[Any]]:
    """Return what a case yields for each of the two."""
    response = []
    for side in sides:
        side.case = case.__name__
        response.append(list(case(side)))
    return response
