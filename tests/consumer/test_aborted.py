"""Hiding aborted transactions: the table of what a log holds and what is seen of it."""

from __future__ import annotations

import pytest

from kwire.consumer.buffer import AbortedTransaction, BatchFilter
from kwire.records import decode_batches, encode_batch, encode_control_batch

A, B = 1, 2
ABORT, COMMIT = "abort", "commit"

# A log is a list of entries: a value alone, (producer, value) of a transaction, or its end: ("abort", producer).
Entry = bytes | tuple[int, bytes] | tuple[str, int]


def log_of(*entries: Entry) -> bytes:
    return b"".join(_encode(offset, entry) for offset, entry in enumerate(entries))


def _encode(offset: int, entry: Entry) -> bytes:
    if isinstance(entry, bytes):
        return encode_batch([(0, None, entry, ())], base_offset=offset)
    first, second = entry
    if isinstance(first, str):
        assert isinstance(second, int)
        return encode_control_batch(
            first, base_offset=offset, producer_id=second, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
        )
    assert isinstance(second, bytes)
    return encode_batch(
        [(0, None, second, ())],
        base_offset=offset,
        producer_id=first,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


@pytest.mark.parametrize(
    ("log", "aborted", "seen"),
    [
        pytest.param([b"a", b"b"], [], b"ab", id="no transactions"),
        pytest.param([(A, b"a"), (COMMIT, A), b"b"], [], b"ab", id="committed"),
        pytest.param([(A, b"a"), (ABORT, A), b"b"], [(A, 0)], b"b", id="aborted"),
        pytest.param([b"x", (A, b"a"), (A, b"b"), (ABORT, A), b"y"], [(A, 1)], b"xy", id="of two batches"),
        pytest.param([(A, b"a"), (ABORT, A), (A, b"b"), (COMMIT, A)], [(A, 0)], b"b", id="aborted, then committed"),
        pytest.param([(A, b"a"), (COMMIT, A), (A, b"b"), (ABORT, A)], [(A, 2)], b"a", id="committed, then aborted"),
        pytest.param([(A, b"a"), (ABORT, A), (A, b"b"), (ABORT, A)], [(A, 0), (A, 2)], b"", id="twice"),
        pytest.param([(A, b"a"), (ABORT, A), (A, b"b"), (ABORT, A)], [(A, 2), (A, 0)], b"", id="listed out of order"),
        pytest.param([(A, b"a"), (B, b"b"), (ABORT, A), (COMMIT, B)], [(A, 0)], b"b", id="two at once, one aborted"),
        pytest.param([(A, b"a"), (B, b"b"), (ABORT, B), (ABORT, A)], [(A, 0), (B, 1)], b"", id="two at once, both"),
        pytest.param([(A, b"a"), (B, b"b"), (COMMIT, B), (A, b"c"), (ABORT, A)], [(A, 0)], b"b", id="other's commit"),
        pytest.param([(A, b"a"), (COMMIT, A), (A, b"b"), (ABORT, A)], [(A, 0)], b"", id="a commit marker closes none"),
        pytest.param([(A, b"b"), (ABORT, A), b"c"], [(A, -5)], b"c", id="began before what was fetched"),
        pytest.param([(A, b"a"), b"b", (A, b"c")], [(A, 0)], b"b", id="its marker was not fetched"),
        pytest.param([b"a", (A, b"b"), (ABORT, A)], [(A, 1), (B, 99)], b"a", id="one of which nothing was fetched"),
        pytest.param([(ABORT, A), (A, b"a"), (COMMIT, A)], [], b"a", id="a marker of nothing that is here"),
        pytest.param([(ABORT, A), (A, b"a"), (COMMIT, A)], [(A, -3)], b"a", id="only its marker is here"),
    ],
)
def test_what_is_seen(log: list[Entry], aborted: list[tuple[int, int]], seen: bytes) -> None:
    batch_filter = BatchFilter([AbortedTransaction(*one) for one in aborted])
    shown = [batch for batch in decode_batches(log_of(*log)) if not batch_filter.hides(batch)]
    assert b"".join(record.value or b"" for batch in shown for record in batch.records()) == seen
    assert not any(batch.is_control for batch in shown)


def test_read_uncommitted_hides_only_what_is_no_record() -> None:
    batch_filter = BatchFilter(())
    hidden = [batch_filter.hides(batch) for batch in decode_batches(log_of((A, b"a"), (ABORT, A), b"b"))]
    assert hidden == [False, True, False]
