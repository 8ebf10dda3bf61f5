"""Order within a partition: rules 1 to 4, each on the queue alone."""

from __future__ import annotations

import pytest

from kwire.producer.batch import ProducerBatch
from kwire.producer.batch_builder import BatchBuilder
from kwire.producer.partition import PartitionQueue
from kwire.producer.splitting import BatchSizeEstimator
from kwire.producer.topic import SlowStart

LEADER, NEW_LEADER = (1, 7), (2, 8)


def batch(name: str, records: int = 1) -> ProducerBatch:
    run = BatchBuilder("topic", 0, 1_000)
    for number in range(records):
        run.append(0, None, f"{name}{number}".encode(), (), 10)
    return ProducerBatch(run, 0.0, 100.0)


def queue_of(*batches: ProducerBatch, window_max: int = 5) -> PartitionQueue:
    queue = PartitionQueue("topic", 0, window_max, limit=BatchSizeEstimator(1_000), slow_start=SlowStart())
    for one in batches:
        queue.add(one)
    return queue


def prove(queue: PartitionQueue, leader: tuple[int, int] = LEADER) -> None:
    """Get a first acknowledgement from the leader, which opens the window."""
    queue.queued.appendleft(batch("first"))
    queue.acknowledged(queue.take(leader), 0.0)


def test_rule_3_window_is_one_until_the_leader_has_acknowledged() -> None:
    a, b, c = batch("a"), batch("b"), batch("c")
    queue = queue_of(a, b, c)
    assert queue.take(LEADER) is a
    assert queue.blocked_reason(LEADER, 0.0) == "window of 1"
    queue.acknowledged(a, 0.0)
    assert queue.take(LEADER) is b
    assert queue.blocked_reason(LEADER, 0.0) is None
    assert queue.take(LEADER) is c


def test_rule_3_window_is_bounded_and_closes_on_an_error() -> None:
    batches = [batch(str(number)) for number in range(7)]
    queue = queue_of(*batches, window_max=5)
    prove(queue)
    for expected in batches[:5]:
        assert queue.take(LEADER) is expected
    assert queue.blocked_reason(LEADER, 0.0) == "window of 5"
    queue.failed(batches[0])
    assert queue.window(0.0) == 1


def test_rule_3_window_stays_closed_until_the_failed_batch_itself_is_acknowledged() -> None:
    """Later successes prove nothing: with the window open too early, brokers could forget the failed batch."""
    batches = [batch(str(number)) for number in range(8)]
    queue = queue_of(*batches, window_max=5)
    prove(queue)
    for _ in range(5):
        queue.take(LEADER)
    queue.retry(batches[0], retry_at=0.0)
    for other in batches[1:5]:
        queue.acknowledged(other, 0.0)
    assert queue.take(LEADER) is batches[0]
    assert queue.blocked_reason(LEADER, 0.0) == "window of 1"
    queue.acknowledged(batches[0], 0.0)
    assert queue.window(0.0) == 5


def test_rule_3_window_is_one_again_when_the_leader_may_have_forgotten() -> None:
    """Brokers forget idle producers and then accept any sequence, so a second batch could overtake a first."""
    queue = queue_of(batch("a"), batch("b"))
    prove(queue)
    assert (queue.window(59.0), queue.window(61.0)) == (5, 1)
    queue.take(LEADER)
    assert queue.blocked_reason(LEADER, 59.0) is None
    assert queue.blocked_reason(LEADER, 61.0) == "window of 1"


def test_rule_3_window_is_one_again_with_a_new_leader_or_epoch() -> None:
    for changed in (NEW_LEADER, (LEADER[0], LEADER[1] + 1)):
        queue = queue_of(batch("a"), batch("b"))
        prove(queue)
        queue.take(changed)
        assert queue.blocked_reason(changed, 0.0) == "window of 1"


def test_rule_3_a_new_epoch_of_the_same_leader_has_acknowledged_nothing() -> None:
    """It may have lost the partition and its log's end meanwhile: what it acknowledged before proves nothing."""
    queue = queue_of(*(batch(name) for name in "abcde"))
    prove(queue)
    a, next_epoch = queue.take(LEADER), (LEADER[0], LEADER[1] + 1)
    assert queue.blocked_reason(LEADER, 0.0) is None
    assert queue.blocked_reason(next_epoch, 0.0) == "window of 1"
    queue.acknowledged(a, 0.0)
    b = queue.take(next_epoch)
    assert queue.blocked_reason(next_epoch, 0.0) == "window of 1"
    queue.acknowledged(b, 0.0)
    assert queue.acknowledged_by == next_epoch
    queue.take(next_epoch)
    assert queue.blocked_reason(next_epoch, 0.0) is None


def test_rule_1_failed_batches_go_back_to_the_front_in_order() -> None:
    a, b, c, d = (batch(name) for name in "abcd")
    queue = queue_of(a, b, c, d)
    prove(queue)
    for expected in (a, b, c):
        assert queue.take(LEADER) is expected
    queue.retry(a, retry_at=0.0)
    assert queue.blocked_reason(LEADER, 0.0) is not None, "no batch overtakes while requests are in flight"
    queue.retry(b, retry_at=0.0)
    queue.retry(c, retry_at=0.0)
    assert list(queue.queued) == [a, b, c, d]


def test_a_success_behind_a_failure_keeps_the_rest_in_order() -> None:
    a, b, c = (batch(name) for name in "abc")
    queue = queue_of(a, b, c)
    prove(queue)
    for _ in range(3):
        queue.take(LEADER)
    queue.retry(a, retry_at=0.0)
    queue.acknowledged(b, 0.0)
    queue.retry(c, retry_at=0.0)
    assert list(queue.queued) == [a, c]


def test_rule_4_a_new_leader_gets_nothing_before_the_old_one_has_responded() -> None:
    a, b = batch("a"), batch("b")
    queue = queue_of(a, b)
    prove(queue)
    queue.take(LEADER)
    assert queue.blocked_reason(NEW_LEADER, 0.0) == "the old leader has not responded yet"
    queue.acknowledged(a, 0.0)
    assert queue.blocked_reason(NEW_LEADER, 0.0) is None


def test_back_off_holds_the_partition() -> None:
    queue = queue_of(batch("a"))
    queue.retry(queue.take(LEADER), retry_at=5.0)
    assert queue.blocked_reason(LEADER, 4.9) == "back-off"
    assert queue.blocked_reason(LEADER, 5.0) is None


def test_rule_2_sequences_follow_the_first_write_and_wrap() -> None:
    a, b, c = batch("a", 3), batch("b", 2), batch("c")
    queue = queue_of(a, b, c)
    queue.next_sequence = 2**31 - 3
    prove(queue)
    for expected, sequence in ((a, 2**31 - 3), (b, 0), (c, 2)):
        taken = queue.take(LEADER)
        assert taken is expected
        queue.sequence(taken, 9, 0)
        assert taken.sequence == sequence


def test_rule_2_a_sequenced_batch_is_immutable() -> None:
    a = batch("a", 2)
    queue = queue_of(a)
    queue.sequence(queue.take(LEADER), 9, 0)
    first = a.encode(2, 0, None)  # type: ignore[arg-type]
    queue.retry(a, 0.0)
    assert a.is_closed, "no record joins it any more"
    assert a.encode(2, 0, None) is first  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        queue.sequence(a, 9, 1)


def test_rule_2_after_an_epoch_bump_sequences_start_at_zero() -> None:
    a, b = batch("a", 2), batch("b")
    queue = queue_of(a, b)
    queue.sequence(queue.take(LEADER), 9, 0)
    queue.retry(a, 0.0)
    queue.restart_sequences()
    taken = queue.take(LEADER)
    queue.sequence(taken, 10, 0)
    assert (taken, taken.sequence, taken.producer_id, queue.next_sequence) == (a, 0, 10, 2)


def test_an_unsure_batch_is_never_given_a_new_identity() -> None:
    a = batch("a")
    queue = queue_of(a)
    queue.sequence(queue.take(LEADER), 9, 0)
    a.possibly_persisted = True
    queue.retry(a, 0.0)
    assert queue.sequenced_possibly_persisted()
    with pytest.raises(AssertionError):
        queue.restart_sequences()


def test_rule_7_expiry_takes_queued_batches_only() -> None:
    a, b = batch("a"), batch("b")
    queue = queue_of(a, b)
    queue.take(LEADER)
    assert queue.expired(100.0) == [b]
    assert queue.in_flight_count == 1


def test_rule_7_what_has_less_time_than_those_before_it_and_what_comes_back_expire_when_they_are_to() -> None:
    first, hasty, last = batch("first"), batch("hasty"), batch("last")
    hasty.deadline = 10.0
    queue = queue_of(first, hasty, last)
    queue.take(LEADER)
    assert queue.expired(9.9) == []
    assert queue.expired(10.0) == [hasty]
    queue.retry(first, 0.0)  # it was in flight when the queue was examined
    assert queue.expired(99.9) == []
    assert queue.expired(100.0) == [first, last]
    assert queue.is_idle
    queue.add(batch("later"))
    assert len(queue.expired(100.0)) == 1


def test_rule_2_an_unassigned_batch_returns_its_sequence_to_the_next_one() -> None:
    a, b = batch("a", 3), batch("b")
    queue = queue_of(a, b)
    queue.sequence(queue.take(LEADER), 9, 0)
    assert queue.unassign(a, retry_at=0.5)
    assert (a.is_sequenced, a.unresolved, queue.unresolved()) == (False, None, [b])
    assert queue.blocked_reason(LEADER, 0.4) == "back-off"
    queue.sequence(queue.take(LEADER), 9, 0)
    assert b.sequence == 0


@pytest.mark.parametrize("others", [1, 2])
def test_rule_2_a_batch_keeps_its_sequence_if_a_later_one_has_one(others: int) -> None:
    """Also one that has come back, and waits for this one."""
    batches = [batch(str(number)) for number in range(1 + others)]
    queue = queue_of(*batches)
    prove(queue)
    for _ in batches:
        queue.sequence(queue.take(LEADER), 9, 0)
    for one in batches:
        assert not queue.unassign(one, retry_at=0.5)
        queue.retry(one, retry_at=0.0)
    queue.take(LEADER)
    assert not queue.unassign(batches[0], retry_at=0.5)
    assert [one.sequence for one in batches] == list(range(len(batches)))
