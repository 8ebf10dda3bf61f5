"""Test that an order to kill a process of Spark is carried out once, however many tasks run side by side."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from chaos_runs import spark_faults


@pytest.mark.parametrize("skip", [0, 5])
def test_one_of_many_processes_that_reach_a_step_together_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skip: int
) -> None:
    path = tmp_path / "order"
    monkeypatch.setenv(spark_faults.ORDER, str(path))
    spark_faults.order(path, "encoded", spark_faults.WORKER, skip=skip)
    fork = multiprocessing.get_context("fork")
    together = fork.Barrier(8)
    workers = [fork.Process(target=_reach_twice, args=(together,)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(worker.exitcode or 0 for worker in workers) == [-signal.SIGKILL] + [0] * 7
    assert spark_faults.was_struck(path)


def test_no_process_is_killed_at_another_step_or_after_the_order_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "order"
    monkeypatch.setenv(spark_faults.ORDER, str(path))
    spark_faults.order(path, "encoded", spark_faults.WORKER)
    spark_faults.strike("task-begun")
    spark_faults.cancel(path)
    spark_faults.strike("encoded")
    assert not spark_faults.was_struck(path)


def _reach_twice(together: Barrier) -> None:
    together.wait()
    spark_faults.strike("encoded")
    spark_faults.strike("encoded")
    os._exit(0)
