"""Test the runner of tools/test, on files of tests that are written here."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from checks.grouped_tests import files_of, groups_of, run

GOOD = "def test_good(): pass\n"
BAD = "def test_bad(): assert 'so' == 'not so'\n"
SKIPPED = "import pytest\n@pytest.mark.skip(reason='no such thing')\ndef test_skipped(): pass\n"
CRASH = "import os\ndef test_crash(): os._exit(0)\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the working directory, outside of the project and its pytest options."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    return tmp_path


def write(folder: Path, **tests: str) -> list[list[str]]:
    """Write test files; return each as a group."""
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(text)
    return [[f"test_{name}.py"] for name in tests]


def test_every_file_is_in_one_group(files: Path) -> None:
    (files / "tests" / "deep").mkdir(parents=True)
    for name, size in (("a", 900), ("b", 10), ("c", 10), ("deep/d", 500), ("deep/e", 400)):
        (files / "tests" / Path(name).parent / f"test_{Path(name).name}.py").write_text("#" * size)
    (files / "tests" / "conftest.py").write_text("")
    found = files_of([], ["tests/test_c.py"])
    assert found == ["tests/deep/test_d.py", "tests/deep/test_e.py", "tests/test_a.py", "tests/test_b.py"]
    assert files_of([], [str(files / "tests" / "deep")]) == [*found[2:], "tests/test_c.py"]
    assert files_of(["tests/test_a.py::test_x", "tests/deep"], []) == ["tests/test_a.py::test_x", *found[:2]]
    assert groups_of(found, 2) == [found[:2], found[2:]]
    for count in range(1, 10):
        groups = groups_of(found, count)
        assert list(chain(*groups)) == found
        assert all(groups)
        assert len(groups) <= count
    assert groups_of([], 3) == []


def test_the_sum_and_the_reasons_of_skipped_tests_are_printed(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(write(files, good=GOOD, other=GOOD + SKIPPED), 2, []) == 0
    printed = capfd.readouterr().out
    assert "2 passed, 1 skipped in" in printed.splitlines()[-1]
    assert printed.count("no such thing") == 1
    assert "[2/2] test_" in printed


@pytest.mark.parametrize(
    ("text", "cause"), [(BAD, "assert 'so' == 'not so'"), ("import nothing_of_this_name", "nothing_of")]
)
def test_a_failure_is_printed_and_the_others_run(
    files: Path, capfd: pytest.CaptureFixture[str], text: str, cause: str
) -> None:
    assert run(write(files, bad=text, good=GOOD), 1, []) == 1
    printed = capfd.readouterr().out
    assert cause in printed
    assert "1 passed" in printed.splitlines()[-1]


def test_x_begins_no_further_group(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    groups = write(files, bad=BAD, good=GOOD, other=GOOD, third=GOOD)
    assert run(groups, 1, ["-x"]) == 1
    assert "test_third.py" not in capfd.readouterr().out


def test_a_process_that_dies_is_a_failure(files: Path) -> None:
    assert run(write(files, crash="import os\ndef test_crash(): os.kill(os.getpid(), 9)\n", good=GOOD), 2, []) == 1


def test_a_process_that_ends_early_is_a_failure(files: Path) -> None:
    """With code 0 but without pytest's last line."""
    assert run(write(files, crash=CRASH, good=GOOD), 2, []) == 1


def test_no_test_is_pytests_5(files: Path) -> None:
    groups = write(files, good=GOOD, other=GOOD)
    assert run(groups, 2, ["-k", "nothing"]) == 5
    assert run([], 2, []) == 5
    assert run(groups, 2, ["-k", "good"]) == 0


def test_the_command(files: Path) -> None:
    write(files, good=GOOD, bad=BAD)
    runner = Path(__file__).parents[2] / "tools" / "checks" / "grouped_tests.py"
    command = [sys.executable, str(runner), "1", "test_good.py::test_good", "."]
    done = subprocess.run([*command, "--", "--ignore=test_bad.py", "-v"], capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed" in done.stdout.splitlines()[-1]) == (0, True), done.stdout
