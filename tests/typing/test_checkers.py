"""What mypy and pyright say to a user's program: nothing of what is right, and something of every mistake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def by_mypy(path: Path) -> set[int]:
    """Return the lines in which mypy finds errors."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {int(line) for line in re.findall(r"^[^:]+:(\d+): error:", done.stdout, re.MULTILINE)}


def by_pyright(path: Path) -> set[int]:
    """Return the lines in which pyright finds errors, as editors that have it underneath do."""
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, str(path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


each = pytest.mark.parametrize("errors_of", [by_mypy, by_pyright])


@each
def test_what_is_right_has_no_error(errors_of: Callable[[Path], set[int]]) -> None:
    assert errors_of(HERE / "right.py") == set()


@each
def test_every_mistake_is_found(errors_of: Callable[[Path], set[int]]) -> None:
    path = HERE / "wrong.py"
    lines = path.read_text().splitlines()
    assert errors_of(path) == {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
