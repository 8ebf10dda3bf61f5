"""One contestant's turn, in a process of its own: a Task comes on standard input, a Sample goes to standard output.

Steps in between are a line each way: a contestant that must wait for the contest says a word and reads one
(`Coordination`). Whatever a library prints goes to standard error.
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
    # A client whose broker was stalled may not end by itself, and what was asked for has been answered.
    sys.stderr.flush()
    os._exit(0 if sample.failure is None else 1)


if __name__ == "__main__":
    sys.exit(main())
