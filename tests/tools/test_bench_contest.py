"""The contest itself: turns, ratios, failures, what is written down."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from bench import report
from bench.contest import Result, chosen_names, compete, take_turn
from bench.contestants import CONTESTANTS, contestant
from bench.contestants.reports import Reports
from bench.main import BENCHES, parser
from bench.meter import Meter, peak_bytes, resident_bytes
from bench.plot import svg
from bench.report import Column
from bench.spark_speed import filled
from bench.task import Sample, Task, payloads
from bench.throughput import cases, counted

TASK = Task("kwire C", "127.0.0.1:1", "t", 100, 10)


def result(**cpu: list[float]) -> Result:
    return Result("a case", {name: [Sample(1000, one, 2 * one) for one in all] for name, all in cpu.items()})


def test_measures_of_a_sample() -> None:
    sample = Sample(1000, 0.002, 0.004, {"p50_ms": 7.0})
    measures = [sample.measure(name) for name in ("per_cpu", "per_second", "us_cpu", "p50_ms")]
    assert measures == pytest.approx([500_000, 250_000, 2.0, 7.0])
    assert Sample.from_json(sample.to_json()) == sample
    assert Task.from_json(TASK.to_json()) == TASK


@pytest.mark.parametrize("size", [40, 100, 1000])
def test_payloads_are_of_one_size_and_fit_a_file_of_lines(size: int) -> None:
    values = payloads(size)
    assert {len(value) for value in values} == {size}
    assert len(set(values)) > 900
    assert not any(b"\n" in value for value in values)
    assert payloads(size) == values  # the same in every process


def test_turns_rotate_and_a_failure_is_not_tried_again() -> None:
    asked: list[str] = []

    def turn(name: str) -> Sample:
        asked.append(name)
        return Sample(failure="it broke") if name == "b" else Sample(1, 1.0, 1.0)

    found = compete("a case", ["a", "b", "c"], 3, turn, lambda words: None)
    assert asked == ["a", "b", "c", "c", "a", "c", "a"]
    assert found.failures == {"b": "it broke"}
    assert found.ratio("a", "c", "per_cpu") == (1.0, 1.0, 1.0)
    assert found.ratio("a", "b", "per_cpu") is None
    assert found.ratio("a", "nobody", "per_cpu") is None


def test_ratio_says_how_many_times_the_other() -> None:
    found = result(fast=[1.0, 2.0, 4.0], slow=[3.0, 6.0, 12.0])
    assert found.ratio("fast", "slow", "per_cpu") == (3.0, 3.0, 3.0)
    assert report.cell(found, "slow", Column("", "per_cpu", "x", "fast")) == "3.00x (3.00-3.00)"
    assert report.cell(found, "slow", Column("", "us_cpu", "x", "fast", True)) == "3.00x (3.00-3.00)"
    assert report.cell(found, "fast", Column("", "per_cpu", "x", "fast")) == ""


@pytest.mark.parametrize(
    ("arrived", "extra", "failure"),
    [(110, 0, None), (109, 0, "109 of 110 records arrived"), (111, 0, "111 of 110"), (120, 10, None)],
)
def test_nobody_wins_by_losing(arrived: int, extra: int, failure: str | None) -> None:
    found = counted(Sample(100, 1.0, 1.0, {"extra": extra}), TASK, arrived)
    assert found.arrived == arrived
    assert (found.failure is None) == (failure is None)
    assert failure is None or failure in (found.failure or "")


def test_what_went_wrong_before_the_count_is_not_hidden_by_it() -> None:
    assert counted(Sample(failure="no broker"), TASK, 0).failure == "no broker"


def test_a_consumer_that_misses_something_fails() -> None:
    TASK.check_read(100, 10_000)
    for seen, length in ((99, 9_900), (100, 9_999), (101, 10_100)):
        with pytest.raises(RuntimeError, match="were read"):
            TASK.check_read(seen, length)


@pytest.mark.parametrize(("failures", "delivered", "message"), [(1, 2, "first error: no"), (0, 2, "2 of 3")])
def test_reports_that_do_not_come_or_are_bad(failures: int, delivered: int, message: str) -> None:
    reports = Reports(3)
    for _ in range(delivered):
        reports.delivered()
    for _ in range(failures):
        reports.failed("no")
    with pytest.raises(RuntimeError, match=message):
        reports.wait(0)


def test_a_turn_that_fails_says_why() -> None:
    sample = take_turn("produce", replace(TASK, compression="none of those"))
    assert sample.failure is not None
    assert "none of those" in sample.failure


def test_every_contestant_is_there() -> None:
    for bench, names in CONTESTANTS.items():
        for name in names:
            assert callable(contestant(f"{bench}/{name}"))


def test_contestants_by_the_beginning_of_their_names() -> None:
    assert chosen_names("produce", ["kwire", "CONF"]) == ["kwire C", "kwire Python", "confluent-kafka"]
    assert chosen_names("produce", None) == list(CONTESTANTS["produce"])
    with pytest.raises(SystemExit, match="there are: kwire C"):
        chosen_names("produce", ["nobody"])


def test_cases_are_all_combinations() -> None:
    options = parser().parse_args(["produce", "--sizes", "100,1000", "--compression", "none,lz4", "--records", "5"])
    found = list(cases(options))
    assert [(task.size, task.compression) for _, task in found] == [
        (100, "none"), (100, "lz4"), (1000, "none"), (1000, "lz4")
    ]  # fmt: skip
    assert len({title for title, _ in found}) == 4


@pytest.mark.parametrize(
    ("arguments", "ways"), [([], ["write", "read"]), (["--way", "read"], ["read"]), (["--way", "write"], ["write"])]
)
def test_spark_can_be_asked_for_one_way_alone(arguments: list[str], ways: list[str]) -> None:
    assert list(parser().parse_args(["spark", *arguments]).way) == ways


@pytest.mark.parametrize(("partitions", "warm"), [(1, 1), (4, 4), (1000, 4)])
def test_spark_warms_up_on_few_tasks(partitions: int, warm: int) -> None:
    made: dict[str, tuple[int, int]] = {}

    class FakeStand:
        def new_topic(self, partitions: int) -> str:
            made[f"t{len(made)}"] = partitions, 0
            return f"t{len(made) - 1}"

        def fill(self, topic: str, task: Task, count: int) -> None:
            assert made[topic] == (task.partitions, 0)
            made[topic] = task.partitions, count

    task = filled(replace(TASK, partitions=partitions), FakeStand())  # type: ignore[arg-type]
    assert (made[task.warm_topic], made[task.topic]) == ((warm, 10), (partitions, 100))
    assert task.partitions == partitions


def test_the_meter_sees_processor_time_of_this_process() -> None:
    with Meter() as meter:
        sum(range(200_000))
    sample = meter.sample(1)
    assert 0 < sample.cpu_s <= sample.wall_s + 0.1
    assert 0 < resident_bytes() <= peak_bytes()


def test_json_has_every_sample(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    report.write_json(file, report.circumstances("a broker", ["produce"]), [result(one=[1.0, 2.0])])
    found = json.loads(file.read_text())
    assert found["command"] == ["tools/bench/run", "produce"]
    assert [sample["cpu_s"] for sample in found["cases"][0]["samples"]["one"]] == [1.0, 2.0]


def test_the_plot_is_svg_with_a_bar_for_each_that_did_not_fail() -> None:
    found = result(**{"kwire <C>": [1.0, 2.0], "other": [3.0]})
    found.samples["broken"] = [Sample(failure="no")]
    drawn = svg([found, found], "per_cpu", "records & more")
    root = ElementTree.fromstring(drawn)
    bars = [element for element in root.iter() if element.tag.endswith("rect")]
    assert len(bars) == 1 + 2 * 2  # the background
    assert "kwire &lt;C&gt;" in drawn
    assert "broken" not in drawn


def test_every_bench_has_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    measures = {f"p{percent}_ms": 1.0 for percent in (50, 90, 99)}
    measures |= {"bytes_per_record": 1.0, "records": 1.0, "peak_mb": 1.0}
    for name, bench in BENCHES.items():
        names = list(CONTESTANTS[name])
        found = Result(name, {one: [Sample(1, 1.0, 1.0, measures)] for one in names})
        found.samples[names[-1]] = [Sample(failure="it broke\nbadly")]
        report.print_result(found, bench.columns)
        printed = capsys.readouterr().out
        assert all(one in printed for one in names)
        assert "failed: it broke" in printed
    report.print_settings()
    assert "queue.buffering.max.messages" in capsys.readouterr().out
