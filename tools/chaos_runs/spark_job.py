"""A driver of Spark that writes numbered rows, for `tools/chaos spark`: it may be killed and started again.

python -m chaos_runs.spark_job PLAN, where PLAN is a JSON file: the session's settings, and the cases, each with its
topic, folder, options and the order of a strike. A case that is done has a file `done` in its folder, which says
whether the order was carried out. With --second, the job is the second driver of each case: it waits until the first
hangs, goes on with its query, and then lets the first go on.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from chaos_runs import spark_faults
from chaos_runs.spark_cases import CHECKPOINT_DELETED, MARKER_EXPIRED, SPECULATION, STAGE_RETRY, TWO_DRIVERS

# Of a small session, also of those of tests.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "700m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
_STARTS_MAX = 5
_SECOND_TIMEOUT_S = 300


def main(plan_file: str, *, is_second: bool = False) -> None:
    from pyspark.sql import SparkSession

    import kwire.spark

    plan = json.loads(Path(plan_file).read_text())
    settings = {"spark.master": "local[2,4]", **SETTINGS, **plan.get("session", {})}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    kwire.spark.register(spark)
    for case in plan["cases"]:
        if is_second:
            run_second(spark, plan, case)
        elif not (Path(case["folder"]) / "done").exists():
            run_case(spark, plan, case)
    spark.stop()


def run_case(spark: Any, plan: dict[str, Any], case: dict[str, Any]) -> None:
    """Run a query to its last batch; start it again when it fails, unless it has to refuse to go on."""
    folder, kind = Path(case["folder"]), case["kind"]
    folder.mkdir(exist_ok=True)
    starts = folder / "starts"
    order = Path(os.environ[spark_faults.ORDER])
    if not starts.exists() and case["step"]:
        spark_faults.order(order, case["step"], case["victim"], skip=case["skip"])
    for _ in range(_STARTS_MAX):
        is_first = not starts.exists()
        with starts.open("a") as log:
            log.write("start\n")
        is_over = _query(spark, plan, case, is_first=is_first)
        if is_first and kind == CHECKPOINT_DELETED:
            shutil.rmtree(folder / "checkpoint")
        elif is_first and kind == MARKER_EXPIRED:
            _delete_marker(plan, case)
        elif is_over or (not is_first and _has_refused(case)):
            break
    spark_faults.cancel(order)
    # A case without a step finds the strike of the one before.
    (folder / "done").write_text(str(bool(case["step"]) and spark_faults.was_struck(order)))


def _has_refused(case: dict[str, Any]) -> bool:
    """Return whether the query has ended as it has to. After a broker's restart another error may come first."""
    return bool(case["refusal"]) and case["refusal"] in errors_of(Path(case["folder"]))


def errors_of(folder: Path) -> str:
    """Return the errors by which the queries of a case ended."""
    path = folder / "errors"
    return path.read_text() if path.exists() else ""


def run_second(spark: Any, plan: dict[str, Any], case: dict[str, Any]) -> None:
    """Run the query of a driver that hangs, and let that one go on."""
    folder = Path(case["folder"])
    order = Path(os.environ[spark_faults.ORDER])
    deadline = time.monotonic() + _SECOND_TIMEOUT_S
    while not ((folder / "starts").exists() and spark_faults.was_struck(order)) or spark_faults.is_released(order):
        if (folder / "done").exists() or time.monotonic() > deadline:
            return  # the table says that it was not struck
        time.sleep(0.1)
    with (folder / "starts").open("a") as log:
        log.write("second\n")
    _query(spark, plan, case)
    spark_faults.release(order)


def _query(spark: Any, plan: dict[str, Any], case: dict[str, Any], *, is_first: bool = False) -> bool:
    """Run the query to its last batch; False if it failed before."""
    rows, batches, kind = plan["rows"], plan["batches"], case["kind"]
    folder = Path(case["folder"])
    order = Path(os.environ[spark_faults.ORDER])
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=str(rows), numPartitions="2").load()
    if kind == STAGE_RETRY:
        source = source.repartition(2)
    query = (
        source.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("kwire")
        .options(**plan["options"], **case["options"])
        .option("topic", case["topic"])
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    commits = folder / "checkpoint" / "commits"
    hangs = kind == TWO_DRIVERS and is_first  # until the second driver has done all
    deadline = time.monotonic() + _SECOND_TIMEOUT_S
    while query.isActive and (hangs or not (commits / str(batches - 1)).exists()):
        time.sleep(0.1)  # awaitTermination would raise the error of the query
        if kind == SPECULATION and (commits / "1").exists():
            spark_faults.release(order)  # the attempt that lost goes on, after its batch
        if hangs and time.monotonic() > deadline:
            break
    query.stop()
    if query.exception() is not None:
        with (folder / "errors").open("a") as log:
            log.write(f"{_with_causes(spark, query)}\n")
    return (commits / str(batches - 1)).exists() and not hangs


def _with_causes(spark: Any, query: Any) -> str:
    """Return the error of a query with its causes: where a job fails, only a cause says why."""
    return str(spark._jvm.org.apache.spark.util.Utils.exceptionString(query._jsq.exception().get()))


def _delete_marker(plan: dict[str, Any], case: dict[str, Any]) -> None:
    from kwire import Admin

    with Admin(plan["options"]["kafka.bootstrap.servers"]) as admin:
        admin.groups.delete(case["options"]["transactionalIdPrefix"])


if __name__ == "__main__":
    main(sys.argv[1], is_second="--second" in sys.argv)
