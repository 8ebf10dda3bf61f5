"""Test that the check of the chaos runs finds a loss, a duplicate, a swap, a partial transaction, and the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chaos_runs.proof import Failure, Proof, judge_copy, judge_log, judge_offsets, judge_readers
from chaos_runs.sequence import Label, Number, Seen, key_of, label_bytes, label_of, number_of, value_of

SENT = {0: 6, 1: 4}
# Sender 0 is in partition 0, sender 1 in partition 1, in the order of sending.
LOG = [Seen(sender, serial, Number(sender, serial)) for sender, count in SENT.items() for serial in range(count)]
ACKNOWLEDGED = {seen.number: (seen.partition, seen.offset) for seen in LOG if seen.number is not None}
WHOLE, OTHER = Label("copier-1", 6), Label("copier-2", 4)
COPY = [Seen(0, 2 * at, seen.number, WHOLE if at < 6 else OTHER) for at, seen in enumerate(LOG)]

Change = Callable[[list[Seen]], Any]


def lose(at: int) -> Change:
    return lambda log: log.pop(at)


def repeat(at: int) -> Change:
    """Append the record once more at the end of its partition."""
    return lambda log: log.append(log[at]._replace(offset=100))


def swap(at: int) -> Change:
    """Swap two neighbours."""

    def change(log: list[Seen]) -> None:
        first, second = log[at], log[at + 1]
        log[at] = first._replace(number=second.number, label=second.label)
        log[at + 1] = second._replace(number=first.number, label=first.label)

    return change


def put(at: int, **fields: Any) -> Change:
    def change(log: list[Seen]) -> None:
        log[at] = log[at]._replace(**fields)

    return change


def counts(proof: Proof) -> dict[str, int]:
    return {kind: count for kind, count in proof.counts.items() if count}


def test_a_complete_log_passes() -> None:
    proof = judge_log(SENT, ACKNOWLEDGED, {}, LOG)
    assert (proof.records, proof.anomalies, proof.findings) == (10, 0, [])


@pytest.mark.parametrize(
    ("change", "expected", "finding"),
    [
        (lose(3), {"lost": 1}, "lost: number 3 of sender 0 is nowhere"),
        (
            repeat(1),
            {"duplicated": 1},
            "duplicated: number 1 of sender 0 is at partition 0 offset 1 and partition 0 offset 100",
        ),
        (
            swap(2),
            {"disordered": 1, "misplaced": 2},
            "disordered: partition 0 offset 3 holds number 2 of sender 0 after number 3",
        ),
        (
            put(4, number=None),
            {"lost": 1, "foreign": 1},
            "foreign: partition 0 offset 4 holds bytes that were never sent",
        ),
        (put(5, number=Number(0, 6)), {"lost": 1, "foreign": 1}, "foreign: number 6 of sender 0 was not sent"),
        (put(4, number=Number(7, 0)), {"lost": 1, "foreign": 1}, "foreign: number 0 of sender 7 was not sent"),
        (
            put(5, offset=9),
            {"misplaced": 1},
            "misplaced: number 5 of sender 0 was acknowledged at partition 0 offset 5, which does not hold it",
        ),
    ],
)
def test_each_anomaly_of_a_log_is_found(change: Change, expected: dict[str, int], finding: str) -> None:
    log = list(LOG)
    change(log)
    proof = judge_log(SENT, ACKNOWLEDGED, {}, log)
    assert counts(proof) == expected
    assert proof.anomalies == sum(expected.values())
    assert finding in proof.findings


def test_three_times_is_two_duplicates() -> None:
    assert counts(judge_log(SENT, {}, {}, [*LOG, LOG[2], LOG[2]])) == {"duplicated": 2}


def test_a_record_that_failed_is_an_anomaly_and_not_lost_as_well() -> None:
    failed = {Number(0, 5): Failure("not delivered within 1 ms", False)}
    proof = judge_log(SENT, {}, failed, LOG[:5] + LOG[6:])
    assert counts(proof) == {"failed": 1}
    assert proof.findings == ["failed: number 5 of sender 0: not delivered within 1 ms"]


@pytest.mark.parametrize(
    ("is_there", "possibly_persisted", "expected"),
    [(False, False, 0), (False, True, 0), (True, True, 0), (True, False, 1)],
)
def test_a_failed_record_in_a_log_that_its_error_excludes_is_found(
    is_there: bool, possibly_persisted: bool, expected: int
) -> None:
    failed = {Number(0, 5): Failure("expired", possibly_persisted)}
    proof = judge_log(SENT, {}, failed, LOG if is_there else LOG[:5] + LOG[6:], may_fail=True)
    assert proof.anomalies == expected
    assert counts(proof) == {"failed": 1} | ({"denied": 1} if expected else {})


def test_an_acknowledgement_may_lack_the_offset() -> None:
    assert judge_log(SENT, ACKNOWLEDGED | {Number(0, 1): (0, -1)}, {}, LOG).anomalies == 0


def test_at_least_once_repeats_but_keeps_the_order_of_first_occurrences() -> None:
    # 0 1 2 1 2 3: a retry of [1, 2] that was stored twice.
    numbers = [0, 1, 2, 1, 2, 3]
    log = [Seen(0, offset, Number(0, serial)) for offset, serial in enumerate(numbers)]
    proof = judge_log({0: 4}, {}, {}, log, may_repeat=True)
    assert (proof.anomalies, counts(proof)) == (0, {"duplicated": 2})
    overtaken = [Seen(0, offset, Number(0, serial)) for offset, serial in enumerate([0, 2, 3, 1, 2, 3])]
    assert judge_log({0: 4}, {}, {}, overtaken, may_repeat=True).anomalies == 1


def test_a_key_stays_in_its_partition() -> None:
    sent = {0: 101}
    log = [Seen(0, serial, Number(0, serial)) for serial in range(101)]
    assert judge_log(sent, {}, {}, log).anomalies == 0
    log[100] = log[100]._replace(partition=1)  # its key is that of 0 and 50
    assert counts(judge_log(sent, {}, {}, log)) == {"disordered": 1}


def test_a_complete_copy_passes() -> None:
    assert judge_copy(LOG, COPY).anomalies == 0
    # A copy has its own offsets and partitions; only the order within a key must be that of the source.
    assert judge_copy(LOG, list(reversed(COPY))).anomalies == 0


@pytest.mark.parametrize(
    ("change", "expected", "finding"),
    [
        (lose(0), {"lost": 1, "torn": 1}, "torn: copier-1: 5 of 6 records"),
        (
            repeat(9),
            {"duplicated": 1, "torn": 1},
            "duplicated: number 3 of sender 1 is at partition 0 offset 18 and partition 0 offset 100",
        ),
        (put(3, label=Label("copier-9", 6)), {"torn": 2}, "torn: copier-9: 1 of 6 records"),
        (put(3, label=None), {"torn": 2}, "torn: partition 0 offset 6 is of no transaction"),
        (
            put(3, number=Number(1, 77)),
            {"lost": 1, "foreign": 1},
            "foreign: number 77 of sender 1 is in the copy only",
        ),
    ],
)
def test_each_anomaly_of_a_copy_is_found(change: Change, expected: dict[str, int], finding: str) -> None:
    copy = list(COPY)
    change(copy)
    proof = judge_copy(LOG, copy)
    assert counts(proof) == expected
    assert finding in proof.findings


def test_a_visible_aborted_transaction_is_found() -> None:
    aborted = [seen._replace(offset=seen.offset + 50, label=Label("aborted", 6)) for seen in COPY[:6]]
    assert counts(judge_copy(LOG, [*COPY, *aborted])) == {"duplicated": 6}


def test_a_copy_keeps_the_order_of_keys() -> None:
    source = [Seen(0, serial, Number(0, serial)) for serial in range(51)]
    copy = [seen._replace(label=Label("t", 51)) for seen in source]
    swapped = [copy[50]._replace(offset=0), *copy[1:50], copy[0]._replace(offset=50)]  # one key
    assert judge_copy(source, copy).anomalies == 0
    assert counts(judge_copy(source, swapped)) == {"disordered": 1}


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lose(9), "readers differ: partition 1: one reads 4 records and other 3"),
        (put(2, offset=7), "readers differ: partition 0: one reads "),
        (put(9, number=None), "readers differ: partition 1: one reads "),
    ],
)
def test_readers_that_differ(change: Change, finding: str) -> None:
    other = list(LOG)
    change(other)
    proof = Proof()
    judge_readers(proof, LOG, other, ("one", "other"))
    assert counts(proof) == {"readers differ": 1}
    assert proof.findings[0].startswith(finding)


def test_readers_may_read_the_partitions_in_any_order() -> None:
    proof = Proof()
    judge_readers(proof, LOG, LOG[6:] + LOG[:6], ("one", "other"))
    assert proof.anomalies == 0


def test_a_group_that_is_not_at_the_end() -> None:
    proof = Proof()
    judge_offsets(proof, {0: 6, 1: 3}, {0: 6, 1: 4, 2: 0})
    assert proof.findings == ["offsets: the group is at 3 of 4 in partition 1"]


def test_only_a_few_findings_of_a_kind_are_kept() -> None:
    proof = judge_log({0: 1_000}, {}, {}, [])
    assert (proof.anomalies, len(proof.findings)) == (1_000, 3)


@pytest.mark.parametrize("number", [Number(0, 0), Number(3, 63), Number(1, 199_999)])
def test_the_bytes_of_a_record_have_its_number(number: Number) -> None:
    key, value = key_of(number), value_of(number)
    assert number_of(key, value) == number
    for wrong in [(key, value + b"."), (key, value[1:]), (b"0-1-", value), (None, value), (key, None), (key, b"::")]:
        assert number_of(*wrong) is None


@pytest.mark.parametrize("label", [Label("copiers-0-17-4", 750), Label("a/b", 1)])
def test_a_label_survives_its_header(label: Label) -> None:
    assert label_of(label_bytes(label)) == label


@pytest.mark.parametrize("header", [None, b"", b"/", b"name/", b"/5", b"name"])
def test_no_label(header: bytes | None) -> None:
    assert label_of(header) is None
