"""The simulation finds senders with a bug that some client has had, each within a few seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kwire.simulation import simulate
from tests.simulation import broken

Break = Callable[[pytest.MonkeyPatch], None]

# The bug, the scenario, the anomalies that reveal it, the first seed, and how many seeds suffice.
CASES: list[tuple[Break, str, set[str], int, int]] = [
    (broken.no_first_ack_gate, "rough", {"gate"}, 0, 10),
    (broken.back_of_the_queue, "rush", {"order", "duplicate"}, 0, 10),
    (broken.sequence_used_again, "rough", {"lost", "offset", "probe"}, 0, 10),
    (broken.resolutions_out_of_order, "rough", {"resolution order"}, 0, 15),
    (broken.failed_batch_is_forgotten, "hasty", {"stuck"}, 0, 5),
    (broken.no_new_epoch_after_doubt, "tardy", {"seen", "torn", "hidden"}, 0, 10),
    (broken.commit_before_all_is_written, "transactions", {"half acked", "torn", "hidden", "crash"}, 0, 5),
    (broken.aborted_records_are_read, "transactions", {"seen"}, 0, 5),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "scenario", "kinds", "first", "seeds"), CASES, ids=lambda case: getattr(case, "__name__", "")
)
def test_broken_senders_are_caught(
    break_it: Break, scenario: str, kinds: set[str], first: int, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert any(simulate(scenario, seed).kinds & kinds for seed in range(first, first + seeds))
