"""The checks of a member's requests find each rule that it breaks."""

from __future__ import annotations

from typing import Any

from kwire.cluster import PendingRequest, Snapshot, ToNode
from kwire.protocol import Request, Response
from kwire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kwire.simulation.group_history import TopicPartition
from kwire.simulation.member_conduct import MemberConduct

JOIN: Any = JoinGroupRequest(group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[])
SYNC = SyncGroupRequest(group_id="g", generation_id=4, member_id="m", assignments=[])
SYNCED = SyncGroupResponse(error_code=0, assignment=b"")
JOINED = JoinGroupResponse(
    error_code=0, generation_id=4, protocol_name="range", leader="m", member_id="m", members=[]
)  # fmt: skip


class Story:
    """A member and what it sends to broker 1."""

    def __init__(self, *, checks_interval: bool = True) -> None:
        self.now = 10.0
        self.handed: dict[TopicPartition, int] = {}
        self.conduct = MemberConduct(
            "m0", lambda: self.now, Snapshot, self.handed, interval=3.0, checks_interval=checks_interval
        )

    def send(
        self, request: Request[Any], response: Response | None = None, *, purpose: str = "coordinator"
    ) -> PendingRequest:
        call = self.ask(request)
        call.node, call.purpose = 1, purpose
        call.build(request.VERSIONS[-1])
        if response is not None:
            call.on_done(response, self.now)
        return call

    def ask(self, request: Request[Any]) -> PendingRequest:
        return self.conduct.watch(
            PendingRequest(ToNode(1), type(request), lambda version: request, lambda result, now: None)
        )

    def kinds(self) -> list[str]:
        return [anomaly.kind for anomaly in self.conduct.anomalies]


def beat(generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=generation, member_id="m")


def beat_848(epoch: int) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)


def beaten_848(epoch: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=epoch, heartbeat_interval_ms=1_000)


def test_heartbeats_in_time_are_no_anomaly() -> None:
    story = Story()
    story.send(JOIN, JOINED)
    for _ in range(3):
        story.now += 3.0
        story.send(beat(4), HeartbeatResponse(error_code=0))
    assert story.kinds() == []


def test_a_heartbeat_that_is_late() -> None:
    story = Story()
    story.send(JOIN, JOINED)
    story.now += 3.2
    story.send(beat(4), HeartbeatResponse(error_code=0))
    assert story.kinds() == ["heartbeat"]


def test_no_heartbeat_at_all_is_seen_by_the_next_request() -> None:
    story = Story()
    story.send(beat_848(0), beaten_848(2))
    story.now += 1.2
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=2, member_id="m", topics=[])
    story.send(commit)
    assert story.kinds() == ["heartbeat"]


def test_a_member_that_joins_sends_no_heartbeats() -> None:
    story = Story()
    story.send(JOIN, JOINED)
    story.send(JOIN)
    story.now += 60.0
    story.send(JOIN, JOINED)
    assert story.kinds() == []


def test_a_join_that_waits_for_a_connection_replaces_the_heartbeat() -> None:
    story = Story()
    story.send(JOIN, JOINED)
    story.now += 2.9
    join = story.ask(JOIN)
    story.now += 0.3
    join.build(9)
    assert story.kinds() == []


def test_the_response_to_a_heartbeat_before_the_join_asks_for_no_other() -> None:
    story = Story()
    story.send(JOIN, JOINED)
    heartbeat = story.send(beat(4))
    story.send(JOIN)
    heartbeat.on_done(HeartbeatResponse(error_code=0), story.now)
    story.now += 60.0
    story.send(JOIN, JOINED)
    assert story.kinds() == []


def test_where_faults_hold_up_heartbeats_none_is_late() -> None:
    story = Story(checks_interval=False)
    story.send(JOIN, JOINED)
    story.now += 60.0
    story.send(beat(4))
    assert story.kinds() == []


def test_an_older_generation() -> None:
    story = Story()
    story.send(JOIN, JOINED)
    story.send(beat(3))
    assert story.kinds() == ["old epoch"]


def test_an_older_epoch_until_the_member_joins_anew() -> None:
    story = Story()
    story.send(beat_848(0), beaten_848(5))
    story.send(beat_848(4))
    story.send(beat_848(0), beaten_848(1))
    story.send(beat_848(1))
    assert story.kinds() == ["old epoch"]


def test_a_commit_without_a_generation_is_no_old_one() -> None:
    story = Story()
    story.send(JOIN, JOINED)
    story.send(SYNC, SYNCED)
    for generation, found in ((-1, []), (4, []), (3, ["old epoch"])):
        story.send(commit(generation))
        assert story.kinds() == found


def test_a_commit_before_the_assignment_of_its_generation() -> None:
    story = Story()
    story.send(JOIN, JOINED)
    story.send(commit(3))
    assert story.kinds() == [], "that of the generation before"
    story.send(commit(4))
    assert story.kinds() == ["early epoch"]


def test_a_member_that_joins_its_generation_again_may_commit() -> None:
    story = Story()
    for request, response in ((JOIN, JOINED), (SYNC, SYNCED), (JOIN, JOINED)):
        story.send(request, response)
    story.send(commit(4))
    assert story.kinds() == []


def commit(generation: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=generation, topics=[])


def test_a_throttled_connection() -> None:
    story = Story()
    story.send(JOIN, JOINED)
    story.send(beat(4), HeartbeatResponse(error_code=0, throttle_time_ms=500))
    story.send(JOIN, purpose="join")
    assert story.kinds() == []
    story.now += 0.4
    story.send(JOIN)
    story.now += 0.2
    story.send(JOIN)
    assert story.kinds() == ["throttle"]


def test_a_fetch_from_below_what_the_program_got() -> None:
    story = Story()
    partitions = [FetchRequest.Topic.Partition(partition=0, fetch_offset=7, partition_max_bytes=1)]
    fetch = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchRequest.Topic(topic="t", partitions=partitions)])
    story.handed["t", 0] = 7
    story.send(fetch, purpose="fetch")
    assert story.kinds() == []
    story.handed["t", 0] = 8
    story.send(fetch, purpose="fetch")
    assert story.kinds() == ["fetched back"]
