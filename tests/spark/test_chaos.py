"""`tools/chaos spark` without Spark: its controls lose or double rows on an embedded cluster; an order strikes once.

The same steps with the whole protocol are in test_lead.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_runs import spark_faults, spark_table, spark_without
from chaos_runs.spark_cases import (
    CHECKPOINT_DELETED,
    INLINE,
    MARKER_EXPIRED,
    SIDES,
    SPECULATION,
    TWO_DRIVERS,
    Case,
    cases,
    controls,
)
from chaos_runs.spark_faults import WORKER
from chaos_runs.spark_table import Outcome
from chaos_runs.spark_without import COMPLETION, DECISION, FENCING, MARKER

from kwire.broker import Cluster
from kwire.errors import InDoubtError, KwireError
from kwire.pipeline.sides import check_topic
from kwire.spark.fault_points import IN_ABORT, LEAD_PRODUCING, RECOVERING, SIDE_PREPARED
from kwire.spark.lead import LeadTransaction
from kwire.spark.task_write import TaskWrite
from kwire.spark.transactions import TransactionRequests
from tests.spark.exactly_once_driver import Query, committed
from tests.waiting import wait_until

# Those of one process of the driver and of its tasks; the others need a second driver, or Spark.
PLAIN = [case for case in controls() if case.victim == WORKER and not case.kind]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 2}) as cluster:
        yield cluster


def new_requests(cluster: Cluster) -> TransactionRequests:
    return TransactionRequests(seconds=10.0, bootstrap=cluster.bootstrap, retry_backoff_ms=5)


@pytest.fixture
def requests(cluster: Cluster) -> Iterator[TransactionRequests]:
    found = new_requests(cluster)
    yield found
    found.close()


@pytest.fixture
def take_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Let a test take a step out; afterwards the classes are whole again."""
    for owner, names in (
        (TaskWrite, ("_add", "_write", "_prepared", "_is_decided")),
        (LeadTransaction, ("_is_decided", "_check_marker", "_complete_earlier", "recover", "abort")),
        (TransactionRequests, ("begin",)),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    spark_without._change.cache_clear()
    yield monkeypatch
    spark_without._change.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_a_protocol_without_a_step_loses_or_doubles_rows(
    cluster: Cluster, requests: TransactionRequests, take_out: pytest.MonkeyPatch, case: Case
) -> None:
    spark_without._change(case.without)
    if case.without == COMPLETION:  # Spark's driver goes on when this fails: see strike
        take_out.setattr(LeadTransaction, "recover", lambda self: None)
    query = Query(requests, case.mode)
    query.write(0)
    query.death.step = case.step
    query.write(1)
    query.death.step = None
    query.write(2)
    found, expected = committed(cluster.bootstrap), query.expected(range(3))
    lost, doubled = expected - found, found - expected
    assert bool(lost) == (case.without == COMPLETION)
    assert bool(doubled) == (case.without != COMPLETION)


@pytest.mark.slow
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_the_same_cases_hold_with_it(cluster: Cluster, requests: TransactionRequests, case: Case) -> None:
    query = Query(requests, case.mode)
    query.write(0)
    query.death.step = case.step
    query.write(1)
    query.write(2)
    assert committed(cluster.bootstrap) == query.expected(range(3))


@pytest.mark.parametrize("mode", [INLINE, SIDES])
def test_two_drivers_with_ids_of_their_own_double_a_batch(
    cluster: Cluster, requests: TransactionRequests, take_out: pytest.MonkeyPatch, mode: str
) -> None:
    spark_without._change(FENCING)
    other = new_requests(cluster)
    first, second = Query(requests, mode, run="a"), Query(other, mode, run="b")
    first.write(0)
    lead = first.lead
    lead._reach = lambda step: second.write(1) if step == LEAD_PRODUCING else None
    parts = first.tasks(1)
    if mode == INLINE:
        lead.commit(first.batch(1), parts)
    else:  # the sides of the first are left over from a dead run, as the second sees it: that fences, too
        with pytest.raises(InDoubtError):
            lead.commit(first.batch(1), parts)
    other.close()
    found = committed(cluster.bootstrap)
    assert bool(found - first.expected(range(2))) == (mode == INLINE)


@pytest.mark.parametrize("step", [RECOVERING, IN_ABORT])
def test_a_query_that_cannot_complete_its_newest_batch_goes_on(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spark_without.WITHOUT, "")
    spark_without.take_out(RECOVERING)
    monkeypatch.setenv(spark_without.WITHOUT, COMPLETION)
    monkeypatch.setattr(spark_without, "_change", lambda without: None)
    with pytest.raises(KwireError, match="taken out"):
        spark_without.take_out(step)
    spark_without.take_out(SIDE_PREPARED)


def test_a_process_that_aborts_completes_a_decided_batch_though_the_marker_is_ignored(
    take_out: pytest.MonkeyPatch,
) -> None:
    take_out.setenv(spark_without.WITHOUT, MARKER)
    is_decided = LeadTransaction._is_decided
    spark_without.take_out(IN_ABORT)
    assert LeadTransaction._is_decided is is_decided
    spark_without.take_out(LEAD_PRODUCING)
    assert LeadTransaction._is_decided is not is_decided


def test_cases_have_names_that_topics_can_have() -> None:
    found = [*cases(), *controls()]
    assert len({case.name for case in found}) == len(found)
    for case in found:
        check_topic(case.name)


@pytest.mark.parametrize(
    ("case", "changes", "verdict"),
    [
        (Case(SIDES, WORKER, SIDE_PREPARED), {}, "holds"),
        (Case(SIDES, WORKER, SIDE_PREPARED), {"doubled": 1}, "FAILS"),
        (Case(SIDES, WORKER, SIDE_PREPARED), {"lost": 1}, "FAILS"),
        (Case(SIDES, WORKER, SIDE_PREPARED), {"is_open": True}, "FAILS"),
        (Case(SIDES, WORKER, SIDE_PREPARED), {"was_struck": False}, "NOT STRUCK"),
        (Case(INLINE, kind=CHECKPOINT_DELETED), {"was_struck": False}, "holds, refuses"),
        (Case(INLINE, kind=CHECKPOINT_DELETED), {"was_struck": False, "has_refused": False}, "NOT REFUSED"),
        (Case(SIDES, WORKER, SIDE_PREPARED, without=DECISION), {"doubled": 3}, "doubles"),
        (Case(SIDES, WORKER, SIDE_PREPARED, without=DECISION), {"lost": 3}, "loses"),
        (Case(SIDES, WORKER, SIDE_PREPARED, without=DECISION), {}, "NO HARM"),
    ],
)
def test_verdicts(case: Case, changes: dict[str, bool | int], verdict: str) -> None:
    values: dict[str, int | bool] = {"was_struck": True, "lost": 0, "doubled": 0, "is_open": False, **changes}
    outcome = Outcome(case, starts=1, **values)  # type: ignore[arg-type]
    assert outcome.verdict == verdict
    if case.without:
        assert outcome.proves == (verdict in ("loses", "doubles"))
    else:
        assert outcome.holds == verdict.startswith("holds")


def test_what_special_cases_need() -> None:
    assert Case(INLINE, kind=TWO_DRIVERS).place == "twins"
    assert Case(INLINE, kind=SPECULATION).place == "speculative"
    assert Case(INLINE, kind=MARKER_EXPIRED).refusal == "MissingMarkerError"
    assert Case(INLINE, kind=MARKER_EXPIRED, without="refusal").refusal == ""


def test_who_hangs_goes_on_when_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second to reach the step hangs; no other does, nor the same one again."""
    path = tmp_path / "order"
    monkeypatch.setenv(spark_faults.ORDER, str(path))
    monkeypatch.setenv(spark_without.WITHOUT, "")
    spark_faults.order(path, "here", spark_faults.BROKER, skip=1)
    reached: Counter[str] = Counter()

    def go() -> None:
        for step in ("there", "here", "here", "here"):
            spark_faults.strike(step)
            reached[step] += 1

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    wait_until(lambda: spark_faults.victim_struck(path) == spark_faults.BROKER, 30)
    assert reached == {"there": 1, "here": 1}
    spark_faults.release(path)
    thread.join(30)
    assert reached == {"there": 1, "here": 3}
    assert json.loads(path.with_suffix(".struck").read_text())["skip"] == 0
    spark_faults.order(path, "here", WORKER)
    assert not spark_faults.was_struck(path)
    assert not spark_faults.is_released(path)
    spark_faults.cancel(path)
    spark_faults.strike("here")


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_a_python_without_pyspark_is_refused(python: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark_table.main(["--python", python]) == 2
    assert capsys.readouterr().out == f"{python} is no Python with a PySpark\n"
