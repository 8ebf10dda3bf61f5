"""A Python process with Spark that runs programs one after the other: its JVM takes longer to start than they run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Each program has a namespace and a Spark session of its own.
_RUN = """
import json, sys, traceback
from pyspark.sql import SparkSession
for line in sys.stdin:
    source, sys.argv[1:] = json.loads(line)
    try:
        exec(source, {"__name__": "__main__"})
        end = "ended"
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        end = "failed"
    if session := SparkSession.getActiveSession():
        session.stop()
    print(end, flush=True)
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
