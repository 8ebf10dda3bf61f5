"""The documents quote what the kept outputs of benchmarks say; and that it would be noticed if they did not."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import quoted, report
from bench.contest import Result
from bench.contestants import CONTESTANTS
from bench.quoted import PAIRS, QUOTES, Kept
from bench.task import Sample

BENCHES = {pair.bench for pair in PAIRS}


@pytest.fixture
def outputs(tmp_path: Path) -> dict[str, Kept]:
    """Of runs in which all that is kwire takes 2 us of CPU and all others 9, in three times the time by the clock."""
    for bench in BENCHES:
        samples = {
            name: [Sample(1_000, *((0.002, 0.01) if name.startswith("kwire") else (0.009, 0.03)))] * 3
            for name in CONTESTANTS[bench]
        }
        file = tmp_path / f"{bench}.json"
        about = report.circumstances("a broker", [bench, "--json", str(file), "--records", "7"])
        report.write_json(file, about, [Result("a case", samples)])
    return quoted.kept(tmp_path)


def test_tables_are_made_of_what_is_kept(outputs: dict[str, Kept]) -> None:
    _, _, first, second, *_ = quoted.for_speed(outputs)
    assert first == "| `send`, a report for each record | `produce` | 2.00 | 9.00 | 4.5x | 3.0x | 5x, 2x |"
    assert second.startswith("| `send_many` | `produce` | 2.00 |")
    readme = quoted.for_readme(outputs)
    assert len(readme) == 2 + len(PAIRS)
    assert readme[2].endswith("| 4.5x | `tools/bench/run produce --records 7` |"), "not where the output went"
    assert readme[4].endswith("| 4.5x | the same |")


@pytest.mark.parametrize("name", QUOTES)
def test_a_table_is_put_in_place_of_the_one_there(name: str, outputs: dict[str, Kept]) -> None:
    heading, table = QUOTES[name]
    before = (quoted.ROOT / name).read_text()
    after = quoted.quoting(before, heading, table(outputs))
    assert quoted.quoting(after, heading, table(outputs)) == after != before
    without = [line for line in before.splitlines() if not line.startswith("|")]
    assert [line for line in after.splitlines() if not line.startswith("|")] == without


def test_what_did_not_finish_is_not_quoted(outputs: dict[str, Kept]) -> None:
    outputs["consume"].result.samples["confluent-kafka"][1] = Sample(failure="it broke")
    with pytest.raises(ValueError, match="did not finish tools/bench/run consume"):
        quoted.for_readme(outputs)


@pytest.mark.parametrize("name", QUOTES)
def test_the_documents_quote_nothing_else(name: str) -> None:
    """`tools/bench/run quote` mends it."""
    heading, table = QUOTES[name]
    text = (quoted.ROOT / name).read_text()
    assert quoted.quoting(text, heading, table(quoted.kept())) == text
