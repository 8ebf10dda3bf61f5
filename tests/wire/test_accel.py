"""The choice between Python and C. It is made once per process, so each test starts a process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from kwire.version import VERSION

pytestmark = pytest.mark.programs

HAS_C = find_spec("kwire.wire._speedups") is not None


def implementation(chosen: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "KWIRE_IMPL"}
    if chosen is not None:
        environment["KWIRE_IMPL"] = chosen
    program = "from kwire.wire import accel; print(accel.IMPLEMENTATION)"
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("chosen", [None, "", "python", "c"])
def test_choice(chosen: str | None) -> None:
    done = implementation(chosen)
    if chosen == "c" and not HAS_C:
        assert done.returncode == 1
        assert "ImportError: KWIRE_IMPL=c, but kwire was installed without its C accelerator" in done.stderr
        return
    expected = "python" if chosen == "python" or not HAS_C else "c"
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr


@pytest.mark.parametrize("chosen", ["C", "pure", "0"])
def test_unknown_choice(chosen: str) -> None:
    done = implementation(chosen)
    assert done.returncode == 1
    assert f"ImportError: KWIRE_IMPL is '{chosen}': it can be 'python' or 'c'" in done.stderr


@pytest.mark.parametrize("chosen", ["", "python"])
def test_the_command_says_which_and_why(chosen: str) -> None:
    environment = {**os.environ, "KWIRE_IMPL": chosen}
    command = [sys.executable, "-c", "import kwire; kwire.cli.main()", "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    built = "C accelerator" if HAS_C else "pure Python: installed without the C accelerator"
    expected = "pure Python: KWIRE_IMPL is python" if chosen else built
    assert done.stdout == f"kwire {VERSION} ({expected})\n"


# A process in which the accelerator was not built, and with or without a compiler.
WITHOUT_C = """
import importlib.util, shutil, sys
sys.modules["kwire.wire._speedups"] = None
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "kwire.wire._speedups" else find_spec(name, *more)
shutil.which = lambda name: {compiler!r}
import kwire
from kwire.wire import accel
accel.has_headers = lambda: True
for _ in range(2):
    kwire.Admin("localhost:9092").close()
print(accel.described())
"""


@pytest.mark.parametrize(
    ("chosen", "compiler", "is_warned"),
    [("", "/usr/bin/cc", True), ("", None, False), ("python", "/usr/bin/cc", False)],
)
def test_one_warning_where_c_could_have_been_built(chosen: str, compiler: str | None, is_warned: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_C.format(compiler=compiler)],
        env={**os.environ, "KWIRE_IMPL": chosen}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = "KWIRE_IMPL is python" if chosen else "installed without the C accelerator"
    assert done.stdout == f"pure Python: {expected}\n"
    assert done.stderr.count("kwire runs in pure Python") == int(is_warned), done.stderr
