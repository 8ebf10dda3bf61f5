"""Test tools/test and tools/env in a shell, in a copy of the repository whose programs only log their names."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from itertools import product
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.waiting import PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.programs
# Every program that tools/test runs to check, install or build.
PROGRAMS = ("ruff", "mypy", "basedpyright", "pytest", "python", "gcc")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the scripts, with a tools/env and a tools/image that only write their arguments to `log`."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / ".ci").mkdir()
    (tmp_path / "bin").mkdir()
    for script in ("tools/test", ".ci/run"):
        shutil.copy(ROOT / script, tmp_path / script)
    (tmp_path / "tools" / "env").write_text('need() { echo "need $*" >>log; }\nfind_python() { echo python; }\n')
    for name in ("image", "docs"):
        write_program(tmp_path / "tools" / name, f'echo "{name} $*" >>log\n')
    for name in PROGRAMS:
        write_program(tmp_path / "bin" / name, f'echo "{name} $*" >>log\n')
    write_program(tmp_path / "bin" / "docker", "exit 0\n")
    return tmp_path


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{text}")
    path.chmod(0o755)


def environment(copy: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "KWIRE_BOOTSTRAP", "KWIRE_IMPL")}
    return {**kept, "PATH": f"{copy / 'bin'}:{os.environ['PATH']}", **more}


def run(copy: Path, script: str, *args: str, **more: str) -> tuple[int, list[str], str]:
    """Return the exit code, the programs that were run and installed, and stderr."""
    done = subprocess.run(
        [copy / script, *args], cwd=copy, env=environment(copy, **more), capture_output=True, text=True, check=False
    )
    log = copy / "log"
    return done.returncode, log.read_text().splitlines() if log.exists() else [], done.stderr


@pytest.mark.parametrize(
    "args",
    [["--bogus"], ["unitt"], ["unit", "-x"], ["live", "--dokcer"], ["unit", "tests/nosuch.py"], ["unit", "live"]],
)
def test_a_wrong_argument_is_rejected_before_any_installation(copy: Path, args: list[str]) -> None:
    code, done, stderr = run(copy, "tools/test", *args)
    assert (code, done) == (2, [])
    assert f"unknown part or test: {args[-1]} (parts: all, unit" in stderr


def test_tests_and_arguments_for_pytest(copy: Path) -> None:
    code, done, _ = run(copy, "tools/test", "live", "tests", "tests::test_one", "--", "-k", "fetch or not", "-x")
    assert code == 0
    assert done[-1] == "pytest tests/live tests tests::test_one -k fetch or not -x"
    code, done, _ = run(copy, "tools/test", "slow", "tests", "--", "-k", "fetch")
    assert code == 0
    assert done[-1].startswith("python tools/checks/grouped_tests.py ")
    assert done[-1].endswith(" tests -- -m slow and not live and not spark and not programs -k fetch")


def images(done: list[str]) -> list[str]:
    return [line for line in done if line.startswith("image ")]


def assert_image_is_built(done: list[str]) -> None:
    """The engine starts, builds the image and ends. What runs beside the installation may do it first."""
    *before, last = images(done)
    assert (set(before), last) == ({"image engine", "image build"}, "image stop")
    assert before.index("image engine") < before.index("image build")


@pytest.mark.parametrize("part", ["all", "live"])
def test_docker_runs_only_on_request_and_in_ci(copy: Path, part: str) -> None:
    code, done, _ = run(copy, "tools/test", part)
    assert code == 0
    assert images(done) == []
    assert any("live" in line for line in done if line.startswith("pytest "))
    for arguments, variables in ((["--docker"], {}), ([], {"CI": "true"})):
        (copy / "log").unlink()
        assert_image_is_built(run(copy, "tools/test", part, *arguments, **variables)[1])


@pytest.mark.parametrize(
    ("program", "failing"),
    [
        ("pytest", "--ignore-glob="), ("pytest", "-m live and not shared_brokers tests/live"), ("pytest", "-m spark"),
        ("pytest", "-m shared_brokers tests/live"), ("python", "tools/checks/grouped_tests.py"),
        ("python", "sanitize.py"), ("python", "brokers.class_archive 4.3.1"),
        ("python", "brokers.class_archive spark"), ("mypy", ""), ("ruff", "format"), ("basedpyright", ""), ("docs", ""),
    ],
)  # fmt: skip
def test_a_failure_of_any_part_fails(copy: Path, program: str, failing: str) -> None:
    """What fails beside the tests is printed too."""
    path = copy / ("tools" if program == "docs" else "bin") / program
    write_program(path, f'echo "report of $*"; [[ "$*" != *"{failing}"* ]]\n')
    assert run(copy, "tools/test")[0] == 1


def test_no_matching_test_is_a_failure_only_if_the_caller_chose_none(copy: Path) -> None:
    write_program(copy / "bin" / "python", '[[ "$*" != *grouped_tests* ]] || exit 5\n')
    assert run(copy, "tools/test")[0] == 1
    assert run(copy, "tools/test", "all", "tests")[0] == 0


@pytest.mark.parametrize("program", ["ruff", "mypy", "basedpyright", "python"])
def test_a_failure_fails_the_unit_part_and_is_printed(copy: Path, program: str) -> None:
    write_program(copy / "bin" / program, "echo it failed; exit 1\n")
    done = subprocess.run(
        [copy / "tools" / "test", "unit"], cwd=copy, env=environment(copy),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.count("it failed"), "clean" in done.stdout) == (1, 1, program == "python")


def test_ctrl_c_ends_what_runs_beside_the_tests(copy: Path) -> None:
    for name in ("mypy", "python"):
        write_program(copy / "bin" / name, f"echo $$ >{name}.pid; exec sleep 1000\n")
    command = [str(copy / "tools" / "test"), "unit"]
    script = subprocess.Popen(command, cwd=copy, env=environment(copy), start_new_session=True)
    pids = [copy / "mypy.pid", copy / "python.pid"]
    wait_until(lambda: all(path.exists() and path.read_text() for path in pids))
    os.killpg(script.pid, signal.SIGINT)
    assert script.wait(PATIENCE_SECONDS) == 130
    for path in pids:
        wait_until(lambda: not Path("/proc", path.read_text().strip()).exists())  # noqa: B023


@pytest.mark.parametrize("starts_one_more", [False, True])
def test_a_program_that_is_missing_ends_what_runs_beside(copy: Path, starts_one_more: bool) -> None:
    for name in ("mypy", "python"):
        write_program(copy / "bin" / name, f"echo $$ >>{name}.pids; exec sleep 1000\n")
    if starts_one_more:  # after the signal, as bash may
        ending = "sleep 1000 >/dev/null 2>&1 & echo $! >>mypy.pids; exit"
        write_program(copy / "bin" / "mypy", f"trap '{ending}' TERM; echo $$ >>mypy.pids; sleep 1000 & wait\n")
    waiting = "until [ -s mypy.pids ] && [ -s python.pids ]; do :; done"
    need = f'need() {{ [[ "$*" != *kerberos* ]] || {{ {waiting}; exit 3; }}; }}'
    (copy / "tools" / "env").write_text(f"{need}\nfind_python() {{ echo python; }}\n")
    assert run(copy, "tools/test")[0] == 3
    for pid in (copy / "mypy.pids").read_text().split() + (copy / "python.pids").read_text().split():
        wait_until(lambda: not Path("/proc", pid).exists())  # noqa: B023


def test_unit_slow_and_programs_are_all_tests_without_a_jvm(copy: Path) -> None:
    parts = []
    for part in ("unit", "slow", "programs"):
        done = [line for line in run(copy, "tools/test", part)[1] if "grouped_tests.py" in line]
        parts.append(done[-1].partition(" -m ")[2])
    marks = ("live", "spark", "programs", "slow")
    for chosen in product((False, True), repeat=len(marks)):
        of_test = dict(zip(marks, chosen, strict=True))
        runs = [part for part in parts if eval(part, {}, of_test)]
        assert len(runs) == (not of_test["live"] and not of_test["spark"]), (of_test, runs)


def test_ci_runs_everything(copy: Path) -> None:
    code, done, _ = run(copy, ".ci/run")
    assert code == 0
    assert_image_is_built(done)
    runs = [line for line in done if line.startswith(("pytest ", "python tools/checks/grouped_tests.py "))]
    for run_by_ci in (
        " -- -m not live and not spark", "-m live and not shared_brokers tests/live --ignore=tests/live/system",
        "/tests/live/test_* -m live and not spark", "-m shared_brokers tests/live", "-m spark",
    ):  # fmt: skip
        assert sum(line.endswith(run_by_ci) for line in runs) == 1
    (twice,) = (line for line in runs if "grouped_tests" in line)
    assert " --twice --once=tests/cli/test_process.py " in twice
    assert {"ruff check .", "mypy --no-error-summary", "python tools/checks/sanitize.py short"} <= set(done)


def env_script(root: Path, extras: str) -> subprocess.CompletedProcess[str]:
    """Run tools/env with the extras of the demo or the tests; an installation is only logged."""
    script = f'cd {root}; . tools/env; make_venv() {{ echo "make $EXTRAS"; }}; need python'
    return subprocess.run(
        ["bash", "-c", script], env={**os.environ, "KWIRE_EXTRAS": extras}, capture_output=True, text=True, check=True
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with tools/env, the files that its stamp covers, and a .venv whose Python does nothing."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "env", tmp_path / "tools" / "env")
    for name in ("setup.cfg", "pyproject.toml"):
        (tmp_path / name).write_text("")
    (tmp_path / "kwire" / "_c").mkdir(parents=True)
    (tmp_path / "kwire" / "_c" / "one.c").write_text("")
    (tmp_path / "kwire" / "_c" / "one.h").write_text("")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    write_program(tmp_path / ".venv" / "bin" / "python", "exit 0\n")
    return tmp_path


def test_the_environment_is_made_again_for_a_missing_extra(checkout: Path) -> None:
    extras_given = ["cli,zstd", "cli", "zstd,cli", "cli,zstd,spark", "spark", "cli,test"]
    made = [env_script(checkout, extras).stdout.strip() for extras in extras_given]
    assert made == ["make cli,zstd", "", "", "make cli,zstd,spark", "", "make cli,test"]
    (checkout / "setup.cfg").write_text("changed")
    assert env_script(checkout, "cli").stdout.strip() == "make cli"


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock (macOS) tools/env does not wait")
def test_two_commands_in_a_new_checkout_make_one_environment(checkout: Path) -> None:
    script = f"cd {checkout}; . tools/env; make_venv() {{ echo made; read -r; }}; need python"
    first, second = (
        subprocess.Popen(["bash", "-c", "read -r;" + script], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
        for _ in range(2)
    )
    with first, second:
        assert first.stdin is not None
        assert first.stdout is not None
        assert second.stdin is not None
        assert second.stderr is not None
        print(file=first.stdin, flush=True)
        assert first.stdout.readline() == "made\n"
        print(file=second.stdin, flush=True)
        assert "waiting" in second.stderr.readline()
        print(file=first.stdin, flush=True)
        assert second.communicate()[0] == ""
    assert (first.returncode, second.returncode) == (0, 0)


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock (macOS) tools/env does not wait")
def test_a_daemon_does_not_keep_the_lock_under_which_it_was_started(checkout: Path) -> None:
    # It is bash itself: a program would have closed what bash puts aside.
    start = "start() { (exec >/dev/null 2>&1; kill -STOP $BASHPID) & echo $!; }"
    script = f"cd {checkout}; . tools/env; {start}; one_at_a_time engine start; one_at_a_time engine echo free"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    pid, free = done.stdout.split()
    os.kill(int(pid), signal.SIGKILL)
    assert (free, done.stderr) == ("free", "")
