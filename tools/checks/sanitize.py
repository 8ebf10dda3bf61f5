"""Run the C accelerator with gcc's sanitizers, for tools/sanitize.

The tests compile the source with the flags of this environment. It turns Python's own allocator off, so that the
sanitizers see each object as a separate block.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
TESTS = [
    *(f"tests/records/test_{name}.py" for name in ("speedups", "reader")),
    "tests/wire/test_checksums.py",
    *(f"tests/producer/test_{name}.py" for name in ("accumulator", "bulk", "accumulator_stories")),
    "tests/net/test_channel.py",
]
# The timeout is long because the sanitizers slow down every test.
OPTIONS = ["-q", "-p", "no:cacheprovider", "--timeout=1200"]
# This test counts blocks of Python's allocator, which is off.
UNFIT = "test_nothing_leaks"
# These take two thirds of the time, and the fuzzing covers their random input.
LONG = "test_random_messages_their_prefixes_and_flipped_bits or test_decode_damaged"
# Most tests run with both implementations; of the one in Python the sanitizers see nothing.
IN_PYTHON = "[python or -python"


def environment() -> dict[str, str]:
    """Return the environment variables of a Python process with the sanitizers."""
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
        left_out = f"not ({UNFIT} or {IN_PYTHON}{f' or {LONG}' if is_short else ''})"
        command = [sys.executable, "-m", "pytest", *OPTIONS, "-k", left_out, *TESTS, *arguments[is_short:]]
    os.chdir(ROOT)
    os.execve(sys.executable, command, environment())


if __name__ == "__main__":
    main(sys.argv[1:])
