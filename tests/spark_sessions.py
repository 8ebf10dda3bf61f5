"""A Spark session for tests, and a Python process with one for programs: Spark takes longer to start than they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """Start a session with kwire's data sources, whose workers are killed as the file `strike_order` ("order") says."""
    # Imported here, because every process with tests imports this module, and few have Spark.
    from chaos_runs.spark_job import SETTINGS
    from chaos_runs.spark_table import environment_of
    from pyspark.sql import SparkSession

    import kwire.spark

    settings: dict[str, Any] = {
        "spark.master": "local[2]",
        **SETTINGS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(warehouse),
    }
    # The JVM inherits it, and its workers do from it; processes that tests start must not.
    with mock.patch.dict(os.environ, environment_of(strike_order.parent, sys.executable)):
        session = SparkSession.builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    kwire.spark.register(session)
    yield session
    session.stop()
