"""Measure how long `kwire --help` and `kwire decode` take to start and end. Exit 1 above 100 ms of CPU.

tools/start-up [--runs N]

They run as from a wheel: modules are compiled before, and the import hooks of the environment, which import more than
kwire itself, are not there. By the clock a busy machine takes longer: both times are printed, the least of all runs by
CPU counts. The first line is Python alone.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from checks.kcat_race import cost, plain_python, with_bytecode

_LIMIT_SECONDS = 0.1
_FRAME = b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"  # ApiVersions v0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args(argv).runs
    is_fast = True
    with tempfile.TemporaryDirectory() as folder:
        frame, out = Path(folder, "frame"), Path(folder, "out")
        frame.write_bytes(_FRAME)
        python = plain_python(Path(folder, "venv"))
        environment = with_bytecode(str(Path(folder, "bytecode")))
        environment.pop("PYTHONPATH", None)
        for arguments in (["-c", "pass"], *(["-m", "kwire", *one] for one in _commands(str(frame)))):
            command = [python, *arguments]
            cost(command, None, out, environment)
            found = [cost(command, None, out, environment) for _ in range(runs)]
            least = min(one.cpu for one in found)
            is_fast &= least < _LIMIT_SECONDS
            clock = statistics.median(one.clock for one in found)
            name = " ".join("FRAME" if one == str(frame) else one for one in arguments)
            print(
                f"python {name}: {least * 1000:.0f} ms of CPU, {clock * 1000:.0f} ms by the clock (median)", flush=True
            )
    return 0 if is_fast else 1


def _commands(frame: str) -> list[list[str]]:
    return [["--help"], ["decode", "--help"], ["decode", frame]]
