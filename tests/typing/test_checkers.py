"""Check that mypy and pyright accept a correct program of a user, and find each mistake in a wrong one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"


def by_mypy() -> set[tuple[str, int]]:
    """Return the file names and lines in which mypy finds errors."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(RIGHT), str(WRONG)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^([^:]+):(\d+): error:", done.stdout, re.MULTILINE)
    return {(Path(file).name, int(line)) for file, line in found}


def by_pyright() -> set[tuple[str, int]]:
    """Return the file names and lines in which pyright finds errors; many editors use pyright."""
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    command += [str(RIGHT), str(WRONG)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in found if one["severity"] == "error"}


@pytest.mark.parametrize("errors", [by_mypy, by_pyright])
def test_a_checker_finds_every_mistake_and_nothing_else(errors: Callable[[], set[tuple[str, int]]]) -> None:
    lines = enumerate(WRONG.read_text().splitlines(), 1)
    # One run for both files: to read the types of kwire takes nearly all of its time.
    assert errors() == {(WRONG.name, number) for number, line in lines if line.endswith("# wrong")}
