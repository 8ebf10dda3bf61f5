"""The states of a share partition's records. Rules and many numbers are those of Kafka's SharePartitionTest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from kwire.broker.share_partition import (
    Acknowledgement,
    AcquireMode,
    InFlight,
    Limits,
    Range,
    RecordState,
    SharePartition,
    StateBatch,
)
from kwire.errors import BrokerError, ErrorCode

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState
Acquire = Callable[..., list[tuple[int, int, int]]]


def make(start: int = 0, batches: Sequence[StateBatch] = (), **limits: float) -> SharePartition:
    settings = Limits(**limits)  # type: ignore[arg-type]
    return SharePartition(start, batches, limits=lambda: settings)


def acquire(
    share: SharePartition, *fetched: Range, member: str = "m", max_records: int = 500, now: float = 0.0, **more: object
) -> list[tuple[int, int, int]]:
    found = share.acquire(member, fetched, max_records=max_records, now=now, **more)  # type: ignore[arg-type]
    return [(part.first, part.last, part.delivery_count) for part in found]


def acknowledge(
    share: SharePartition, *acks: tuple[int, int, Sequence[int]], member: str = "m", now: float = 0.0
) -> bool:
    return share.acknowledge(member, [Acknowledgement(*ack) for ack in acks], now)


def refused(share: SharePartition, *acks: tuple[int, int, Sequence[int]], member: str = "m") -> int:
    """Return the error of acknowledgements that change nothing."""
    before = share.in_flight
    with pytest.raises(BrokerError) as raised:
        acknowledge(share, *acks, member=member)
    assert share.in_flight == before
    return raised.value.code


def states(share: SharePartition) -> list[tuple[int, int, RecordState, int]]:
    """Return the ranges of the window, neighbours in the same state as one."""
    found: list[tuple[int, int, RecordState, int]] = []
    for part in share.in_flight:
        if found and found[-1][2:] == (part.state, part.delivery_count):
            found[-1] = (found[-1][0], part.last, *found[-1][2:])
        else:
            found.append((part.first, part.last, part.state, part.delivery_count))
    return found


class TestStart:
    def test_a_new_share_partition_is_empty(self) -> None:
        share = make(7)
        assert (share.start_offset, share.end_offset, share.next_fetch_offset) == (7, 7, 7)
        assert share.can_acquire

    def test_saved_batches_are_the_window(self) -> None:
        share = make(5, [StateBatch(5, 10, AVAILABLE, 2), StateBatch(11, 15, ARCHIVED, 3)])
        assert (share.start_offset, share.end_offset, share.next_fetch_offset) == (5, 16, 5)
        assert states(share) == [(5, 10, AVAILABLE, 2), (11, 15, ARCHIVED, 3)]

    def test_what_was_acquired_and_not_saved_is_available(self) -> None:
        share = make(5, [StateBatch(11, 15, ACKNOWLEDGED, 1)])
        assert states(share) == [(5, 10, AVAILABLE, 0), (11, 15, ACKNOWLEDGED, 1)]
        assert acquire(share, (5, 20)) == [(5, 10, 1), (16, 20, 1)]

    def test_saved_batches_that_are_done_move_the_start(self) -> None:
        share = make(5, [StateBatch(5, 10, ACKNOWLEDGED, 1), StateBatch(11, 12, ARCHIVED, 1)])
        assert (share.start_offset, share.end_offset) == (13, 13)

    def test_the_state_survives_a_change_of_the_leader_without_locks(self) -> None:
        share = make()
        acquire(share, (0, 9))
        acknowledge(share, (0, 3, [ACCEPT]), (4, 4, [RELEASE]), (6, 6, [REJECT]))
        acquire(share, (4, 9))
        heir = make(share.start_offset, share.state_batches())
        # The second acquisition of offset 4 was never saved.
        assert states(heir) == [(4, 4, AVAILABLE, 1), (5, 5, AVAILABLE, 0), (6, 6, ARCHIVED, 1)][: len(states(heir))]
        assert acquire(heir, (4, 9)) == [(4, 4, 2), (5, 5, 1), (7, 9, 1)]


class TestAcquire:
    def test_a_batch(self) -> None:
        share = make()
        assert acquire(share, (0, 4)) == [(0, 4, 1)]
        assert states(share) == [(0, 4, ACQUIRED, 1)]
        assert share.next_fetch_offset == 5
        assert acquire(share, (0, 4)) == []

    def test_nothing_for_no_records_or_no_batches(self) -> None:
        share = make()
        assert acquire(share, (0, 4), max_records=0) == []
        assert acquire(share) == []

    def test_batch_optimized_ends_with_the_batch_that_reaches_the_limit(self) -> None:
        assert acquire(make(), (0, 4), (5, 9), (10, 14), max_records=7) == [(0, 9, 1)]

    def test_record_limit_ends_within_a_batch(self) -> None:
        share = make()
        assert acquire(share, (0, 4), (5, 9), max_records=7, mode=AcquireMode.RECORD_LIMIT) == [(0, 6, 1)]
        assert share.next_fetch_offset == 7
        assert acquire(share, (5, 9), max_records=2, mode=AcquireMode.RECORD_LIMIT) == [(7, 8, 1)]

    def test_record_limit_counts_records_that_come_again(self) -> None:
        share = make()
        acquire(share, (0, 9))
        acknowledge(share, (0, 9, [RELEASE]))
        assert acquire(share, (0, 9), max_records=3, mode=AcquireMode.RECORD_LIMIT) == [(0, 2, 2)]

    def test_the_batch_size_splits_at_batches_of_the_log(self) -> None:
        fetched = [(0, 4), (5, 9), (10, 14), (15, 16)]
        assert acquire(make(), *fetched, batch_size=5) == [(0, 4, 1), (5, 9, 1), (10, 14, 1), (15, 16, 1)]
        assert acquire(make(), *fetched, batch_size=8) == [(0, 9, 1), (10, 16, 1)]
        assert acquire(make(), *fetched, batch_size=100) == [(0, 16, 1)]

    def test_a_fetch_that_starts_before_the_window(self) -> None:
        share = make(12)
        assert acquire(share, (10, 14), (15, 19)) == [(12, 19, 1)]
        assert make(12).acquire("m", [(5, 9)], max_records=5, now=0.0) == []

    def test_available_records_between_locked_ones(self) -> None:
        share = make()
        acquire(share, (0, 9))
        acknowledge(share, (2, 3, [RELEASE]), (7, 7, [RELEASE]))
        assert share.next_fetch_offset == 2
        assert acquire(share, (0, 9), (10, 14)) == [(2, 3, 2), (7, 7, 2), (10, 14, 1)]

    def test_the_window_has_a_limit(self) -> None:
        share = make(max_record_locks=10)
        assert acquire(share, (0, 4), (5, 9), (10, 14)) == [(0, 9, 1)]
        assert not share.can_acquire
        assert acquire(share, (10, 14)) == []

    def test_only_what_is_in_a_full_window_comes_again(self) -> None:
        share = make(max_record_locks=10)
        acquire(share, (0, 9))
        acknowledge(share, (3, 5, [RELEASE]))
        assert share.can_acquire
        assert acquire(share, (0, 9), (10, 14)) == [(3, 5, 2)]

    def test_the_window_moves_when_its_first_records_are_done(self) -> None:
        share = make(max_record_locks=10)
        acquire(share, (0, 9))
        acknowledge(share, (0, 4, [ACCEPT]))
        assert acquire(share, (10, 14), (15, 19)) == [(10, 14, 1)]

    def test_aborted_records_are_archived(self) -> None:
        share = make()
        assert acquire(share, (0, 2), (3, 5), (6, 6), (7, 9), aborted=[(3, 5)]) == [(0, 2, 1), (6, 9, 1)]
        assert states(share)[1] == (3, 5, ARCHIVED, 1)

    def test_a_window_of_aborted_records_moves_at_once(self) -> None:
        share = make()
        assert acquire(share, (0, 5), aborted=[(0, 5)]) == []
        assert share.start_offset == 6


class TestAcknowledge:
    def test_accepted_records_leave_the_window(self) -> None:
        share = make()
        acquire(share, (0, 9))
        assert acknowledge(share, (0, 9, [ACCEPT])) is True
        assert (share.start_offset, share.end_offset, share.in_flight) == (10, 10, ())

    def test_the_start_waits_for_the_first_record(self) -> None:
        share = make()
        acquire(share, (0, 9))
        acknowledge(share, (3, 9, [ACCEPT]))
        assert (share.start_offset, share.delivery_complete_count) == (0, 7)
        acknowledge(share, (0, 2, [ACCEPT]))
        assert (share.start_offset, share.delivery_complete_count) == (10, 0)

    def test_a_type_for_each_offset(self) -> None:
        share = make()
        acquire(share, (0, 4))
        acknowledge(share, (0, 4, [RELEASE, ACCEPT, REJECT, GAP, RENEW]))
        assert states(share) == [
            (0, 0, AVAILABLE, 1), (1, 1, ACKNOWLEDGED, 1), (2, 3, ARCHIVED, 1), (4, 4, ACQUIRED, 1),
        ]  # fmt: skip

    def test_one_acknowledgement_spans_several_acquisitions(self) -> None:
        share = make()
        acquire(share, (0, 4))
        acquire(share, (5, 9))
        acknowledge(share, (2, 7, [ACCEPT]))
        assert states(share) == [(0, 1, ACQUIRED, 1), (2, 7, ACKNOWLEDGED, 1), (8, 9, ACQUIRED, 1)]

    def test_records_of_another_member(self) -> None:
        share = make()
        acquire(share, (0, 4))
        assert refused(share, (0, 4, [ACCEPT]), member="other") == ErrorCode.INVALID_RECORD_STATE

    def test_records_that_are_not_locked(self) -> None:
        share = make()
        acquire(share, (0, 4))
        acknowledge(share, (1, 1, [RELEASE]), (2, 2, [ACCEPT]))
        for offset in (1, 2):
            assert refused(share, (offset, offset, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE

    def test_all_or_none(self) -> None:
        share = make()
        acquire(share, (0, 4))
        assert refused(share, (0, 2, [ACCEPT]), (2, 4, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE

    def test_offsets_outside_of_the_window(self) -> None:
        share = make()
        assert refused(share, (0, 4, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
        acquire(share, (0, 9))
        acknowledge(share, (0, 4, [ACCEPT]))
        assert acknowledge(share, (0, 4, [ACCEPT])) is False
        assert acknowledge(share, (3, 5, [ACCEPT])) is True
        assert refused(share, (8, 10, [ACCEPT])) == ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize("ack", [(0, 0, [5]), (0, 0, [-1]), (0, 2, [1, 1]), (2, 1, [1]), (0, 1, [])])
    def test_invalid_batches(self, ack: tuple[int, int, list[int]]) -> None:
        share = make()
        acquire(share, (0, 4))
        assert refused(share, ack) == ErrorCode.INVALID_REQUEST

    def test_a_renewal_changes_only_the_lock(self) -> None:
        share = make()
        acquire(share, (0, 4))
        assert acknowledge(share, (0, 4, [RENEW]), now=20.0) is False
        assert share.next_expiry == 50.0
        assert share.expire(49.0) is False
        assert share.expire(50.0) is True


class TestRelease:
    def test_a_lock_expires(self) -> None:
        share = make()
        acquire(share, (0, 4), now=1.0)
        acquire(share, (5, 9), now=2.0)
        assert share.next_expiry == 31.0
        assert share.expire(30.9) is False
        assert share.expire(31.0) is True
        assert states(share) == [(0, 4, AVAILABLE, 1), (5, 9, ACQUIRED, 1)]
        assert share.next_expiry == 32.0

    def test_a_session_ends(self) -> None:
        share = make()
        acquire(share, (0, 4), member="one")
        acquire(share, (5, 9), member="two")
        acknowledge(share, (0, 1, [ACCEPT]), member="one")
        assert share.release("one") is True
        assert states(share) == [(2, 4, AVAILABLE, 1), (5, 9, ACQUIRED, 1)]
        assert share.release("one") is False

    @pytest.mark.parametrize("end", ["release", "expire", "session"])
    def test_the_last_delivery_archives(self, end: str) -> None:
        share = make(max_delivery_count=2)
        for delivery in (1, 2):
            assert acquire(share, (0, 0)) == [(0, 0, delivery)]
            if end == "release":
                acknowledge(share, (0, 0, [RELEASE]))
            elif end == "expire":
                share.expire(30.0)
            else:
                share.release("m")
        assert (share.start_offset, share.in_flight) == (1, ())

    def test_undeliverable_records_are_reported_once(self) -> None:
        found: list[tuple[int, int, str]] = []

        def report(records: InFlight, cause: str) -> None:
            found.append((records.first, records.last, cause))

        share = SharePartition(0, limits=lambda: Limits(max_delivery_count=2), on_undeliverable=report)
        acquire(share, (0, 3))
        acknowledge(share, (0, 0, [REJECT]), (1, 1, [GAP]), (2, 2, [ACCEPT]), (3, 3, [RELEASE]))
        acquire(share, (3, 3))
        share.expire(30.0)
        assert found == [
            (0, 0, "Offset rejected by client."), (3, 3, "Offset delivery count exceeded the threshold."),
        ]  # fmt: skip

    def test_records_that_fail_come_in_smaller_parts(self) -> None:
        share = make()
        for size in (8, 8, 8, 4, 1):
            found = acquire(share, (0, 7))
            assert sum(last - first + 1 for first, last, _ in found) == size
            acknowledge(share, *((first, last, [RELEASE]) for first, last, _ in found))
        assert share.start_offset == 1

    def test_records_that_failed_often_do_not_take_others_along(self) -> None:
        share = make()
        acquire(share, (0, 1))
        for _ in range(2):
            acknowledge(share, (0, 1, [RELEASE]))
            acquire(share, (0, 1))
        acknowledge(share, (0, 1, [RELEASE]))
        assert acquire(share, (0, 1), (2, 9)) == [(0, 0, 4)]


class TestLogStart:
    def test_deleted_records_leave_the_window(self) -> None:
        share = make()
        acquire(share, (0, 9))
        acknowledge(share, (4, 9, [RELEASE]))
        assert share.advance_start(6) is True
        assert (share.start_offset, share.next_fetch_offset) == (6, 6)
        assert share.advance_start(6) is False
        assert acknowledge(share, (0, 3, [ACCEPT])) is False

    def test_a_start_behind_the_window(self) -> None:
        share = make()
        acquire(share, (0, 9))
        share.advance_start(50)
        assert (share.start_offset, share.end_offset, share.next_fetch_offset) == (50, 50, 50)
        assert acquire(share, (50, 54)) == [(50, 54, 1)]


@pytest.mark.slow
def test_no_record_is_lost_and_none_has_two_owners() -> None:
    """Random members, acknowledgements and expiries: each record ends accepted by the one who had its lock."""
    for seed in range(30):
        random = Random(seed)
        share = make(max_record_locks=100, max_delivery_count=10)
        end, now = 400, 0.0
        held: dict[int, tuple[str, float]] = {}
        accepted: set[int] = set()
        while share.start_offset < end:
            now += random.random()
            if share.next_expiry <= now:
                share.expire(now)
                held = {offset: lock for offset, lock in held.items() if lock[1] > now}
            member = random.choice("abc")
            offset = share.next_fetch_offset
            mode = random.choice(list(AcquireMode))
            if offset < end:
                size = random.randint(1, 20)
                for first, last, _ in acquire(
                    share, (offset, min(end, offset + size) - 1), member=member, max_records=7, now=now, mode=mode
                ):
                    for one in range(first, last + 1):
                        assert one not in held
                        assert one not in accepted
                        held[one] = (member, now + 30.0)
            mine = sorted(one for one, lock in held.items() if lock[0] == member)
            for one in mine:
                choice = random.choice([ACCEPT, ACCEPT, RELEASE, RENEW, None])
                if choice is None:
                    continue
                acknowledge(share, (one, one, [choice]), member=member, now=now)
                if choice == RENEW:
                    held[one] = (member, now + 30.0)
                else:
                    del held[one]
                if choice == ACCEPT:
                    accepted.add(one)
        assert len(accepted) > end * 0.9, seed  # the others were delivered too often
        assert not held
