"""Commits of a group: what is sent, in which order, and what each error means, on virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from kwire.cluster import GroupMetadata, Snapshot
from kwire.consumer.auto_commit import AutoCommit
from kwire.consumer.offsets import Offset
from kwire.errors import (
    AuthorizationError,
    BrokerError,
    ClosedError,
    CommitFailedError,
    DisconnectedError,
    ErrorCode,
    FencedInstanceError,
    KwireError,
    RebalanceInProgressError,
    RequestTimeoutError,
    TopicError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.cluster.snapshots import snapshot
from tests.consumer.group_world import GROUP, MemberWorld, Sent
from tests.consumer.world import Key

T0, T1 = ("t", 0), ("t", 1)
E = ErrorCode


class StubMember:
    """A member that remembers what its commits reported."""

    def __init__(self) -> None:
        self.is_rebalancing = False
        self.refused: list[tuple[int, int]] = []  # (code, generation sent)

    def commit_refused(self, code: int, sent: GroupMetadata) -> None:
        self.refused.append((code, sent.generation_id))


class World(MemberWorld):
    """Commits of a member of generation 5, which owns the partitions of "t"."""

    def __init__(self, *, is_epoch: bool = False, **options: Any) -> None:
        super().__init__("classic", topics=(), assignors=("range",), **options)
        self.stub = StubMember()
        self.commits.member = self.stub
        self.commits.owned = {("t", partition) for partition in range(4)}
        self.commits.is_epoch = is_epoch
        self.set_generation(5)

    def set_generation(self, generation: int, member_id: str = "m") -> None:
        self.commits.generation = GroupMetadata(GROUP, generation, member_id, self.options.instance_id)

    def committed(self) -> Sent:
        return self.until("OffsetCommit", 2.0)


def sent_offsets(sent: Sent) -> dict[Key, int]:
    names = {topic.id: topic.name for topic in sent.world.view.snapshot.topics.values()}
    return {
        (topic.name or names[topic.topic_id], one.partition_index): one.committed_offset
        for topic in sent.request.topics
        for one in topic.partitions
    }


def respond(sent: Sent, *codes: int, leave_out: Key | None = None) -> None:
    """Respond with these codes by partition in the order of the request; the last one is for the rest."""
    left = list(codes) or [0]
    topics = []
    for topic in sent.request.topics:
        partitions = []
        for one in topic.partitions:
            code = left.pop(0) if len(left) > 1 else left[0]
            if (topic.name, one.partition_index) != leave_out:
                partitions.append(
                    OffsetCommitResponse.Topic.Partition(partition_index=one.partition_index, error_code=code)
                )
        topics.append(OffsetCommitResponse.Topic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    sent.respond(OffsetCommitResponse(topics=topics))


# -- an old commit that the coordinator carries out late


def auto_commit(world: World, processed: dict[Key, Offset]) -> AutoCommit:
    """Return an auto-commit every 5 s, and have what was stored count as committed, as consumers do."""

    def done(offsets: Mapping[Key, Offset], results: Mapping[Key, KwireError | None]) -> None:
        for key in [key for key, error in results.items() if error is None]:
            processed.pop(key, None)

    return AutoCommit(5.0, world.commits, lambda: dict(processed), done)


def test_what_was_stored_after_a_commit_without_a_response_is_sent_once_more() -> None:
    world = World()
    processed = {T0: Offset(10), T1: Offset(1)}
    auto = auto_commit(world, processed)
    auto.turn(world.now, world.view)
    auto.turn(world.now + 5, world.view)
    world.committed().fail()
    processed.clear()
    world.commit({T0: 20})
    again = world.committed()
    assert sent_offsets(again) == {T0: 20, T1: 1}
    respond(again)
    stored_at = world.now
    auto.turn(stored_at + 4.9, world.view)
    assert world.turn() == []  # the old one may still be under way
    auto.turn(stored_at + 10, world.view)
    once_more = world.committed()
    assert sent_offsets(once_more) == {T0: 20, T1: 1}
    respond(once_more)
    auto.turn(stored_at + 30, world.view)
    assert world.turn() == []


def test_what_is_sent_once_more_replaces_nothing_newer() -> None:
    world = World()
    auto = auto_commit(world, {})
    auto.turn(world.now, world.view)
    world.commit({T0: 10, T1: 1})
    world.committed().fail()
    respond(world.committed())
    world.commit({T0: 30})
    auto.turn(world.now + 20, world.view)
    assert sent_offsets(world.committed()) == {T0: 30, T1: 1}


def test_what_others_own_by_now_is_not_sent_once_more() -> None:
    world = World()
    auto = auto_commit(world, {})
    auto.turn(world.now, world.view)
    world.commit({T0: 10, T1: 1})
    world.committed().fail()
    respond(world.committed())
    world.commits.owned = {T1}
    world.commits.lose([T0])
    auto.turn(world.now + 20, world.view)
    assert sent_offsets(world.committed()) == {T1: 1}


# -- what is sent


def test_a_commit_names_the_member_and_the_leader_epoch() -> None:
    world = World(instance_id="i")
    world.commits.commit({T0: Offset(7, 3, "note")}, lambda results: None, deadline=200.0, retries=True)
    request = world.committed().request
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == (GROUP, 5, "m")
    assert request.group_instance_id == "i"
    (one,) = request.topics[0].partitions
    assert (one.committed_offset, one.committed_leader_epoch, one.committed_metadata) == (7, 3, "note")


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_carries_the_commit(version: int) -> None:
    world = World(instance_id="i")
    world.versions[OffsetCommitRequest] = version
    commit = world.commit({T0: 7, T1: 8})
    sent = world.committed()
    assert sent.version == version
    assert sent_offsets(sent) == {T0: 7, T1: 8}
    assert sent.request.group_instance_id == ("i" if version >= 7 else None)
    assert bool(sent.request.topics[0].name) == (version < 10)
    respond(sent)
    assert commit.results == {T0: None, T1: None}


def test_a_topic_without_an_id_is_committed_by_name() -> None:
    world = World()
    world.view.snapshot = snapshot({"t": [(1, 7)]}, ids={"t": UUID(int=0)})
    world.commit({T0: 7})
    sent = world.committed()
    assert (sent.version, sent.request.topics[0].name) == (9, "t")


def test_a_broker_that_keeps_offsets_in_zookeeper_is_refused() -> None:
    world = World()
    world.versions[OffsetCommitRequest] = 1
    commit = world.commit({T0: 7})
    world.turn()
    assert isinstance(commit.error, UnsupportedVersionError)


def test_s50_a_coordinator_without_the_new_protocol_gets_no_commit_of_it() -> None:
    """S50: the broker was downgraded; the member's epoch has no place in v8."""
    world = World(is_epoch=True)
    world.versions[OffsetCommitRequest] = 8
    commit = world.commit({T0: 7})
    world.turn()
    assert isinstance(commit.error, UnsupportedVersionError)
    world.versions[OffsetCommitRequest] = 9
    again = world.commit({T0: 7})
    respond(world.committed())
    assert again.error is None


def test_the_generation_is_that_of_the_moment_of_sending() -> None:
    world = World()
    world.commit({T0: 7}, retries=True)
    respond(world.committed(), E.COORDINATOR_LOAD_IN_PROGRESS)
    world.set_generation(6)
    assert world.committed().request.generation_id_or_member_epoch == 6


def test_the_generation_is_that_of_the_moment_of_sending_not_of_queueing() -> None:
    world = World()
    commit = world.commit({T0: 7})
    (pending,) = world.commits.turn(world.now, world.view)
    world.set_generation(6)
    request: Any = pending.build(9)
    assert request.generation_id_or_member_epoch == 6
    topic, (partition,) = request.topics[0].name, request.topics[0].partitions
    refused = OffsetCommitResponse.Topic.Partition(
        partition_index=partition.partition_index, error_code=E.ILLEGAL_GENERATION
    )
    pending.on_done(OffsetCommitResponse(topics=[OffsetCommitResponse.Topic(name=topic, partitions=[refused])]), 1.0)
    assert isinstance(commit.error, CommitFailedError), "it was this generation that was refused"


def test_a_consumer_without_membership_commits_with_no_generation() -> None:
    world = World()
    world.commits.owned, world.commits.member = None, None
    world.set_generation(-1, "")
    commit = world.commit({("u", 1): 7})
    sent = world.committed()
    assert (sent.request.generation_id_or_member_epoch, sent.request.member_id) == (-1, "")
    respond(sent, E.UNKNOWN_MEMBER_ID)  # the group has members
    assert isinstance(commit.error, CommitFailedError)


# -- one in flight, the newest wins


def test_later_commits_wait_and_merge() -> None:
    world = World()
    first = world.commit({T0: 1})
    sent = world.committed()
    second, third = world.commit({T0: 2, T1: 5}), world.commit({T0: 3})
    assert world.turn() == []
    respond(sent)
    assert first.error is None
    sent = world.committed()
    assert sent_offsets(sent) == {T0: 3, T1: 5}
    respond(sent)
    assert second.results == {T0: None, T1: None}
    assert third.error is None


def test_s33_an_older_offset_is_never_sent_after_a_newer_one() -> None:
    """S33 (SPR #3186): the first of two commits fails and may be retried."""
    for retries in (False, True):
        world = World()
        first = world.commit({T0: 10}, retries=retries)
        sent = world.committed()
        second = world.commit({T0: 20}, retries=retries)
        respond(sent, E.COORDINATOR_LOAD_IN_PROGRESS)
        sent = world.committed()
        assert sent_offsets(sent) == {T0: 20}
        respond(sent)
        assert second.error is None
        assert (first.error is None) == retries
        assert world.turn(10) == []


def test_s34_a_lost_response_does_not_rewind() -> None:
    """S34 (franz-go 1.21.6, overlapping commits): the connection ends with the older commit in flight."""
    world = World()
    first = world.commit({T0: 10, T1: 1})
    sent = world.committed()
    world.commit({T0: 20})
    sent.fail()
    sent = world.committed()
    assert sent_offsets(sent) == {T0: 20, T1: 1}
    respond(sent)
    assert first.results == {T0: None, T1: None}


def test_a_seek_back_is_committed_when_the_user_says_so() -> None:
    world = World()
    world.commit({T0: 20})
    sent = world.committed()
    world.commit({T0: 5})
    respond(sent)
    assert sent_offsets(world.committed()) == {T0: 5}


# -- partitions that are not owned


def test_a_partition_that_is_not_owned_fails_before_the_request() -> None:
    world = World()
    commit = world.commit({("u", 0): 1, T0: 2})
    sent = world.committed()
    assert sent_offsets(sent) == {T0: 2}
    respond(sent)
    assert commit.results is not None
    assert isinstance(commit.results["u", 0], CommitFailedError)
    assert commit.results[T0] is None


def test_lost_partitions_fail_locally_and_are_not_retried() -> None:
    world = World()
    sent_one, waiting = world.commit({T0: 1}), None
    sent = world.committed()
    waiting = world.commit({T0: 2, T1: 3})
    assert isinstance(world.commits.owned, set)
    world.commits.owned.discard(T0)
    world.commits.lose([T0])
    respond(sent, E.COORDINATOR_LOAD_IN_PROGRESS)
    assert isinstance(sent_one.error, CommitFailedError)
    assert sent_offsets(world.committed()) == {T1: 3}
    assert waiting.results is None


# -- the table of errors

_COORDINATOR = (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.REQUEST_TIMED_OUT)
_TOPIC = (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("code", [*_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, *_TOPIC])
def test_what_may_pass_is_retried_until_the_deadline(code: int) -> None:
    world = World()
    commit = world.commit({T0: 7}, timeout=3.0)
    respond(world.committed(), code)
    assert commit.results is None
    sent = world.committed()
    assert world.view.forgotten == (code in _COORDINATOR)
    respond(sent)
    assert commit.error is None
    late = world.commit({T0: 8}, timeout=3.0)
    while late.results is None:
        for again in world.turn(max(0.0, world.deadline() - world.now)):
            respond(again, code)
    assert isinstance(late.error, RequestTimeoutError)
    assert world.turn(60) == []


@pytest.mark.parametrize("code", [*_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, *_TOPIC])
def test_an_async_commit_fails_by_the_same_errors(code: int) -> None:
    world = World()
    commit = world.commit({T0: 7}, retries=False)
    respond(world.committed(), code)
    assert isinstance(commit.error, BrokerError)
    assert (commit.error.code, commit.error.is_retriable) == (code, True)
    assert world.turn(10) == []
    assert world.view.forgotten == (code in _COORDINATOR)


@pytest.mark.parametrize("code", _TOPIC)
def test_the_commit_before_a_revocation_does_not_wait_for_a_deleted_topic(code: int) -> None:
    world = World()
    commit = world.commit({T0: 7, T1: 8}, before_revoke=True)
    respond(world.committed(), code, 0)
    assert commit.results is not None
    assert isinstance(commit.results[T0], BrokerError)
    assert commit.results[T1] is None


def test_s13_async_commits_find_a_moved_coordinator() -> None:
    """S13 (KAFKA-6362, KAFKA-13840): only async commits, and the coordinator moves."""
    world = World()
    first = world.commit({T0: 1}, retries=False)
    respond(world.committed(), E.NOT_COORDINATOR)
    assert isinstance(first.error, BrokerError)
    second = world.commit({T0: 2}, retries=False)
    sent = world.committed()
    assert world.view.forgotten == 1
    respond(sent)
    assert second.error is None


@pytest.mark.parametrize("retries", [False, True])
def test_a_rebalance_in_progress_reaches_the_member_and_the_user(retries: bool) -> None:
    world = World()
    commit = world.commit({T0: 7}, retries=retries)
    respond(world.committed(), E.REBALANCE_IN_PROGRESS)
    assert isinstance(commit.error, RebalanceInProgressError)
    assert commit.error.is_retriable
    assert world.stub.refused == [(E.REBALANCE_IN_PROGRESS, 5)]


@pytest.mark.parametrize("code", [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID])
def test_a_commit_of_a_member_that_is_gone_fails(code: int) -> None:
    world = World()
    commit = world.commit({T0: 7})
    respond(world.committed(), code)
    assert isinstance(commit.error, CommitFailedError)
    assert world.stub.refused == [(code, 5)]


def test_an_old_generation_during_a_rebalance_is_no_end() -> None:
    world = World()
    world.stub.is_rebalancing = True
    commit = world.commit({T0: 7})
    respond(world.committed(), E.ILLEGAL_GENERATION)
    assert isinstance(commit.error, RebalanceInProgressError)
    world.stub.is_rebalancing = False
    overtaken = world.commit({T0: 7})
    sent = world.committed()
    world.set_generation(6)
    respond(sent, E.ILLEGAL_GENERATION)
    assert isinstance(overtaken.error, RebalanceInProgressError)


def test_a_fenced_instance_is_named() -> None:
    world = World(instance_id="box-1")
    commit = world.commit({T0: 7})
    respond(world.committed(), E.FENCED_INSTANCE_ID)
    assert isinstance(commit.error, FencedInstanceError)
    assert "box-1" in str(commit.error)
    assert world.stub.refused == [(E.FENCED_INSTANCE_ID, 5)]


@pytest.mark.parametrize("code", [E.OFFSET_METADATA_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE, 9999])
def test_what_no_retry_mends_fails_this_commit_only(code: int) -> None:
    world = World()
    commit = world.commit({T0: 7})
    respond(world.committed(), code)
    assert isinstance(commit.error, BrokerError)
    assert commit.error.code == code
    assert world.stub.refused == []
    again = world.commit({T0: 8})
    respond(world.committed())
    assert again.error is None


def test_authorization_fails_by_partition_and_by_group() -> None:
    world = World()
    commit = world.commit({T0: 7, T1: 8})
    respond(world.committed(), E.TOPIC_AUTHORIZATION_FAILED, 0)
    assert commit.results is not None
    assert isinstance(commit.results[T0], AuthorizationError)
    assert commit.results[T1] is None
    commit = world.commit({T0: 7})
    respond(world.committed(), E.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(commit.error, AuthorizationError)
    assert world.stub.refused == [(E.GROUP_AUTHORIZATION_FAILED, 5)]


def test_a_stale_epoch_is_sent_again_with_the_new_one() -> None:
    world = World(is_epoch=True)
    commit = world.commit({T0: 7})
    sent = world.committed()
    world.set_generation(6)  # by a heartbeat meanwhile
    respond(sent, E.STALE_MEMBER_EPOCH)
    sent = world.turn_one("OffsetCommit")
    assert sent.request.generation_id_or_member_epoch == 6
    respond(sent)
    assert commit.error is None


def test_a_stale_epoch_waits_for_the_new_one() -> None:
    world = World(is_epoch=True)
    commit = world.commit({T0: 7})
    respond(world.committed(), E.STALE_MEMBER_EPOCH)
    assert world.turn() == []
    world.set_generation(6)
    respond(world.committed())
    assert commit.error is None
    stale = world.commit({T0: 8}, retries=False)
    respond(world.committed(), E.STALE_MEMBER_EPOCH)
    assert isinstance(stale.error, CommitFailedError)


def test_a_partition_that_the_response_lacks_is_not_committed() -> None:
    world = World()
    world.versions[OffsetCommitRequest] = 9
    commit = world.commit({T0: 7, T1: 8}, retries=False)
    respond(world.committed(), leave_out=T1)
    assert commit.results is not None
    assert commit.results[T0] is None
    assert isinstance(commit.results[T1], BrokerError)


@pytest.mark.parametrize("retries", [False, True])
def test_a_lost_connection(retries: bool) -> None:
    world = World()
    commit = world.commit({T0: 7}, retries=retries)
    world.committed().fail()
    assert (commit.results is None) == retries
    world.turn()
    assert world.view.forgotten == 1
    if retries:
        respond(world.committed())
        assert commit.error is None
    else:
        assert isinstance(commit.error, DisconnectedError)


def test_a_commit_ends_at_its_deadline_also_while_it_is_in_flight() -> None:
    world = World()
    commit = world.commit({T0: 7}, timeout=2.0)
    sent = world.committed()
    world.turn(2.0)
    assert isinstance(commit.error, RequestTimeoutError)
    respond(sent)  # too late, and no second result


@pytest.mark.parametrize("code", _TOPIC)
def test_a_commit_of_a_partition_that_stays_unknown_fails_with_its_error(code: int) -> None:
    world = World()
    commit = world.commit({T0: 7, T1: 8}, timeout=60.0)
    respond(world.committed(), code, 0)
    began = world.now
    newer: Any = None
    while commit.results is None:
        for again in world.turn(max(0.0, world.deadline() - world.now)):
            if newer is None:
                newer = world.commit({T0: 9}, timeout=60.0)  # it changes nothing of how long the partition is unknown
            respond(again, code)
    assert 5.0 <= world.now - began < 7.0
    assert commit.results[T1] is None
    error = commit.results[T0]
    assert isinstance(error, TopicError)
    assert (error.code, error.where["partition"]) == (code, 0)
    assert isinstance(newer.error, TopicError)
    later = world.commit({T0: 10}, timeout=60.0)
    respond(world.committed(), code)
    assert later.results is None, "another commit waits anew"


def test_a_commit_that_expires_names_the_last_error_of_its_partition() -> None:
    world = World()
    commit = world.commit({T0: 7, T1: 8}, timeout=3.0)
    respond(world.committed(), E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION)
    respond(world.committed(), E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION)
    world.turn(3.0)
    assert commit.results is not None
    causes = {key: error.__cause__ for key, error in commit.results.items() if isinstance(error, RequestTimeoutError)}
    assert {key: getattr(cause, "code", None) for key, cause in causes.items()} == {
        T0: E.COORDINATOR_LOAD_IN_PROGRESS, T1: E.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip


def test_a_refused_lookup_of_the_coordinator_fails_the_commit() -> None:
    world = World()
    commit = world.commit({T0: 7})
    world.committed().fail(broker_error(E.GROUP_AUTHORIZATION_FAILED, api="FindCoordinator"))
    assert isinstance(commit.error, AuthorizationError)
    assert world.stub.refused == [(E.GROUP_AUTHORIZATION_FAILED, 5)]


def test_the_end_of_the_client_ends_commits_and_lookups() -> None:
    world = World()
    in_flight = world.commit({T0: 7})
    world.committed()
    waiting, lookup = world.commit({T0: 8}), world.lookup("t", 1)
    world.commits.closed(ClosedError("over"))
    assert isinstance(in_flight.error, ClosedError)
    assert isinstance(waiting.error, ClosedError)
    assert isinstance(lookup.result, ClosedError)
    assert isinstance(world.commit({T0: 9}).error, ClosedError)


def test_nothing_to_commit_is_done_at_once() -> None:
    assert World().commit({}).results == {}


# -- OffsetFetch


def found(
    sent: Sent, offsets: dict[Key, int], *, codes: dict[Key, int] | None = None, group_code: int = 0, epoch: int = -1,
    leave_out: Key | None = None,
) -> None:  # fmt: skip
    """Respond with offsets by partition, -1 for the rest."""
    codes = codes or {}
    names = {topic.id: topic.name for topic in sent.world.view.snapshot.topics.values()}
    if sent.version < 8:
        named = [
            OffsetFetchResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.Topic.Partition(
                        partition_index=index, committed_offset=offsets.get((topic.name, index), -1), metadata="",
                        error_code=codes.get((topic.name, index), 0),
                        **({"committed_leader_epoch": epoch} if sent.version >= 5 else {}),
                    )
                    for index in topic.partition_indexes
                    if (topic.name, index) != leave_out
                ],
            )
            for topic in sent.request.topics
        ]  # fmt: skip
        sent.respond(OffsetFetchResponse(topics=named, error_code=group_code))
        return
    (group,) = sent.request.groups
    topics = []
    for topic in group.topics:
        name = topic.name or names[topic.topic_id]
        topics.append(
            OffsetFetchResponse.Group.Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponse.Group.Topic.Partition(
                        partition_index=index, committed_offset=offsets.get((name, index), -1),
                        committed_leader_epoch=epoch, metadata=None, error_code=codes.get((name, index), 0),
                    )
                    for index in topic.partition_indexes
                    if (name, index) != leave_out
                ],
            )
        )  # fmt: skip
    sent.respond(
        OffsetFetchResponse(groups=[OffsetFetchResponse.Group(group_id=GROUP, topics=topics, error_code=group_code)])
    )


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_finds_offsets(version: int) -> None:
    world = World(is_epoch=version >= 9)
    world.versions[OffsetFetchRequest] = version
    first, second = world.lookup("t", 0), world.lookup("t", 1)
    sent = world.turn_one("OffsetFetch")
    assert sent.version == version
    assert sent.request.require_stable == (version >= 7)
    if version >= 9:
        assert (sent.request.groups[0].member_id, sent.request.groups[0].member_epoch) == ("m", 5)
    found(sent, {T0: 7}, epoch=3)
    assert first.result == Offset(7, 3 if version >= 5 else None)
    assert second.result is None


def test_a_classic_member_does_not_name_itself_to_find_offsets() -> None:
    world = World()
    world.lookup("t", 0)
    (group,) = world.turn_one("OffsetFetch").request.groups
    assert (group.member_id, group.member_epoch) == (None, -1)


def test_topics_without_an_id_are_looked_up_by_name() -> None:
    world = World()
    world.view.snapshot = Snapshot()
    lookup = world.lookup("t", 0)
    sent = world.turn_one("OffsetFetch")
    assert (sent.version, sent.request.groups[0].topics[0].name) == (9, "t")
    found(sent, {T0: 7})
    assert lookup.result == Offset(7)


@pytest.mark.parametrize(
    "code",
    [
        *_COORDINATOR,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.UNSTABLE_OFFSET_COMMIT,
        E.STALE_MEMBER_EPOCH,
        E.UNKNOWN_MEMBER_ID,
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_what_may_pass_is_looked_up_again_for_ever(code: int, whole: bool) -> None:
    world = World(is_epoch=True)
    lookup = world.lookup("t", 0)
    for _ in range(30):
        found(world.until("OffsetFetch", 2.0), {}, codes={T0: code}, group_code=code if whole else 0)
        assert lookup.results == []
    found(world.until("OffsetFetch", 2.0), {T0: 4})
    assert lookup.result == Offset(4)
    assert world.view.forgotten == (30 if code in _COORDINATOR else 0)


def test_a_lookup_ends_at_its_deadline_with_the_last_failure() -> None:
    world = World()
    limited, unlimited = world.lookup("t", 0, world.now + 3.0), world.lookup("t", 1)
    codes: dict[Key, int] = {T0: E.COORDINATOR_LOAD_IN_PROGRESS, T1: E.COORDINATOR_LOAD_IN_PROGRESS}
    began = world.now
    while not limited.results:
        found(world.until("OffsetFetch", 2.0), {}, codes=codes)
        assert world.commits.deadline() is not None
    assert 3.0 <= world.now - began < 4.0
    assert isinstance(limited.result, RequestTimeoutError)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(limited.result)
    found(world.until("OffsetFetch", 2.0), {T1: 4})
    assert unlimited.result == Offset(4)


def test_a_lookup_that_waits_for_a_response_ends_at_its_deadline() -> None:
    world = World()
    lookup = world.lookup("t", 0, world.now + 3.0)
    sent = world.turn_one("OffsetFetch")
    assert world.commits.deadline() == world.now + 3.0
    world.view.connection_error = DisconnectedError("cut")
    world.turn(3.0)
    assert "cut" in str(lookup.result)
    found(sent, {T0: 4})
    assert isinstance(lookup.result, RequestTimeoutError)


def test_s21_a_lookup_without_a_response_is_no_missing_offset() -> None:
    """S21 (KPY #2629): OffsetFetch gets no response for 40 s."""
    world = World()
    lookup = world.lookup("t", 0)
    sent = world.turn_one("OffsetFetch")
    assert world.turn(30.0) == []
    sent.fail(RequestTimeoutError("no response in time"))
    assert lookup.results == []
    sent = world.until("OffsetFetch", 2.0)
    assert world.view.forgotten == 1
    world.turn(10.0)
    found(sent, {T0: 42})
    assert lookup.result == Offset(42)


def test_s22_a_partition_that_the_response_lacks_is_looked_up_again() -> None:
    """S22 (PLT #267)."""
    world = World()
    first, second = world.lookup("t", 0), world.lookup("t", 1)
    found(world.turn_one("OffsetFetch"), {T0: 7}, leave_out=T1)
    assert first.result == Offset(7)
    assert second.results == []
    sent = world.until("OffsetFetch", 2.0)
    assert world.view.refreshes
    found(sent, {T1: 8})
    assert second.result == Offset(8)


@pytest.mark.parametrize("code", _TOPIC)
def test_an_unknown_topic_fails_after_its_time(code: int) -> None:
    world = World()
    lookup = world.lookup("t", 0)
    began = world.now
    while not lookup.results:
        found(world.until("OffsetFetch", 2.0), {}, codes={T0: code})
    assert isinstance(lookup.result, BrokerError)
    assert world.now - began >= 5.0


@pytest.mark.parametrize("code", [E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED])
def test_a_lookup_that_is_not_allowed_fails(code: int) -> None:
    world = World()
    lookup = world.lookup("t", 0)
    found(world.turn_one("OffsetFetch"), {}, codes={T0: code})
    assert isinstance(lookup.result, AuthorizationError)


def test_s34_the_response_to_a_cancelled_lookup_is_ignored() -> None:
    """S34 (franz-go, a seek undone by a late response)."""
    world = World()
    old = world.lookup("t", 0)
    sent = world.turn_one("OffsetFetch")
    world.commits.cancel(old.request)
    found(sent, {T0: 7})
    assert old.results == []
    new = world.lookup("t", 0)
    found(world.turn_one("OffsetFetch"), {T0: 9})
    assert new.result == Offset(9)


def test_a_transaction_that_does_not_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.lookup("t", 0)
    while not caplog.records:
        found(world.until("OffsetFetch", 2.0), {}, codes={T0: E.UNSTABLE_OFFSET_COMMIT})
    assert 30.0 <= world.now - 100.0 <= 33.0
    assert "t-0 waits for a transaction" in caplog.records[0].getMessage()


ALL_CODES = [code for code in ErrorCode if code]


@pytest.mark.parametrize("code", ALL_CODES, ids=lambda code: code.name)
def test_s18_no_error_of_a_commit_ends_committing(code: int) -> None:
    """S18 (AIO #344): each error code in turn; the next commit is sent."""
    world = World()
    commit = world.commit({T0: 1})
    requests = 0
    while commit.results is None:
        for sent in world.turn(0.1):
            respond(sent, code)
            requests += 1
    assert isinstance(commit.error, KwireError)
    assert requests >= 1
    again = world.commit({T0: 2})
    respond(world.committed())
    assert again.error is None
