"""Kafka's own assignors, in one Java program for all cases."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.consumer.assignors.cases import Case
from tests.java_program import JavaProgram

VERSION = "4.4.0"
_HERE = Path(__file__).resolve().parent
_JARS = _HERE.parents[2] / "tools" / "jars"


def open_oracle() -> JavaProgram:
    """Return the program; Maven downloads missing jars. Close it."""
    done = subprocess.run([_JARS, "kafka-clients", VERSION], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return JavaProgram(f"{done.stdout.strip().splitlines()[-1]}/*", _HERE / "AssignorOracle.java")


def ask(program: JavaProgram, cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Return what Kafka says to each case."""
    return [json.loads(line) for line in program.ask([json.dumps(case.to_json()) for case in cases])]
