"""Every example in the documents runs as it stands and prints what it says.

A Python block ends with a `print(...)  # what it prints`; of a console block every command's output is compared, where
`...` stands for anything. Commands run against an embedded broker with a topic `orders`.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.broker import Cluster

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def examples(language: str) -> list[tuple[str, str]]:
    found = []
    for document in DOCUMENTS:
        blocks = re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)
        found += [(f"{document.name}-{number}", block) for number, block in enumerate(blocks)]
    return found


def agrees(expected: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)


@pytest.mark.parametrize(("name", "source"), examples("python"), ids=lambda value: value if "\n" not in value else "")
def test_python_example(name: str, source: str) -> None:
    says = [line.partition("  # ")[2] for line in source.splitlines() if "print(" in line and "  # " in line]
    assert says, "an example says what it prints"
    done = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for line in says:
        assert any(agrees(line + "\n", printed + "\n") for printed in done.stdout.splitlines()), (line, done.stdout)


def commands() -> list[tuple[str, list[tuple[str, str]]]]:
    """Of each console block, its commands with what they print."""
    blocks = []
    for name, block in examples("console"):
        steps = [step.partition("\n") for step in re.split(r"^\$ ", block, flags=re.MULTILINE) if step]
        blocks.append((name, [(command, output) for command, _, output in steps]))
    return blocks


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with Cluster(brokers=1, topics={"orders": 1}) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize(("name", "steps"), commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_console_example(name: str, steps: list[tuple[str, str]], bootstrap: str, tmp_path: Path) -> None:
    environment = {**os.environ, "KWIRE_BOOTSTRAP": bootstrap, "COLUMNS": "120"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    for command, output in steps:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert agrees(output, done.stdout), f"{command} printed {done.stdout!r}"
