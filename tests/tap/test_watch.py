"""`kwire tap --lint` and `--stats`, with a client that another process runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

import pytest

from kwire.broker import Cluster
from kwire.lint import Linter
from tests.cli.running import Ran, run

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


def test_news_are_told_once() -> None:
    assert Linter().news() == []


@pytest.mark.parametrize("options", [["--lint"], ["--stats", "10s"]])
def test_the_screen_has_the_terminal_for_itself(options: list[str]) -> None:
    ran = run("tap", "-b", "127.0.0.1:1", "--ui", *options)
    assert ran.code == 2
    assert "leave out --lint and --stats" in ran.stderr
