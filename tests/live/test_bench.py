"""tools/bench, once through with few records: every contestant does what it is asked to on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.main import BENCHES, main

FEW = ["--records", "2000", "--warmup", "500", "--rounds", "1", "--partitions", "2"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", *FEW, "--compression", "lz4"],
        ["produce", *FEW, "--keys", "100", "--only", "kwire,confluent,aio,kafka-python"],
        ["consume", *FEW, "--compression", "lz4"],
        ["latency", "--records", "20", "--rounds", "1"],
        ["memory", *FEW],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[7:9]),
)
def test_bench(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = tmp_path / "found.json", tmp_path / "found.svg"
    code = main([*arguments, "--json", str(files[0]), "--svg", str(files[1])])
    printed = capsys.readouterr().out
    assert code == 0, printed
    found = json.loads(files[0].read_text())
    for case in found["cases"]:
        for samples in case["samples"].values():
            assert [sample["failure"] for sample in samples] == [None]
    assert files[1].read_text().count("<rect") > len(BENCHES)
