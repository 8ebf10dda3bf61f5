"""Kafka's own assignors, in one Java program for all cases."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from brokers.jars import fetch_jars

from tests.consumer.assignors.cases import Case
from tests.java_program import JavaProgram

VERSION = "4.4.0"


def open_oracle() -> JavaProgram:
    """Return the program; Maven downloads missing jars. Close it."""
    return JavaProgram(fetch_jars("kafka-clients", VERSION), Path(__file__).with_name("AssignorOracle.java"))


def ask(program: JavaProgram, cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Return what Kafka says to each case."""
    return [json.loads(line) for line in program.ask([json.dumps(case.to_json()) for case in cases])]
