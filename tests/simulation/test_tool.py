"""tools/simulate: its table of seeds, what it prints of a failing seed, and that a replay is the same run."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from checks import simulate as tool

from kwire.simulation import simulate
from tests.simulation import broken


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """Restore the log level, which the tool sets for its process."""
    log = logging.getLogger("kwire")
    before = log.level
    yield
    log.setLevel(before)


def test_a_table_of_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--seeds", "3", "--scenario", "patient", "--scenario", "old", "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    rows = {row[0]: row[1:] for row in (re.findall(r"[\w,]+", line) for line in shown.splitlines()) if row}
    assert rows["scenario"] == ["seeds", "records", "faults", "anomalies", "seconds"]
    assert (rows["patient"][0], rows["old"][0], rows["all"][0], rows["all"][3]) == ("2", "1", "3", "0")


@pytest.mark.slow
def test_a_failing_seed_is_cut_down_and_can_be_replayed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken.failed_batch_is_forgotten(monkeypatch)
    assert tool.main(["--seeds", "1", "--scenario", "hasty", "--jobs", "1"]) == 1
    shown = capsys.readouterr().out
    found = re.search(r"replay: tools/simulate (--replay hasty 0 --only [\d,]+) --trace", shown)
    assert found is not None
    assert tool.main(found.group(1).split()) == 1
    assert re.search(r"^(stuck|overtaken): ", capsys.readouterr().out, re.MULTILINE)


def test_a_replay_shows_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--replay", "rush", "3", "--trace"]) == 0
    shown = capsys.readouterr().out
    assert simulate("rush", 3).digest in shown
    assert "no anomaly" in shown
    assert " resolved: " in shown


def test_a_run_without_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--replay", "rush", "3", "--only", "none"]) == 0
    assert "fault: " not in capsys.readouterr().out
