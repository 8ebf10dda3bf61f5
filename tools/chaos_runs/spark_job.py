"""A driver of Spark that writes numbered rows, for `tools/chaos spark`: it may be killed and started again.

python -m chaos_runs.spark_job PLAN, where PLAN is a JSON file: the cases, each with its topic, folder, options and the
order of a strike. A case that is done has a file `done` in its folder, which says whether the order was carried out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from chaos_runs import spark_faults

_STARTS_MAX = 5


def main(plan_file: str) -> None:
    from pyspark.sql import SparkSession

    import kwire.spark

    plan = json.loads(Path(plan_file).read_text())
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    kwire.spark.register(spark)
    for case in plan["cases"]:
        folder = Path(case["folder"])
        if not (folder / "done").exists():
            run_case(spark, plan, case)
    spark.stop()


def run_case(spark: Any, plan: dict[str, Any], case: dict[str, Any]) -> None:
    """Run a query to its last batch; start it again when it fails."""
    folder = Path(case["folder"])
    folder.mkdir(exist_ok=True)
    starts = folder / "starts"
    order = Path(os.environ[spark_faults.ORDER])
    if not starts.exists() and case["step"]:
        spark_faults.order(order, case["step"], case["victim"], skip=case["skip"])
    for _ in range(_STARTS_MAX):
        with starts.open("a") as log:
            log.write("start\n")
        if _query(spark, plan, case, folder):
            break
    spark_faults.cancel(order)
    (folder / "done").write_text(str(spark_faults.was_struck(order)))


def _query(spark: Any, plan: dict[str, Any], case: dict[str, Any], folder: Path) -> bool:
    """Run the query to its last batch; False if it failed before."""
    rows, batches = plan["rows"], plan["batches"]
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=str(rows), numPartitions="2").load()
    query = (
        source.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("kwire")
        .options(**plan["options"], **case["options"])
        .option("topic", case["topic"])
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    commits = folder / "checkpoint" / "commits"
    while query.isActive and not (commits / str(batches - 1)).exists():
        time.sleep(0.1)  # awaitTermination would raise the error of the query
    query.stop()
    if query.exception() is not None:
        with (folder / "errors").open("a") as log:
            log.write(f"{query.exception()}\n")
    return (commits / str(batches - 1)).exists()


if __name__ == "__main__":
    main(sys.argv[1])
