"""Run CodeCrafters' "Build your own Kafka" against `kwire broker`: each stage says whether it passes.

tools/codecrafters TESTER [STAGE...]

TESTER is the program that `go build ./cmd/tester` makes of codecrafters-io/kafka-tester. It writes the log directory of
a Kafka broker to /tmp, starts the broker on port 9092, and sends it bytes. Each stage runs in a network of its own
(`unshare`), so that no other broker is met. The exit code is 1 if a stage fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_STAGES = {
    "vi6": "bind to a port", "nv3": "correlation id", "wa6": "correlation id of the request",
    "nc5": "ApiVersions in a version that is not known", "pv1": "ApiVersions", "nh4": "several requests",
    "sk0": "several clients", "yk1": "ApiVersions has DescribeTopicPartitions", "vt6": "describe an unknown topic",
    "ea7": "describe a topic", "ku4": "describe a topic of several partitions", "wq2": "describe several topics",
    "gs0": "ApiVersions has Fetch", "dh6": "fetch of no topics", "hn6": "fetch of an unknown topic",
    "cm4": "fetch of an empty topic", "eg2": "fetch a record from a disk", "fd8": "fetch several records from a disk",
    "xz1": "ApiVersions has Produce", "zf2": "produce to an unknown topic", "gg1": "produce", "ls8": "produce a record",
    "yd8": "produce several records", "ct4": "produce to several partitions", "ov0": "produce to several topics",
}  # fmt: skip
# The tester takes the end of its program's output for the end of the program.
_PROGRAM = """#!/bin/sh
logs=$(sed -n 's/^log.dirs=//p' "$1")
exec {python} -m kwire broker --brokers 1 --port 9092 ${{logs:+--data-dir "$logs"}}
"""
_STAGE_SECONDS = 60


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tester", type=Path, help="the tester's program")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"some of {', '.join(_STAGES)}")
    arguments = parser.parse_args(argv)
    wanted = arguments.stages or list(_STAGES)
    if unknown := [one for one in wanted if one not in _STAGES]:
        parser.error(f"no such stage: {', '.join(unknown)} (stages: {', '.join(_STAGES)})")
    tester = arguments.tester.resolve()
    passed = sum([_passes(tester, stage) for stage in wanted])
    print(f"{passed} of {len(wanted)} stages pass")
    return 0 if passed == len(wanted) else 1


def _passes(tester: Path, stage: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "your_program.sh")
        program.write_text(_PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
        Path(folder, "codecrafters.yml").write_text("debug: false\nlanguage_pack: python-3.11\n")
        case = {"slug": stage, "tester_log_prefix": stage, "title": _STAGES[stage]}
        environment = {
            **os.environ, "CODECRAFTERS_REPOSITORY_DIR": folder, "CODECRAFTERS_TEST_CASES_JSON": json.dumps([case]),
        }  # fmt: skip
        # All processes of the stage end with its network's first one.
        command = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"]
        command += ["sh", "-c", 'ip link set lo up 2>/dev/null || ifconfig lo up; "$0"', str(tester)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_STAGE_SECONDS, check=False
        )
    is_passed = done.returncode == 0
    print(f"{stage}  {'passes' if is_passed else 'FAILS '}  {_STAGES[stage]}", flush=True)
    if not is_passed:
        print(done.stdout[-2_000:] + done.stderr[-2_000:], file=sys.stderr)
    return is_passed
