"""The choice between Python and C, each in a process of its own since it is made once."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

HAS_C = find_spec("kwire.wire._speedups") is not None


def implementation(asked: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "KWIRE_IMPL"}
    if asked is not None:
        environment["KWIRE_IMPL"] = asked
    program = "from kwire.wire import accel; print(accel.IMPLEMENTATION)"
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("asked", [None, "", "python", "c"])
def test_choice(asked: str | None) -> None:
    done = implementation(asked)
    if asked == "c" and not HAS_C:
        assert done.returncode == 1
        assert "ImportError: KWIRE_IMPL=c, but kwire was installed without its C accelerator" in done.stderr
        return
    expected = "python" if asked == "python" or not HAS_C else "c"
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr


@pytest.mark.parametrize("asked", ["C", "pure", "0"])
def test_unknown_choice(asked: str) -> None:
    done = implementation(asked)
    assert done.returncode == 1
    assert f"ImportError: KWIRE_IMPL is '{asked}': it can be 'python' or 'c'" in done.stderr
