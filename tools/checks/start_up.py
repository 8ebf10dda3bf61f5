"""Measure how long `kwire --help` and `kwire decode` take to start and end. Exit 1 above 100 ms of CPU.

tools/start-up [--runs N]

Modules are compiled before, as they are in an installed kwire. By the clock a busy machine takes longer: both times are
printed, the least of all runs by CPU counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from checks.kcat_race import cost, with_bytecode

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
        environment = with_bytecode(str(Path(folder, "bytecode")))
        for arguments in (["--help"], ["decode", "--help"], ["decode", str(frame)]):
            command = [sys.executable, "-m", "kwire", *arguments]
            cost(command, None, out, environment)
            found = [cost(command, None, out, environment) for _ in range(runs)]
            least = min(one.cpu for one in found)
            is_fast &= least < _LIMIT_SECONDS
            clock = statistics.median(one.clock for one in found)
            name = " ".join("FRAME" if one == str(frame) else one for one in arguments)
            print(
                f"kwire {name}: {least * 1000:.0f} ms of CPU, {clock * 1000:.0f} ms by the clock (median)", flush=True
            )
    return 0 if is_fast else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
