"""Tests that documents name as their evidence exist, and each requirement of queues names one."""

from __future__ import annotations

import re
from pathlib import Path

from kwire.simulation import QUEUE_SCENARIOS

ROOT = Path(__file__).parents[1]


def test_tests_that_documents_name_exist() -> None:
    sources = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    tests = {name for source in sources for name in re.findall(r"^(?:async )?def (test_\w+)", source, re.MULTILINE)}
    named = {
        (path.name, name)
        for path in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"`(test_\w+)`", path.read_text())
    }
    assert {path for path, _ in named} >= {"consume.md", "queues.md"}
    assert [(path, name) for path, name in sorted(named) if name not in tests] == []


def test_each_requirement_of_queues_has_a_row_and_a_test() -> None:
    page = (ROOT / "docs" / "reference" / "queues.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines()]
    shown = {row[0].strip("| "): row[-1] for row in rows if re.fullmatch(r"\|? ?[QF]\d+", row[0])}
    assert set(shown) == {f"Q{number}" for number in range(1, 101)} | {f"F{number}" for number in range(1, 30)}
    assert [row for row, evidence in shown.items() if "`test_" not in evidence] == []
    scenarios = {name for evidence in shown.values() for name in re.findall(r"simulation: `([\w-]+)`", evidence)}
    assert scenarios <= set(QUEUE_SCENARIOS)
    assert len(scenarios) >= 12


def test_each_flaw_has_its_answer_in_the_guide() -> None:
    guide = (ROOT / "docs" / "queues.md").read_text()
    assert re.findall(r"^\| (F\d+) \|", guide, re.MULTILINE) == [f"F{number}" for number in range(1, 30)]
