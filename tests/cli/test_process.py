"""`kwire` as a process: pipes, terminals, signals and exit codes, as a shell sees them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kwire import Admin, Producer
from kwire.broker import Cluster
from kwire.errors import BrokerError
from kwire.protocol.messages.heartbeat import HeartbeatResponse
from tests.capture.samples import METADATA_REQUEST
from tests.lint.test_statistics import BEAT
from tests.lint.traffic import Traffic
from tests.waiting import wait_until

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[2]
KWIRE = [sys.executable, "-c", "from kwire.cli import main; main()"]
SECONDS = 30  # seconds, for waits that usually end at once


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, topics={"t": 1, "empty": 1}) as running:
        yield running


def environment(**more: str) -> dict[str, str]:
    hidden = ("KWIRE_", "NO_COLOR", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **more}


def run(*args: str, stdin: bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*KWIRE, *args], input=stdin, capture_output=True, env=environment(**more), timeout=SECONDS, check=False
    )


@contextmanager
def started(*args: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*KWIRE, *args], stdin=pipe, stdout=pipe, stderr=pipe, env=environment(**more)) as process:
        try:
            yield process
        finally:
            process.kill()


def on_terminal(*args: str, width: int, **more: str) -> str:
    """Return what the command prints on a terminal of this width, with its escape sequences."""
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen:
        env = environment(**{"COLUMNS": str(width), "TERM": "xterm-256color", **more})
        with subprocess.Popen(
            [*KWIRE, *args], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=env
        ) as process:
            os.close(slave)
            shown = b""
            while True:
                try:
                    chunk = screen.read(65536)
                except OSError:  # Linux's way to say that the other side is closed
                    break
                if not chunk:
                    break
                shown += chunk
            process.wait(SECONDS)
    return shown.decode().replace("\r\n", "\n")


def test_json_in_a_pipe_and_a_table_on_a_terminal() -> None:
    piped = run("error", "74")
    assert json.loads(piped.stdout)["name"] == "FENCED_LEADER_EPOCH"
    assert on_terminal("error", "74", width=80).startswith("code:        74 FENCED_LEADER_EPOCH\n")


def test_no_color(tmp_path: Path) -> None:
    file = tmp_path / "frame"
    file.write_bytes(METADATA_REQUEST)
    assert "\x1b[36m" in on_terminal("decode", str(file), width=80)
    assert "\x1b[" not in on_terminal("decode", str(file), width=80, NO_COLOR="1")
    assert "\x1b[" not in on_terminal("decode", str(file), "--no-color", width=80)
    assert b"\x1b[" not in run("decode", "-f", "table", str(file)).stdout


@pytest.mark.parametrize("width", [80, 160])
def test_lines_fit_the_terminal(width: int, cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "frame"
    file.write_bytes(METADATA_REQUEST)
    for args in (["decode", str(file)], ["schema", "Fetch"], ["error"], ["metadata"], ["versions"]):
        shown = on_terminal(*args, width=width, NO_COLOR="1", TERM="dumb", KWIRE_BOOTSTRAP=cluster.bootstrap)
        assert max(len(line) for line in shown.splitlines()) <= width, args


@pytest.mark.parametrize(
    ("args", "stdin", "code"),
    [
        (["--version"], b"", 0),
        (["error", "0"], b"", 0),
        (["nosuch"], b"", 2),
        (["metadata"], b"", 2),
        (["metadata", "-b", "127.0.0.1:1", "--timeout", "0.3"], b"", 3),
        (["decode"], b"\x7f\xff\0\0", 4),
        (["decode"], METADATA_REQUEST, 0),
        (["encode", "Metadata@1"], b"{", 2),
    ],
)
def test_exit_codes(args: list[str], stdin: bytes, code: int) -> None:
    ran = run(*args, stdin=stdin)
    assert ran.returncode == code, ran.stderr
    assert b"Traceback" not in ran.stderr


def test_a_reader_that_closes_the_pipe(cluster: Cluster) -> None:
    """`kwire consume t | head -1`: no complaint, and the exit code that a shell gives a program killed by SIGPIPE."""
    env = {"KWIRE_BOOTSTRAP": cluster.bootstrap}
    assert run("produce", "t", stdin=b"x" * 1000 + b"\n" + b"line\n" * 100_000, **env).returncode == 0
    for args in (["consume", "t"], ["consume", "t", "--raw"]):
        with started(*args, **env) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(1000)
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(SECONDS) == 141


def test_a_reader_that_closes_the_pipe_before_the_first_write() -> None:
    with started("schema") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(SECONDS) == 141


def run_with(redirection: str, *args: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command with a redirection of the shell, such as `<&-`."""
    script = f'exec "$@" {redirection}'
    command = ["sh", "-c", script, "sh", *KWIRE, *args]
    return subprocess.run(command, capture_output=True, env=environment(), timeout=SECONDS, check=False)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["encode", "Metadata@1"], 2),  # nothing is no JSON
        (["decode", "-"], 4),
        (["send", "Metadata", "-", "-b", "127.0.0.1:1", "--timeout", "0.3"], 2),
        (["produce", "t", "-b", "127.0.0.1:1", "--timeout", "0.3"], 3),
    ],
)
def test_a_closed_stdin_is_empty(args: list[str], code: int) -> None:
    ran = run_with("<&-", *args)
    assert b"Traceback" not in ran.stderr
    assert ran.returncode == code, ran.stderr


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["error", "74"], ["nosuch"], ["error", "-f", "table"]])
@pytest.mark.parametrize("redirection", [">&-", "<&- >&-"])
def test_a_closed_stdout_cannot_be_written(args: list[str], redirection: str) -> None:
    ran = run_with(redirection, *args)
    assert ran.stderr == b"kwire: the output cannot be written: stdout is closed\n"
    assert ran.returncode == 74


@pytest.mark.parametrize("command", ["decode", "decode -f table", "stats - --every 1s", "stats - --every 1s -f table"])
def test_a_live_capture_is_shown_while_it_goes_on(command: str) -> None:
    traffic = Traffic()
    connection = traffic.connection()
    for second in range(3):
        connection.exchange(second, BEAT, 4, HeartbeatResponse(error_code=0))
    with started(*command.split(), PYTHONUNBUFFERED="") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(traffic.capture())
        process.stdin.flush()
        assert select.select([process.stdout], [], [], SECONDS)[0], "nothing came before the end of the capture"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", ["decode", "stats --by client", "timeline --ascii"])
def test_names_that_the_locale_lacks_are_escaped(tmp_path: Path, encoding: str, command: str) -> None:
    path = tmp_path / "t.pcap"
    traffic = Traffic()
    traffic.connection(client_id="日本").exchange(0, BEAT, 4, None)
    path.write_bytes(traffic.capture())
    ran = run(*command.split(), "-f", "table", str(path), PYTHONIOENCODING=encoding)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False), ran.stderr
    assert b"\\u65e5\\u672c" in ran.stdout


def test_a_closed_stderr_gets_no_remarks() -> None:
    for code, args in ((0, ["error", "74"]), (3, ["metadata", "-b", "127.0.0.1:1", "--timeout", "0.3"])):
        assert run_with("2>&-", *args).returncode == code
    assert run_with(">&- 2>&-", "error", "74").returncode == 74


ENDS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def interrupted(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
    process.send_signal(number)
    _, stderr = process.communicate(timeout=SECONDS)
    return process.returncode, stderr.decode()


@ENDS
def test_a_signal_ends_consume(cluster: Cluster, number: signal.Signals) -> None:
    run("produce", "t", stdin=b"x\n", KWIRE_BOOTSTRAP=cluster.bootstrap)
    with started("consume", "t", KWIRE_BOOTSTRAP=cluster.bootstrap) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["topic"] == "t"
        code, stderr = interrupted(process, number)
    assert (code, stderr.strip()) == (130, "")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_in_a_group_commits_what_it_printed(cluster: Cluster, protocol: str) -> None:
    topic = group = f"shared-{protocol}"
    cluster.create_topic(topic, partitions=1)
    options = ("--group", group, "--group-protocol", protocol)
    run("produce", topic, stdin=b"a\nb\nc\n", KWIRE_BOOTSTRAP=cluster.bootstrap)
    assert values(
        run("consume", topic, *options, "-c", "1", "--commit", "manual", KWIRE_BOOTSTRAP=cluster.bootstrap)
    ) == ["a"]
    assert values(run("consume", topic, *options, "-c", "1", KWIRE_BOOTSTRAP=cluster.bootstrap)) == ["a"]
    with started("consume", topic, *options, "--instance-id", "one", KWIRE_BOOTSTRAP=cluster.bootstrap) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["value"] for _ in range(2)] == ["b", "c"]
        assert interrupted(process) == (130, "")
    run("produce", topic, stdin=b"d\ne\n", KWIRE_BOOTSTRAP=cluster.bootstrap)
    assert values(run("consume", topic, *options, "--instance-id", "one", "-e", KWIRE_BOOTSTRAP=cluster.bootstrap)) == [
        "d",
        "e",
    ]
    with Admin(cluster.bootstrap) as admin:
        offsets, members = admin.groups.offsets(group), admin.groups.describe(group).members
    assert {key: offset.offset for key, offset in offsets.items()} == {(topic, 0): 5}
    assert [member.instance_id for member in members if member.instance_id is None] == []


def values(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line)["value"] for line in done.stdout.splitlines()]


def test_members_that_consume_share_the_partitions(cluster: Cluster) -> None:
    cluster.create_topic("halves", partitions=2)
    env = {"KWIRE_BOOTSTRAP": cluster.bootstrap}
    options = ("--group", "halves", "-X", 'assignors=["range"]')
    with (
        started("consume", "halves", *options, **env) as first,
        started("consume", "halves", *options, **env) as second,
    ):
        wait_for_members(cluster, "halves", 2)
        with Producer(cluster.bootstrap) as producer:
            for partition in (0, 1):
                producer.send("halves", b"%d" % partition, partition=partition)
        read = []
        for process in (first, second):
            assert process.stdout is not None
            read.append(json.loads(process.stdout.readline())["value"])
            assert interrupted(process)[0] == 130
    assert sorted(read) == ["0", "1"]
    with Admin(cluster.bootstrap) as admin:
        assert admin.groups.describe("halves").members == ()


def wait_for_members(cluster: Cluster, group: str, count: int) -> None:
    """Wait until this many members of the group have partitions."""
    with Admin(cluster.bootstrap) as admin:

        def have_joined() -> bool:
            try:
                found = admin.groups.describe(group)
            except BrokerError:  # nobody has joined yet
                return False
            return found.state == "Stable" and sum(bool(member.assignment) for member in found.members) == count

        wait_until(have_joined, SECONDS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("t:0", "--group", "g"), "without partitions"),
        (("t", "--group", "g", "-o", "7"), "-o must be"),
        (("t", "--group", "g", "-o", "-1"), "-o must be"),
        (("t", "--instance-id", "i"), "needs --group"),
    ],
)
def test_what_a_group_cannot_consume(options: tuple[str, ...], message: str) -> None:
    done = run("consume", *options, KWIRE_BOOTSTRAP="localhost:1")
    assert done.returncode == 2
    assert message in done.stderr.decode()


STUCK = """
import sys, threading, types
import click
from kwire.cli import app, main

@click.command()
def command():
    try:
        print("ready", flush=True)
        threading.Event().wait()
    finally:
        print("closing", flush=True)
        threading.Event().wait()

sys.modules["kwire.cli.stuck"] = types.ModuleType("stuck")
sys.modules["kwire.cli.stuck"].command = command
app.COMMANDS["stuck"] = ""
main(["stuck"])
"""


@ENDS
def test_a_second_signal_exits_at_once(number: signal.Signals) -> None:
    command = [sys.executable, "-c", STUCK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        for line in (b"ready\n", b"closing\n"):
            assert process.stdout.readline() == line
            process.send_signal(number)
        assert process.wait(SECONDS) == 130


INTERRUPTED_IMPORT = """
import os, signal, sys
from importlib.abc import MetaPathFinder
from kwire.cli import main

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
main(["stats", "--help"])
"""


@pytest.mark.parametrize(
    ("module", "code"), [("click", -signal.SIGINT), ("kwire.cli.app", -signal.SIGINT), ("kwire.cli.stats", 130)]
)
def test_ctrl_c_while_a_command_starts(module: str, code: int) -> None:
    """A shell shows 130 of both."""
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, module]
    ran = subprocess.run(command, capture_output=True, env=environment(), timeout=30, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.strip()) == (code, b"", b"")


def test_nothing_large_is_imported_before_ctrl_c_is_guarded_against() -> None:
    code = "import sys; before = set(sys.modules); import kwire.cli; print(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), timeout=30, check=True)
    assert b"kwire.cli" in ran.stdout
    assert not {b"threading", b"click"} & set(ran.stdout.split())


def test_the_command_can_be_called_in_another_thread() -> None:
    code = """
import threading
from kwire.cli import main

threading.Thread(target=main, args=(["--version"],)).start()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), timeout=30, check=False)
    assert (ran.stdout.startswith(b"kwire"), ran.stderr) == (True, b"")


@ENDS
def test_a_signal_in_produce_delivers_what_was_read(cluster: Cluster, number: signal.Signals) -> None:
    with started("produce", "t", "--report", "-X", "linger_ms=0", KWIRE_BOOTSTRAP=cluster.bootstrap) as process:
        assert process.stdin is not None
        process.stdin.write(b"signal %02d\n" % number)
        process.stdin.flush()
        wait_for_record(cluster, b"signal %02d" % number)
        code, stderr = interrupted(process, number)
    assert code == 130
    assert "1 record, 9 bytes to t" in stderr


def wait_for_record(cluster: Cluster, value: bytes) -> None:
    """Wait until the record is in the log."""
    from kwire.consumer import Consumer

    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([("t", 0, "earliest")])
        for record in consumer:
            if record.value == value:
                return


def first_line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_broker(number: signal.Signals, code: int) -> None:
    """The first line has the address, then any client can connect. A signal ends the brokers cleanly."""
    with started("broker", "--brokers", "2", "--port", "0", "--topic", "made:4", "--topic", "other") as process:
        line = first_line(process)
        assert line["bootstrap"].split(",") == line["brokers"]
        assert len(line["brokers"]) == 2
        metadata = run("metadata", "made", "other", KWIRE_BOOTSTRAP=line["bootstrap"])
        topics = [one for one in map(json.loads, metadata.stdout.splitlines()) if one["kind"] == "topic"]
        assert [(one["name"], len(one["partitions"])) for one in topics] == [("made", 4), ("other", 1)]
        process.send_signal(number)
        _, stderr = process.communicate(timeout=SECONDS)
        assert process.returncode == code
        assert f"export KWIRE_BOOTSTRAP={line['bootstrap']}" in stderr.decode()


def test_broker_on_ipv6() -> None:
    with started("broker", "--brokers", "1", "--port", "0", "--host", "::1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        bootstrap = json.loads(process.stdout.readline())["bootstrap"]
        assert bootstrap.startswith("[::1]:")
        process.stderr.readline()
        assert process.stderr.readline().decode() == f"  export KWIRE_BOOTSTRAP='{bootstrap}'\n"  # a shell's pattern
        assert run("metadata", KWIRE_BOOTSTRAP=bootstrap).returncode == 0


def test_broker_advertises_another_address_than_it_listens_on() -> None:
    options = ["--brokers", "1", "--port", "0", "--listen-host", "127.0.0.1", "--advertise", "localhost"]
    with started("broker", *options) as process:
        host, _, port = first_line(process)["bootstrap"].rpartition(":")
        assert host == "localhost"
        assert run("metadata", KWIRE_BOOTSTRAP=f"127.0.0.1:{port}").returncode == 0
        interrupted(process)


def test_broker_with_a_data_directory(tmp_path: Path) -> None:
    for _ in range(2):
        with started("broker", "--brokers", "1", "--port", "0", "--data-dir", str(tmp_path / "data")) as process:
            env = {"KWIRE_BOOTSTRAP": first_line(process)["bootstrap"]}
            produced = run("produce", "t", stdin=b"kept\n", **env)
            assert produced.returncode == 0, produced.stderr
            read = run("consume", "t", "-e", "-o", "earliest", "-F", "%s\n", **env).stdout
            interrupted(process)
    assert read == b"kept\nkept\n"
    checked = run("dump-log", "--check", str(tmp_path / "data"))
    assert checked.returncode == 0, checked.stdout


def test_broker_with_a_second_listener() -> None:
    options = ["--listener", "OUT=PLAINTEXT://127.0.0.1:0", "--advertised-listener", "OUT=localhost"]
    with started("broker", "--brokers", "2", "--port", "0", *options, "--user", "me:secret") as process:
        line = first_line(process)
        out = line["bootstrap_out"]
        assert [address.rpartition(":")[0] for address in out.split(",")] == ["localhost"] * 2
        assert run("metadata", "--timeout", "2", KWIRE_BOOTSTRAP=line["bootstrap"]).returncode == 3  # it wants SASL
        told = run("metadata", KWIRE_BOOTSTRAP=out)
        assert told.returncode == 0
        brokers = [json.loads(text) for text in told.stdout.splitlines()]
        assert {f"{one['host']}:{one['port']}" for one in brokers if one["kind"] == "broker"} == set(out.split(","))
        interrupted(process)


def test_broker_with_a_control_port_a_request_log_and_a_release(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    options = ["--brokers", "1", "--port", "0", "--control", "0", "--request-log", str(log), "--as-version", "3.9"]
    with started("broker", *options) as process:
        line = first_line(process)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", line["control"])
        fault = json.dumps({"effect": "Refuse", "code": "TOPIC_AUTHORIZATION_FAILED", "api": "Metadata"}).encode()
        with urllib.request.urlopen(f"{line['control']}/faults", fault, timeout=SECONDS) as response:
            assert json.load(response) == {"id": 1}
        assert run("metadata", KWIRE_BOOTSTRAP=line["bootstrap"]).returncode == 0
        shown = run("versions", "-f", "json", KWIRE_BOOTSTRAP=line["bootstrap"]).stdout
        assert json.loads(shown.splitlines()[0])["nearest_release"] == "3.9"
        interrupted(process)
    written = [json.loads(text) for text in log.read_text().splitlines()]
    assert written[0]["api"] == "Metadata"
    assert written[0]["software"].startswith("kwire")
    assert all(record["outcome"] == "response" and record["latency_ms"] >= 0 for record in written)


@pytest.mark.parametrize("module", ["kwire", "kwire.cli"])
def test_python_dash_m_kwire(module: str) -> None:
    command = [sys.executable, "-m", module, "error", "3"]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=SECONDS, check=True)
    assert json.loads(done.stdout)["name"] == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize("options", [["schema"], ["schema", "-f", "table"], ["error", "-f", "json"]])
def test_a_full_disk_is_reported_in_one_line(options: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*KWIRE, *options], stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=SECONDS, check=False
        )
    assert done.returncode == 74
    assert done.stderr.decode().splitlines() == ["kwire: the output cannot be written: No space left on device"]


def test_an_unreachable_broker_is_reported_before_the_timeout() -> None:
    with socket.socket() as silent:  # bound, so that no other test gets its port, but not listening
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        done = run("metadata", "-b", f"127.0.0.1:{port}", "--timeout", "2")
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 3
    assert lines[0].startswith(f"no broker can be reached; tried 127.0.0.1:{port}; the last failure: cannot connect")
    assert lines[1] == "kwire: no broker could be reached in time"


def complete(*words: str, bootstrap: str = "") -> list[str]:
    """Return the completions that bash gets for the last of these words."""
    line = " ".join(["kwire", *words])
    state = {"_KWIRE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    env = environment(KWIRE_BOOTSTRAP=bootstrap, **state)
    done = subprocess.run(KWIRE, capture_output=True, env=env, timeout=SECONDS, check=True)
    return [one.partition(",")[2] for one in done.stdout.decode().splitlines() if one]


def test_send_on_a_terminal_says_that_it_waits_for_input(cluster: Cluster) -> None:
    terminal, stdin = pty.openpty()
    with os.fdopen(terminal, "wb", buffering=0) as keyboard, os.fdopen(stdin, "rb") as file:
        keyboard.write(b"{}\n\x04")
        done = subprocess.run(
            [*KWIRE, "send", "DescribeCluster"], stdin=file, capture_output=True, timeout=SECONDS, check=False,
            env=environment(KWIRE_BOOTSTRAP=cluster.bootstrap),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["errorCode"] == 0
    hint = done.stderr.decode().splitlines()[0]
    assert hint.startswith("Reading the fields of DescribeCluster as JSON from this terminal")
    assert hint.endswith("then press Ctrl-D.")


def test_completion(cluster: Cluster) -> None:
    assert complete("consume", "em", bootstrap=cluster.bootstrap) == ["empty"]
    assert complete("produce", "-b", cluster.bootstrap, "e") == ["empty"]
    assert complete("consume", "em") == []  # no broker is named
    assert complete("schema", "FindC") == ["FindCoordinator"]
    assert complete("decode", "--api", "Metadata,FindC") == ["Metadata,FindCoordinator"]
    assert complete("error", "not-l") == ["NOT_LEADER_OR_FOLLOWER"]


def test_broker_with_sasl() -> None:
    with started("broker", "--brokers", "1", "--port", "0", "--user", "me:secret", "-q") as process:
        env = {"KWIRE_BOOTSTRAP": first_line(process)["bootstrap"]}
        assert run("metadata", KWIRE_USERNAME="me", KWIRE_PASSWORD="secret", **env).returncode == 0
        assert run("metadata", "--timeout", "2", KWIRE_USERNAME="me", KWIRE_PASSWORD="wrong", **env).returncode == 3
        code, stderr = interrupted(process)
        assert code == 130
        assert "client 'kwire' (kwire " in stderr
        assert "did not authenticate with SASL SCRAM-SHA-512: invalid credentials" in stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--topic", "t:x"], b"not NAME or NAME:PARTITIONS"),
        (["--user", "me"], b"NAME:PASSWORD"),
        (["--key", __file__], b"need --cert"),
        (["--listener", "x=PLAINTEXT://h:1"], b"NAME=PROTOCOL://HOST:PORT"),
        (["--listener", "X=SSL://h:1"], b"needs --cert"),
        (["--advertised-listener", "X=h:p"], b"NAME=HOST:PORT"),
        (["--advertised-listener", "X=h"], b"no such --listener"),
        (["-X", "nosuch=1", "--port", "0"], b"nosuch"),
    ],
)
def test_wrong_broker_options_are_errors(args: list[str], says: bytes) -> None:
    ran = run("broker", *args)
    assert (ran.returncode, says in ran.stderr) == (2, True), ran.stderr


def test_broker_on_a_port_in_use(cluster: Cluster) -> None:
    port = cluster.bootstrap.rpartition(":")[2]
    ran = run("broker", "--brokers", "1", "--port", port)
    assert ran.returncode == 3
    assert port.encode() in ran.stderr
    assert b"Traceback" not in ran.stderr
