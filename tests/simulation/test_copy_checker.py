"""The checker of copies: what is right passes, and each anomaly is found."""

from __future__ import annotations

import pytest

from kwire.simulation.copiers import copy_of
from kwire.simulation.copy_checker import anomalies_of_copies

Copies = list[tuple[int, int, bytes | None]]

LOGS = {("t", 0): {0: b"a", 1: b"b"}, ("t", 1): {5: b"c"}}
COPIES: Copies = [(0, 0, copy_of("t", 0, 0)), (0, 1, copy_of("t", 0, 1)), (1, 0, copy_of("t", 1, 5))]


def kinds(copies: Copies, open_partitions: tuple[int, ...] = ()) -> list[str]:
    return [anomaly.kind for anomaly in anomalies_of_copies(LOGS, copies, open_partitions)]


def test_each_record_once_in_order_is_right() -> None:
    assert kinds(COPIES) == []


@pytest.mark.parametrize(
    ("copies", "kind"),
    [
        (COPIES[:2], "not copied"),
        ([*COPIES, (1, 9, copy_of("t", 0, 1))], "copied twice"),
        ([COPIES[1], COPIES[0], COPIES[2]], "copy order"),
        ([*COPIES, (1, 9, b"x")], "foreign copy"),
        ([*COPIES, (1, 9, None)], "foreign copy"),
    ],
)
def test_an_anomaly_is_found(copies: Copies, kind: str) -> None:
    assert kinds(copies) == [kind]


def test_a_transaction_that_is_never_ended_is_found() -> None:
    assert kinds(COPIES, (1,)) == ["left open"]
