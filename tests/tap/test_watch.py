"""`kwire tap --lint` and `--stats`, with a client that another process runs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import kwire
from kwire.broker import Cluster
from kwire.capture.secrets import MASKED
from kwire.cli.output import Output
from kwire.cli.tap_watch import LiveStats
from kwire.lint import Linter
from kwire.net import VirtualClock
from kwire.tap.proxy import Proxy
from kwire.tap.recorder import Recorder
from tests.cli.running import Ran, run
from tests.lint.test_statistics import BEAT
from tests.lint.traffic import Traffic

# PYTHONWARNINGS of the test run are not for the program.
_PRODUCE = "echo hello | " + shlex.join([sys.executable, "-m", "kwire", "produce", "orders", "--acks", "0", "-q"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, topics={"orders": 1}) as running:
        yield running


def tap(cluster: Cluster, *options: str) -> Ran:
    ran = run("tap", "-b", cluster.bootstrap, "-q", *options, "--exec", _PRODUCE)
    assert ran.code == 0, ran.stderr
    return ran


def test_findings_are_told_at_once_and_at_the_end(cluster: Cluster) -> None:
    ran = tap(cluster, "--lint", "-f", "table", "-w", "api == Fetch")
    assert ran.stderr.count("lint P01 acks-0: ") == 1
    assert "P01" in ran.stdout
    assert "0 errors, 1 warning" in ran.stdout
    assert "Produce" not in ran.stdout  # -q shows no exchanges
    (finding,) = [one for one in tap(cluster, "--lint").lines() if one["rule"] == "P01"]
    assert (finding["kind"], finding["level"]) == ("finding", "warn")


def test_counts(cluster: Cluster) -> None:
    rows = {row["api"]: row for row in tap(cluster, "--stats", "1h").lines()}
    assert rows["Produce"]["n"] == 1
    assert rows["Produce"]["records"] == 1
    assert "Metadata" in rows
    table = tap(cluster, "--stats", "1h", "-f", "table").stdout
    assert "req/s" in table
    assert "Produce" in table


@pytest.mark.programs
def test_counts_are_shown_at_their_time(cluster: Cluster) -> None:
    """Not when the next exchange comes: after the last one there is none."""
    command = [sys.executable, "-m", "kwire", "tap", "-b", cluster.bootstrap, "-q", "--stats", "200ms", "-f", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tap:
        assert tap.stdout is not None
        assert tap.stderr is not None
        watchdog = threading.Timer(30, tap.kill)
        watchdog.start()
        address = tap.stderr.readline().split(" on ")[1].split(" ")[0]
        with kwire.Producer(address) as producer:
            producer.send("orders", b"v").result(10)
        while json.loads(tap.stdout.readline())["api"] != "Produce":
            pass
        watchdog.cancel()
        tap.terminate()
        rest, remarks = tap.communicate(timeout=10)
        assert "Produce" not in rest, "it is told once"
        assert remarks == ""


def test_a_span_without_exchanges_has_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    traffic = Traffic()
    traffic.connection().exchange(0, BEAT, 4, None)
    stats = LiveStats(10, Output(is_table=False, quiet=False, verbose=0))
    stats.tick(5_000_000)
    for exchange in traffic.exchanges():
        stats.add(exchange)
    assert capsys.readouterr().out == ""
    stats.tick(15_000_000)
    (line,) = capsys.readouterr().out.splitlines()
    assert (json.loads(line)["at_ms"], json.loads(line)["n"]) == (5, 1)
    stats.tick(25_000_000)
    stats.end()
    assert capsys.readouterr().out == ""


def test_a_tap_ticks_without_traffic() -> None:
    clock, ticks = VirtualClock(1000.0, autojump=True), list[int]()
    proxy = Proxy(
        [("127.0.0.1", 1)], Recorder(None, None, MASKED), clock, tick_seconds=10, on_tick=lambda at: ticks.append(at)
    )
    try:
        proxy.turn(60)
        assert (len(ticks), clock.now()) == (1, 1000.0), "the first span begins with the tap"
        while len(ticks) < 3:
            proxy.turn(60)
        clock.advance(34)  # such as while the machine sleeps
        while len(ticks) < 5:
            proxy.turn(60)
    finally:
        proxy.close()
    assert [round((at - ticks[0]) / 1e9) for at in ticks] == [0, 10, 20, 54, 60]


def test_news_are_told_once() -> None:
    assert Linter().news() == []


@pytest.mark.parametrize("options", [["--lint"], ["--stats", "10s"]])
def test_the_screen_has_the_terminal_for_itself(options: list[str]) -> None:
    ran = run("tap", "-b", "127.0.0.1:1", "--ui", *options)
    assert ran.code == 2
    assert "leave out --lint and --stats" in ran.stderr
