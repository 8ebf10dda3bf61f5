"""The checker of groups finds every kind of anomaly in histories that were made to contain it."""

from __future__ import annotations

from kwire.simulation.group_checker import GroupChecker, GroupPromises
from kwire.simulation.group_history import CommittedEvent, GroupHistory, MemberEvent, MemberEventKind

HERE = ("t", 0)
BEST = GroupPromises(is_gentle=True, is_tidy=True)


class Story:
    """What members did to one partition; each event is one second after the one before it."""

    def __init__(self, *offsets: int) -> None:
        self.history = GroupHistory()
        self.log = {offset: b"%d" % offset for offset in offsets}

    def see(self, member: str, kind: MemberEventKind, offset: int = -1, value: bytes | None = None) -> None:
        at = float(len(self.history.events))
        self.history.add(MemberEvent(at, kind, member, HERE, offset, value))

    def read(self, member: str, *offsets: int) -> None:
        for offset in offsets:
            self.see(member, "handed", offset, b"%d" % offset)
            self.see(member, "processed", offset)

    def commit(self, client: str, offset: int) -> None:
        self.history.add(CommittedEvent(float(len(self.history.events)), client, HERE, offset))

    def kinds(self, promises: GroupPromises = BEST) -> set[str]:
        checker = GroupChecker(self.history, {HERE: self.log}, promises)
        return {anomaly.kind for anomaly in checker.anomalies()}


def moved_in_order() -> Story:
    story = Story(0, 1, 2, 3)
    story.see("a", "assigned")
    story.read("a", 0, 1)
    story.commit("a", 2)
    story.see("a", "revoked")
    story.see("b", "assigned")
    story.read("b", 2, 3)
    story.commit("b", 4)
    return story


def test_a_partition_that_moves_in_order_is_no_anomaly() -> None:
    story = moved_in_order()
    settled = GroupPromises(True, True, frozenset("b"), len(story.history.events))
    story.see("b", "revoked")
    assert not story.kinds(settled)


def test_a_new_owner_reads_only_after_the_end_of_a_transaction() -> None:
    for reads, found in (((), set()), ((0,), {"former owner"})):
        story = Story(0)
        story.see("a", "assigned")
        story.read("a", 0)
        story.see("a", "lost")
        story.see("b", "assigned")
        story.read("b", *reads)
        story.history.add(CommittedEvent(9.0, "a", HERE, 1, is_in_transaction=True))
        assert story.kinds(GroupPromises()) == found


def test_a_gap_in_the_log_is_no_anomaly() -> None:
    story = Story(0, 5)
    story.see("a", "assigned")
    story.read("a", 0, 5)
    assert not story.kinds()


def test_unprocessed() -> None:
    story = Story(0, 1)
    story.see("a", "assigned")
    story.read("a", 0)
    story.see("a", "handed", 1, b"1")
    assert story.kinds() == {"unprocessed"}


def test_committed_ahead() -> None:
    story = Story(0, 1)
    story.see("a", "assigned")
    story.see("a", "handed", 0, b"0")
    story.commit("a", 1)
    story.see("a", "processed", 0)
    story.read("a", 1)
    assert story.kinds() == {"committed ahead"}


def test_a_commit_of_a_former_owner() -> None:
    story = Story(0)
    story.see("a", "assigned")
    story.read("a", 0)
    story.see("a", "revoked")
    story.see("b", "assigned")
    story.commit("a", 1)
    assert story.kinds() == {"former owner"}


def test_two_owners() -> None:
    story = Story()
    story.see("a", "assigned")
    story.see("b", "assigned")
    assert story.kinds() == {"two owners"}
    assert not story.kinds(GroupPromises())


def test_who_had_it_before_the_group_became_classic_is_no_second_owner() -> None:
    story = Story()
    story.see("a", "assigned")
    story.history.downgraded_at.append(0.5)
    story.see("b", "assigned")
    assert not story.kinds()
    story.see("c", "assigned")
    assert story.kinds() == {"two owners"}


def test_a_commit_that_was_under_way_when_its_program_sought_back() -> None:
    story = Story(0, 1)
    story.see("a", "assigned")
    story.read("a", 0, 1)
    at = story.history.events[-1].at
    story.history.add(MemberEvent(at, "sought", "a", HERE, 0))
    story.history.add(CommittedEvent(at + 0.1, "a", HERE, 2))
    assert not story.kinds()
    story.history.add(CommittedEvent(at + 5.0, "a", HERE, 2))
    assert story.kinds() == {"committed ahead"}


def test_a_killed_owner_owns_nothing() -> None:
    story = Story()
    story.see("a", "assigned")
    story.see("a", "ended")
    story.see("b", "assigned")
    assert not story.kinds()


def test_records_after_the_end_of_an_ownership() -> None:
    story = Story(0)
    story.see("a", "assigned")
    story.see("a", "lost")
    story.read("a", 0)
    assert story.kinds() == {"not owned"}


def test_order() -> None:
    for offsets in ((0, 2, 1), (0, 0, 1, 2), (0, 2)):
        story = Story(0, 1, 2)
        story.see("a", "assigned")
        story.read("a", *offsets)
        assert "order" in story.kinds(), offsets


def test_an_order_after_a_seek_is_another() -> None:
    story = Story(0, 1)
    story.see("a", "assigned")
    story.read("a", 0, 1)
    story.see("a", "sought", 0)
    story.read("a", 0, 1)
    assert not story.kinds(GroupPromises())


def test_skipped() -> None:
    story = Story(0, 1)
    story.see("a", "assigned")
    story.read("a", 1)
    assert "skipped" in story.kinds()


def test_went_back() -> None:
    story = Story(0, 1)
    story.see("a", "assigned")
    story.read("a", 0, 1)
    story.commit("a", 2)
    story.see("a", "revoked")
    story.see("b", "assigned")
    story.read("b", 1)
    assert story.kinds() == {"went back", "processed twice"}


def test_callbacks() -> None:
    story = Story()
    story.see("a", "revoked")
    assert story.kinds() == {"callbacks"}
    story = Story()
    story.see("a", "assigned")
    story.see("a", "assigned")
    assert story.kinds() == {"callbacks"}


def test_wrong_record() -> None:
    story = Story(0)
    story.see("a", "assigned")
    story.see("a", "handed", 0, b"another")
    story.see("a", "processed", 0)
    assert story.kinds() == {"wrong record"}


def test_what_must_hold_when_the_group_has_settled() -> None:
    story = Story(0)
    story.see("a", "assigned")
    story.read("a", 0)
    settled = len(story.history.events)
    story.see("a", "revoked")
    assert story.kinds(GroupPromises(True, True, frozenset("a"), settled)) == {"not committed"}
    assert story.kinds(GroupPromises(True, True, frozenset("b"), settled)) == {"not committed", "no owner"}


def test_an_old_commit_that_a_broker_carries_out_late_is_no_anomaly() -> None:
    """Its client had given the request up, and sent a newer one on another connection."""
    for is_late in (True, False):
        story = Story(0, 1)
        story.see("a", "assigned")
        story.read("a", 0, 1)
        story.commit("a", 2)
        story.history.add(CommittedEvent(9.0, "a", HERE, 1, is_late=is_late))
        settled = GroupPromises(True, True, frozenset("a"), len(story.history.events))
        story.see("a", "revoked")
        assert story.kinds(settled) == (set() if is_late else {"not committed", "committed back"})
        assert story.history.committed[HERE] == (2 if is_late else 1)


def test_a_commit_of_what_only_a_former_owner_processed() -> None:
    story = Story(0, 1, 2)
    story.see("a", "assigned")
    story.read("a", 0, 1, 2)
    story.see("a", "revoked")
    story.see("b", "assigned")
    story.read("b", 0)
    story.see("b", "handed", 1, b"1")
    story.commit("b", 2)
    assert story.kinds(GroupPromises()) == {"committed ahead"}


def test_a_commit_below_the_owners_last_one() -> None:
    for seeks, found in ((False, {"committed back"}), (True, set())):
        story = Story(0, 1)
        story.see("a", "assigned")
        story.read("a", 0, 1)
        story.commit("a", 2)
        if seeks:
            story.see("a", "sought", 1)
        story.commit("a", 1)
        assert story.kinds(GroupPromises()) == found
