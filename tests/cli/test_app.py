"""The command group: help, exit codes, options that all commands share, and the cost of the start."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kwire.broker import Cluster
from kwire.cli.app import COMMANDS, kwire
from kwire.cli.error_report import ExitCode, error_lines, exit_code, takes_colour
from kwire.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectError,
    DecodeError,
    DeliveryError,
    EncodeError,
    KwireError,
    RequestTimeoutError,
    broker_error,
)
from kwire.version import VERSION
from kwire.wire import accel
from tests.cli.running import run
from tests.lint.traffic import Traffic

ROOT = Path(__file__).parents[2]


def test_help_names_every_command() -> None:
    ran = run("--help")
    assert ran.code == 0
    for name, line in COMMANDS.items():
        assert f"{name} " in ran.stdout
        assert line in ran.stdout
    assert run("--version").stdout == f"kwire {VERSION} ({accel.described()})\n"


def command_of(name: str) -> click.Command:
    command = kwire.get_command(click.Context(kwire), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name: str) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    assert COMMANDS[name] == (command_of(name).help or "").partition("\n")[0]
    assert all(len(line) <= 100 for line in ran.stdout.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_given_twice(name: str) -> None:
    names = [text for option in command_of(name).params for text in option.opts]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "args", [["nosuch"], ["--nosuch"], ["error", "--nosuch"], ["metadata"], ["consume", "-b", "x:1"]]
)
def test_usage_errors(args: list[str]) -> None:
    assert run(*args).code == 2


def caused(error: KwireError, cause: BaseException) -> KwireError:
    error.__cause__ = cause
    return error


REFUSED = ConnectError("refused", remedy="is it up?", broker="1 at db:9092")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 2),
        (EncodeError("x"), 2),
        (REFUSED, 3),
        (AuthenticationError("x"), 3),
        (DecodeError("x"), 4),
        (broker_error(3), 1),
        (RequestTimeoutError("x"), 1),
        (caused(RequestTimeoutError("x"), REFUSED), 3),
        (caused(RequestTimeoutError("x"), RequestTimeoutError("no handshake")), 3),
        (caused(DeliveryError("x", possibly_persisted=False), broker_error(3)), 1),
        (caused(DeliveryError("x", possibly_persisted=True), REFUSED), 3),
        (DeliveryError("x", possibly_persisted=False), 1),
    ],
    ids=repr,
)
def test_exit_codes(error: KwireError, code: int) -> None:
    assert exit_code(error) == code


def test_exit_codes_are_what_scripts_rely_on() -> None:
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3, 4, 74, 130, 141]


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (REFUSED, ["refused", "  at:  broker 1 at db:9092", "  do:  is it up?"]),
        (
            caused(RequestTimeoutError(f"no response; the last was: {REFUSED}", api="Fetch", remedy="wait"), REFUSED),
            [
                "no broker could be reached in time", "  at:  Fetch", "  why: refused [broker 1 at db:9092]",
                "  do:  is it up?",
            ],
        ),
        (DecodeError("bad", path="topics[3].name", offset=7), ["bad", "  at:  field topics[3].name, offset 7"]),
        (KwireError("alone"), ["alone"]),
    ],
)  # fmt: skip
def test_an_error_says_what_where_why_and_what_to_do(error: KwireError, lines: list[str]) -> None:
    assert error_lines(error) == lines


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("consum", "there is no command consum; did you mean consume or configs?"),
        ("brokers", "did you mean broker or tokens?"),
        ("zzz", "there is no command zzz; `kwire --help` lists them"),
    ],
)
def test_a_misspelled_command(typed: str, says: str) -> None:
    ran = run(typed)
    assert (ran.code, ran.stdout) == (2, "")
    assert says in ran.stderr


@pytest.mark.parametrize(
    ("term", "no_color", "is_terminal", "expected"),
    [
        ("xterm", None, True, True),
        ("dumb", None, True, False),
        ("xterm", "1", True, False),
        ("xterm", None, False, False),
    ],
)
def test_which_streams_have_colour(
    monkeypatch: pytest.MonkeyPatch, term: str, no_color: str | None, is_terminal: bool, expected: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    assert takes_colour(stream) is expected


@pytest.mark.parametrize("args", [["--help"], ["decode", "--help"], ["metadata", "--help"]])
def test_help_imports_little(args: list[str]) -> None:
    """The start takes less than 300 ms: it imports no rich, no sockets and no messages of other commands."""
    code = (
        "import sys\nfrom kwire.cli import main\n"
        f"try: main({args!r})\nexcept SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(ran.stderr.split())
    heavy = {
        "rich",
        "ssl",
        "selectors",
        "socket",
        "kwire.net",
        "kwire.cluster",
        "kwire.consumer",
        "kwire.broker",
        "lz4",
    }
    if args == ["--help"]:
        heavy |= {"kwire.protocol", "kwire.records", "json"}
    assert not imported & heavy


@pytest.mark.parametrize("package", ["kwire.capture", "kwire.logs.indexes", "kwire.logs.internal_topics"])
def test_captures_and_logs_are_read_without_click(package: str) -> None:
    code = f"import sys, {package}\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"click", "rich"} & set(ran.stdout.split())


@pytest.mark.parametrize(("package", "extra"), [("click", "cli"), ("rich", "cli")])
def test_a_missing_extra_is_named(package: str, extra: str) -> None:
    code = (
        f"import sys\nsys.modules[{package!r}] = None\n"  # importing it raises ModuleNotFoundError
        "from kwire.cli import main\nmain(['error', '-f', 'table'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert f"this needs the package {package}: pip install 'kwire[{extra}]'" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        ("/dev/full", 74, "the output cannot be written: No space left on device"),
        ("/no/such/folder/file", 2, "/no/such/folder/file cannot be written: No such file or directory"),
    ],
)
@pytest.mark.parametrize("command", [["timeline"], ["pipeline", "report", "--processes", "1"]])
def test_a_file_that_cannot_be_written(tmp_path: Path, command: list[str], target: str, code: int, says: str) -> None:
    capture = tmp_path / "empty.pcap"
    capture.write_bytes(Traffic().capture())
    ran = run(*command, str(capture), "-o", target)
    assert (ran.code, says in ran.stderr) == (code, True), ran.stderr


def test_a_request_log_that_cannot_be_written() -> None:
    ran = run("broker", "--port", "0", "--request-log", "/no/such/folder/file")
    assert (ran.code, "/no/such/folder/file cannot be written" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    "args",
    [
        ["metadata", "-b", "127.0.0.1:1", "--timeout", "nan"],
        ["metadata", "-b", "127.0.0.1:1", "--timeout", "inf"],
        ["metadata", "-b", "127.0.0.1:1", "--timeout", "1e300"],
        ["produce", "t", "-b", "127.0.0.1:1", "--delivery-timeout", "inf"],
        ["transactions", "list", "-b", "127.0.0.1:1", "--older-than", "nan"],
        ["decode", "--slower-than", "nan"],
        ["stats", "-", "--every", "inf"],
        ["stats", "-", "--every", "1e-300s"],
        ["decode", "-w", "(" * 3000],
    ],
)
def test_numbers_that_are_none_are_wrong_usage(args: list[str]) -> None:
    ran = run(*args)
    assert (ran.code, ran.stdout) == (2, "")


def test_a_time_before_the_calendar_is_its_beginning() -> None:
    with Cluster(1, topics={"t": 1}) as cluster:
        ran = run("consume", "t", "-b", cluster.bootstrap, "-o", "@-99999999999d", "-e", "-q")
    assert (ran.code, ran.stdout, ran.stderr) == (0, "", "")


def test_ctrl_c_while_a_class_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr("kwire.cli.app.importlib.import_module", interrupted)
    assert run("stats", "--help").code == 130
