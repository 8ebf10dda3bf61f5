"""The environment in which the C accelerator runs with gcc's sanitizers, and what is run there by tools/sanitize.

The tests compile the source themselves; here with other flags. Python's own allocator is out of the way, so that every
object is a block of its own that can be watched.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
TESTS = [
    *(
        f"tests/wire/test_{name}.py"
        for name in ("speedups", "reader", "accumulator", "bulk", "accumulator_stories", "sockets")
    ),
]
# All is slow, which is no fault.
OPTIONS = ["-q", "-p", "no:cacheprovider", "--timeout=1200"]
# Allocated blocks are counted by Python's allocator, which is off.
UNFIT = "test_nothing_leaks"
# Two thirds of the time. What they try at random the fuzzing tries too.
LONG = "test_random_messages_their_prefixes_and_flipped_bits or test_decode_damaged"


def environment() -> dict[str, str]:
    """For a Python that is started by it."""
    libraries = [_output("gcc", f"-print-file-name=lib{name}.so") for name in ("asan", "ubsan")]
    return {
        **os.environ, "KWIRE_CFLAGS": FLAGS, "LD_PRELOAD": " ".join(libraries), "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1", "PYTHONPATH": str(ROOT),
    }  # fmt: skip


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["fuzz"]:
        command = [sys.executable, "tools/checks/fuzz_speedups.py", *arguments[1:]]
    else:
        is_short = arguments[:1] == ["short"]
        left_out = f"not ({UNFIT} or {LONG})" if is_short else f"not {UNFIT}"
        command = [sys.executable, "-m", "pytest", *OPTIONS, "-k", left_out, *TESTS, *arguments[is_short:]]
    os.chdir(ROOT)
    os.execve(sys.executable, command, environment())


if __name__ == "__main__":
    main(sys.argv[1:])
