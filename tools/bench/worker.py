"""Run one contestant in its own process: read a Task from standard input, write a Sample to standard output.

A contestant that must wait for the contest writes a line and reads one (`Coordination`). Output of libraries goes to
standard error.
"""

from __future__ import annotations

import os
import sys
import traceback

from bench.contestants import contestant
from bench.task import Coordination, Sample, Task


def main() -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task = Task.from_json(sys.stdin.readline())
    try:
        chosen = contestant(task.contestant)
        sample = chosen(task, Coordination(sys.stdin, answers))
    except Exception as error:
        traceback.print_exc()
        sample = Sample(failure=f"{type(error).__name__}: {error}")
    print(sample.to_json(), file=answers, flush=True)
    # A client whose broker was paused may not end by itself, and the sample is already written.
    sys.stderr.flush()
    os._exit(0 if sample.failure is None else 1)


if __name__ == "__main__":
    sys.exit(main())
