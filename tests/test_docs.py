"""Every example in the documents runs unchanged and prints what its comments say.

A Python block has a `print(...)  # what it prints`; of a console block every command's output is compared, where `...`
stands for anything. A console block is one session: `kwire broker ... &` runs until its end, on a port that is free
here, and `export NAME=VALUE` holds from there on. `localhost:9092` stands for that broker.
"""

from __future__ import annotations

import contextlib
import doctest
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Self

import pytest

from tests.spark_sessions import SparkPython

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Warnings are errors, but for two that kafka-python causes on Python 3.11.
_NOT_OURS = [f"ignore:{name} is deprecated:DeprecationWarning" for name in ("read_text", "open_text")]
WARNINGS = [word for rule in ("error", *_NOT_OURS) for word in ("-W", rule)]


def examples(language: str) -> list[tuple[str, str]]:
    found = []
    for document in DOCUMENTS:
        blocks = re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)
        found += [(f"{document.name}-{number}", textwrap.dedent(block)) for number, block in enumerate(blocks)]
    return found


def agrees(expected: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)


def programs(*, of_spark: bool) -> list[Any]:
    found = [(name, source) for name, source in examples("python") if ("pyspark" in source) is of_spark]
    return [pytest.param(source, id=name) for name, source in found]


@pytest.mark.parametrize("source", programs(of_spark=False))
def test_python_example(source: str) -> None:
    check(source, [sys.executable, *WARNINGS], timeout=60)


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("source", programs(of_spark=True))
def test_spark_example(source: str, python_with_spark: SparkPython) -> None:
    check_printed(source, python_with_spark.run(source))


def check(source: str, python: list[str], *, timeout: float) -> None:
    """Run a program; compare what it prints with what its comments say."""
    done = subprocess.run([*python, "-c", source], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    check_printed(source, [line + "\n" for line in done.stdout.splitlines()])


def check_printed(source: str, printed: list[str]) -> None:
    says = [line.partition("  # ")[2] for line in source.splitlines() if "print(" in line and "  # " in line]
    assert says, "an example says what it prints"
    for line in says:
        assert any(agrees(line + "\n", one) for one in printed), (line, printed)


def test_the_selectors_example_ends_where_nothing_listens() -> None:
    source = next(block for name, block in examples("python") if name.startswith("guide") and "KafkaSelector" in block)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f'host, port = "127.0.0.1", {unused.getsockname()[1]}'
        changed = source.replace("host, port = cluster.brokers[1]", nowhere)
        assert changed != source
        done = subprocess.run([sys.executable, "-c", changed], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "kwire.errors.ConnectError: cannot connect (Connection refused) [broker first at 127.0.0.1:" in done.stderr


def commands() -> list[tuple[str, list[tuple[str, str]]]]:
    """Yield the commands of each console block with their expected output."""
    blocks = []
    for name, block in examples("console"):
        steps = [step.partition("\n") for step in re.split(r"^\$ ", block, flags=re.MULTILINE) if step]
        blocks.append((name, [(command, output) for command, _, output in steps]))
    return blocks


class Terminal:
    """A shell session: variables stay, and brokers run until it is closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "COLUMNS": "120"}
        self._environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._address = "localhost:9092"
        self._brokers = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._brokers.close()

    def run(self, command: str) -> str:
        """Run a command; return what it printed."""
        command = command.replace("localhost:9092", self._address)
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._environment[name] = value
            return ""
        if command.startswith("kwire broker") and command.endswith("&"):
            self._start_broker(command.removesuffix("&").split())
            return ""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            capture_output=True, text=True, timeout=60, env=self._environment, cwd=self._folder,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def _start_broker(self, command: list[str]) -> None:
        broker = subprocess.Popen(
            [*command, "--port", "0", "-f", "json"], stdout=subprocess.PIPE, text=True, env=self._environment
        )
        self._brokers.callback(broker.wait)
        self._brokers.callback(broker.terminate)
        assert broker.stdout is not None
        self._brokers.callback(broker.stdout.close)
        self._address = json.loads(broker.stdout.readline())["bootstrap"]


@pytest.mark.parametrize(("name", "steps"), commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_console_example(name: str, steps: list[tuple[str, str]], tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        for command, output in steps:
            printed = terminal.run(command)
            assert agrees(output, printed), f"{command} printed {printed!r}"
