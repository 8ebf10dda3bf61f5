"""The sequences and epochs of a partition's producers, as a table of (written batches, batch, expected result)."""

from __future__ import annotations

import pytest

from kwire.broker.options import INT_MAX, FirstSequence
from kwire.broker.producer_state import BatchMetadata, ProducerStateManager, next_sequence
from kwire.errors import BrokerError, ErrorCode

PID = 7
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH


def producers_after(writes: list[tuple[int, int, int]]) -> ProducerStateManager:
    """`writes` are (epoch, first sequence, last sequence), one offset a record."""
    known = ProducerStateManager(first_sequence=FirstSequence.ANY, max_producers=100)
    offset = 0
    for epoch, first, last in writes:
        count = (last - first) % (INT_MAX + 1) + 1
        written = BatchMetadata(first, last, offset, offset + count - 1, -1)
        known.update(PID, epoch, written, transactional=False, now_ms=0)
        offset += count
    return known


SEVEN = [(0, n * 10, n * 10 + 9) for n in range(7)]

CASES = [
    # name, what was written, (epoch, first, last), None for new | offset for a duplicate | error
    ("the first ever may begin anywhere", [], (0, 500, 509), None),
    ("the next", [(0, 0, 9)], (0, 10, 19), None),
    ("a gap", [(0, 0, 9)], (0, 11, 19), OUT_OF_ORDER),
    ("an overlap that is no duplicate", [(0, 0, 9)], (0, 5, 14), OUT_OF_ORDER),
    ("the last again", [(0, 0, 9)], (0, 0, 9), 0),
    ("the fifth last again", SEVEN, (0, 20, 29), 20),
    ("the sixth last is forgotten", SEVEN, (0, 10, 19), OUT_OF_ORDER),
    ("a part of a batch is no duplicate", [(0, 0, 9)], (0, 0, 4), OUT_OF_ORDER),
    ("wrapped", [(0, INT_MAX - 9, INT_MAX)], (0, 0, 9), None),
    ("wrapped within a batch", [(0, INT_MAX - 1, 3)], (0, 4, 4), None),
    ("a new epoch begins at 0", [(0, 0, 9)], (1, 0, 4), None),
    ("a new epoch that does not", [(0, 0, 9)], (1, 10, 19), OUT_OF_ORDER),
    ("an old epoch", [(3, 0, 9)], (2, 10, 19), FENCED),
    ("an old epoch is no duplicate either", [(2, 0, 9), (3, 0, 4)], (2, 0, 9), FENCED),
]


@pytest.mark.parametrize(("writes", "batch", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_batch_is_new_a_duplicate_or_rejected(
    writes: list[tuple[int, int, int]], batch: tuple[int, int, int], expected: object
) -> None:
    known = producers_after(writes)
    if isinstance(expected, ErrorCode):
        with pytest.raises(BrokerError) as raised:
            known.check(PID, *batch, log_is_new=False)
        assert raised.value.code == expected
    else:
        found = known.check(PID, *batch, log_is_new=False)
        assert (found and found.base_offset) == expected


@pytest.mark.parametrize(
    ("rule", "first", "log_is_new", "accepted"),
    [
        (FirstSequence.ANY, 5, True, True),
        (FirstSequence.ZERO_IN_NEW_LOG, 5, True, False),
        (FirstSequence.ZERO_IN_NEW_LOG, 0, True, True),
        (FirstSequence.ZERO_IN_NEW_LOG, 5, False, True),
    ],
)
def test_the_first_sequence_option_limits_unknown_producers(
    rule: FirstSequence, first: int, log_is_new: bool, accepted: bool
) -> None:
    known = ProducerStateManager(first_sequence=rule, max_producers=100)
    if accepted:
        assert known.check(PID, 0, first, first, log_is_new=log_is_new) is None
    else:
        with pytest.raises(BrokerError) as raised:
            known.check(PID, 0, first, first, log_is_new=log_is_new)
        assert raised.value.code == OUT_OF_ORDER


def test_an_epoch_with_only_a_marker_starts_at_0() -> None:
    known = producers_after([(0, 0, 9)])
    known.end_transaction(PID, 1, 0, now_ms=0)
    assert known.check(PID, 1, 0, 4, log_is_new=False) is None
    with pytest.raises(BrokerError):
        known.check(PID, 1, 10, 14, log_is_new=False)


def test_transactions_start_and_end() -> None:
    known = ProducerStateManager(first_sequence=FirstSequence.ANY, max_producers=100)
    for id, offset in [(1, 10), (2, 20), (1, 30)]:
        known.update(id, 0, BatchMetadata(offset, offset, offset, offset, -1), transactional=True, now_ms=0)
    assert known.first_open_offset() == 10
    assert known.end_transaction(1, 0, 0, now_ms=0) == 10
    assert known.first_open_offset() == 20
    assert known.end_transaction(2, 0, 0, now_ms=0) == 20
    assert known.end_transaction(2, 0, 0, now_ms=0) is None
    assert known.first_open_offset() is None


def test_the_longest_idle_producer_is_removed_unless_its_transaction_is_open() -> None:
    known = ProducerStateManager(first_sequence=FirstSequence.ANY, max_producers=3)
    for id in (1, 2, 3):
        known.update(id, 0, BatchMetadata(0, 0, id, id, -1), transactional=id == 1, now_ms=id)
    known.update(2, 0, BatchMetadata(1, 1, 9, 9, -1), transactional=False, now_ms=9)
    known.update(4, 0, BatchMetadata(0, 0, 10, 10, -1), transactional=False, now_ms=10)
    assert [producer.producer_id for producer in known] == [1, 2, 4]
    known.expire(older_than_ms=10)
    assert [producer.producer_id for producer in known] == [1, 4]


def test_next_sequence_wraps() -> None:
    assert [next_sequence(n) for n in (-1, 0, INT_MAX - 1, INT_MAX)] == [0, 1, INT_MAX, 0]
