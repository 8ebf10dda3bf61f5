"""A Spark session for tests, and a Python process with one for programs: Spark takes longer to start than they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from chaos_runs import spark_faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]

# Each program has a namespace of its own, but all share one session: Spark ends its Python workers with a session.
_RUN = """
import json, sys, traceback
from pyspark.sql import SparkSession
stop, SparkSession.stop = SparkSession.stop, lambda session: None
for line in sys.stdin:
    source, sys.argv[1:] = json.loads(line)
    try:
        exec(source, {"__name__": "__main__"})
        end = "ended"
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        end = "failed"
    print(end, flush=True)
if session := SparkSession.getActiveSession():
    stop(session)
"""


class SparkPython:
    """Runs programs, given as their sources."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, source: str, *arguments: str) -> list[str]:
        """Run a program to its end; return the lines that it printed. Fails if it raises."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([source, arguments]), file=self._process.stdin, flush=True)
        printed: list[str] = []
        for line in self._process.stdout:
            if line in ("ended\n", "failed\n"):
                assert line == "ended\n", "".join(printed)
                return printed
            printed.append(line)
        raise AssertionError("".join(printed))


@contextmanager
def spark_python() -> Iterator[SparkPython]:
    """Start such a process; it ends when its input does, at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", _RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield SparkPython(process)


@contextmanager
def spark_session(warehouse: Path, strike_order: Path) -> Iterator[SparkSession]:
    """Start a session with kwire's data sources, whose workers are killed as the file `strike_order` says."""
    from pyspark.sql import SparkSession

    import kwire.spark

    # The JVM inherits these, and its workers do from it; processes that tests start must not.
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        spark_faults.FAULTS: spark_faults.HOOK,
        spark_faults.ORDER: str(strike_order),
        # An editable install is not found by Spark's search for pyspark_*.
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tools'}",
    }
    with mock.patch.dict(os.environ, environment):
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "700m")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(warehouse))
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("OFF")
    kwire.spark.register(session)
    yield session
    session.stop()
