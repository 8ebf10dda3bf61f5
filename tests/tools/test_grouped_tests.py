"""Test the runner of tools/test, on files of tests that are written here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from checks.grouped_tests import Group, Later, Runner, files_of, groups_of

from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.programs
RUNNER = Path(__file__).parents[2] / "tools" / "checks" / "grouped_tests.py"
GOOD = "def test_good(): pass\n"
BAD = "def test_bad(): assert 'so' == 'not so'\n"
SKIPPED = "import pytest\n@pytest.mark.skip(reason='no such thing')\ndef test_skipped(): pass\n"
LONG = """
import os, pathlib, time
def test_long():
    pathlib.Path('pid').write_text(str(os.getpid()))
    time.sleep(1000)
"""
CRASH = "import os\ndef test_crash(): os._exit(0)\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the working directory, outside of the project and its pytest options."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # half of the time of a small test is to import plugins
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    return tmp_path


def write(folder: Path, **tests: str) -> list[Group]:
    """Write test files; return each as a group."""
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(text)
    return [Group([f"test_{name}.py"]) for name in tests]


def test_every_file_is_in_one_group(files: Path) -> None:
    (files / "tests" / "deep").mkdir(parents=True)
    for name, size in (("a", 900), ("b", 10), ("c", 10), ("deep/d", 500), ("deep/e", 400)):
        (files / "tests" / Path(name).parent / f"test_{Path(name).name}.py").write_text("#" * size)
    (files / "tests" / "conftest.py").write_text("")
    found = files_of([], ["tests/test_c.py"])
    assert found == ["tests/deep/test_d.py", "tests/deep/test_e.py", "tests/test_a.py", "tests/test_b.py"]
    assert files_of([], [str(files / "tests" / "deep")]) == [*found[2:], "tests/test_c.py"]
    assert files_of(["tests/test_a.py::test_x", "tests/deep"], []) == ["tests/test_a.py::test_x", *found[:2]]
    assert files_of([str(files / found[0]), found[0], f"{found[0]}::test_x"], []) == [str(files / found[0])]
    assert groups_of(found, 2) == [["tests/test_a.py", found[1]], [found[0], "tests/test_b.py"]], "the largest first"
    for count in range(1, 10):
        groups = groups_of(found, count)
        assert sorted(chain(*groups)) == sorted(found)
        assert len(groups) <= count
        assert all(groups)
    assert groups_of([], 3) == []


def test_the_sum_and_the_reasons_of_skipped_tests_are_printed(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert Runner(2, []).run(write(files, good=GOOD, other=GOOD + SKIPPED)) == 0
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
    assert Runner(1, []).run(write(files, bad=text, good=GOOD)) == 1
    printed = capfd.readouterr().out
    assert cause in printed
    assert "1 passed" in printed.splitlines()[-1]


@pytest.mark.parametrize("argument", ["-x", "-vx", "--exitfirst", "--maxfail=1"])
def test_x_begins_no_further_group(files: Path, capfd: pytest.CaptureFixture[str], argument: str) -> None:
    groups = write(files, bad=BAD, good=GOOD, other=GOOD, third=GOOD)
    assert Runner(1, [argument]).run(groups) == 1
    assert "test_third.py" not in capfd.readouterr().out


def test_x_tells_of_each_group_that_had_begun(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wait = "import pathlib, time\ndef test_late():\n    while not pathlib.Path('begun').exists(): time.sleep(0.01)\n"
    groups = write(
        files, first=wait + "    assert 0", second="import pathlib\n" + BAD + "pathlib.Path('begun').touch()"
    )
    assert Runner(2, ["-x"]).run(groups) == 1
    assert "2 failed" in capfd.readouterr().out.splitlines()[-1]


def test_a_process_that_dies_is_a_failure(files: Path) -> None:
    assert (
        Runner(2, []).run(write(files, crash="import os\ndef test_crash(): os.kill(os.getpid(), 9)\n", good=GOOD)) == 1
    )


def test_a_process_that_ends_early_is_a_failure(files: Path) -> None:
    """With code 0 but without pytest's last line."""
    assert Runner(2, []).run(write(files, crash=CRASH, good=GOOD)) == 1


def test_what_is_printed_after_the_sum_is_no_failure(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    noisy = "import atexit\natexit.register(print, 'good', 'bye')\n" + GOOD
    assert Runner(1, []).run(write(files, noisy=noisy)) == 0
    assert Runner(1, ["-q"]).run([Group(["test_noisy.py"])]) == 0
    assert capfd.readouterr().out.count("1 passed in") == 4
    assert Runner(1, ["--collect-only"]).run([Group(["test_noisy.py"])]) == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_processes_too(files: Path, number: signal.Signals) -> None:
    write(files, long=LONG)
    runner = subprocess.Popen([sys.executable, str(RUNNER), "1", "."])
    pid = files / "pid"
    wait_until(lambda: pid.exists() and bool(pid.read_text()))
    runner.send_signal(number)
    assert runner.wait(PATIENCE_SECONDS) == 130
    assert not Path("/proc", pid.read_text()).exists()


@pytest.mark.parametrize("words", [[], ["x"], ["0"], ["1", "nosuch.py"], ["1", "-x"], ["1", "--later", "0", "x"]])
def test_wrong_use_is_told(files: Path, words: list[str]) -> None:
    done = subprocess.run([sys.executable, str(RUNNER), *words], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr


def test_no_test_is_pytests_5(files: Path) -> None:
    groups = write(files, good=GOOD, other=GOOD)
    assert Runner(2, ["-k", "nothing"]).run(groups) == 5
    assert Runner(2, []).run([]) == 5
    assert Runner(2, ["-k", "good"]).run(groups) == 0


def test_the_command(files: Path) -> None:
    write(files, good=GOOD, bad=BAD)
    command = [sys.executable, str(RUNNER), "1", "test_good.py::test_good", "."]
    done = subprocess.run([*command, "--", "--ignore=test_bad.py", "-v"], capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed" in done.stdout.splitlines()[-1]) == (0, True), done.stdout


def test_tests_run_twice_but_some_once(files: Path) -> None:
    seen = "import os\ndef test_seen():\n    print(os.environ.get('KWIRE_IMPL'), file=open('{}', 'a'))\n"
    write(files, twice=seen.format("twice"), once=seen.format("once"))
    command = [sys.executable, str(RUNNER), "1", ".", "--twice", "--once", "test_once.py"]
    environment = {name: value for name, value in os.environ.items() if name != "KWIRE_IMPL"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "3 passed" in done.stdout.splitlines()[-1]) == (0, True), done.stdout
    assert "test_twice.py, in pure Python: 1 passed" in done.stdout
    assert (files / "twice").read_text().split() == ["None", "python"]
    assert (files / "once").read_text().split() == ["None"]


def test_more_processes_run_when_the_file_exists(files: Path) -> None:
    """The first test waits for the second, which begins because the first makes the file."""
    first = "import pathlib, time\ndef test_first():\n    pathlib.Path('go').touch()\n"
    first += "    while not pathlib.Path('second').exists(): time.sleep(0.01)\n"
    groups = write(files, first=first, second="def test_second(): open('second', 'w').close()\n")
    assert Runner(1, [], Later(2, files / "go")).run(groups) == 0
    (files / "second").unlink()
    failing = ["-p", "pytest_timeout", "--timeout=0.5"]
    assert Runner(1, failing, Later(2, files / "nothing")).run(groups) == 1
    assert (files / "second").exists(), "the second test has run after the first"


def test_groups_begin_in_order(files: Path) -> None:
    text = "def test_it(): print({!r}, file=open('order', 'a'))\n"
    names = ["first", "second", "third", "fourth"]
    groups = write(files, **{name: text.format(name) for name in names})
    assert Runner(1, [], Later(2, files / "nothing")).run(groups) == 0
    assert (files / "order").read_text().split() == names
