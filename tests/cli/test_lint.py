"""`kwire lint`: output, exit codes, formats, rule files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kwire.capture.packets import read_packets
from kwire.lint import RULES
from tests.capture.captures import Timed, pcapng
from tests.cli.running import run
from tests.lint.test_rules import PLANTS
from tests.lint.traffic import Traffic

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def capture(tmp_path: Path) -> str:
    """Return a file with a warning (P01), an error (S01) and information (P04 or P05)."""
    traffic = Traffic()
    for id in ("P01", "S01", "P05"):
        PLANTS[id](traffic, True)
    path = tmp_path / "traffic.pcap"
    path.write_bytes(traffic.capture())
    return str(path)


def test_a_table(capture: str) -> None:
    ran = run("lint", capture, "-f", "table")
    assert ran.code == 1
    error, fix, warning, *_, summary = ran.stdout.splitlines()
    assert error.startswith("error S01 denied               app / billing   GROUP_AUTHORIZATION_FAILED to Heartbeat")
    assert fix == "      fix: grant the right (kwire acls add), or use another user."
    assert warning.startswith("warn  P01 acks-0")
    assert summary == "1 error, 1 warning, 1 info hidden (-v); 3 exchanges of 3 connections"
    assert "P05" in run("lint", capture, "-f", "table", "-v").stdout


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--fail-on", "never"], 0),
        (["--ignore", "S,P01"], 0),
        (["--ignore", "S,P01", "--fail-on", "info"], 1),
        (["--select", "P", "--fail-on", "error"], 0),
        (["--select", "denied"], 1),
        (["--select", "X"], 2),
        (["--assume", "a=1"], 2),
        (["--assume", "max.poll.interval.ms"], 2),
    ],
)
def test_exit_codes(capture: str, options: list[str], code: int) -> None:
    assert run("lint", capture, *options).code == code


def test_json(capture: str) -> None:
    first = run("lint", capture, "--json").lines()[0]
    assert (first["rule"], first["level"], first["count"]) == ("S01", "error", 1)
    assert first["packets"]
    assert first["time"].startswith("2027-")


def test_times_beyond_the_calendar(tmp_path: Path) -> None:
    """A capture whose clock was wrong, or whose bytes are damaged."""
    path = tmp_path / "late.pcapng"
    traffic = Traffic()
    PLANTS["S01"](traffic, True)
    late = [Timed(2**71, packet.data, len(packet.data)) for packet in read_packets(io.BytesIO(traffic.capture()))]
    path.write_bytes(pcapng(late, resolution=0))
    ran = run("lint", str(path), "--select", "S01", "--json")
    assert [line["time"] for line in ran.lines()] == [str(2**71 // 10**9 * 10**9)]


def test_sarif(capture: str) -> None:
    (run_,) = json.loads(run("lint", capture, "--sarif").stdout)["runs"]
    assert [one["ruleId"] for one in run_["results"]] == ["S01", "P01", "P05"]
    assert [one["level"] for one in run_["results"]] == ["error", "warning", "note"]
    assert len(run_["tool"]["driver"]["rules"]) == 58
    assert run_["results"][0]["properties"]["packets"]


def test_junit(capture: str) -> None:
    suite = ElementTree.fromstring(run("lint", capture, "--junit").stdout)
    assert (suite.get("tests"), suite.get("failures")) == ("58", "2")


def test_a_file_that_is_no_capture(capture: str, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_bytes(b"no capture")
    for options in ([], ["--fail-on", "never"], ["--json"]):
        ran = run("lint", str(path), *options)
        assert (ran.code, ran.stdout) == (4, "")
        assert "not a pcap or pcapng capture" in ran.stderr
    assert run("lint", capture, str(path)).code == 4  # the findings of the other do not hide it
    suite = ElementTree.fromstring(run("lint", str(path), capture, "--junit").stdout)
    assert (suite.get("tests"), suite.get("failures")) == ("59", "3")
    broken = suite[0]
    assert (broken.get("classname"), broken.get("name")) == (str(path), "the capture can be read")
    for files, succeeds in (([str(path)], False), ([capture], True), ([capture, str(path)], False)):
        (run_,) = json.loads(run("lint", *files, "--sarif").stdout)["runs"]
        (invocation,) = run_["invocations"]
        assert invocation["executionSuccessful"] is succeeds
        assert len(invocation["toolExecutionNotifications"]) == (not succeeds)


def test_rules_of_ones_own(capture: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[rule.OWN]\nwhere = "api == Heartbeat"\nlevel = "error"\ntext = "no heartbeats here"\n')
    ran = run("lint", capture, "--rules", str(path), "--select", "T", "-f", "table")
    assert ran.code == 1
    assert "error OWN OWN                  app / billing   no heartbeats here" in ran.stdout
    for wrong in ("[limits.P03]\nrecord = 1", "[limits.Z9]\na = 1", "[rule.A]\nlevel = 'warn'", "x = 1", "["):
        path.write_text(wrong)
        assert run("lint", capture, "--rules", str(path)).code == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'[limits.P03]\nrequests = "many"', "P03.requests is 'many'"),
        (b"[limits.P03]\nrequests = -1", "P03.requests is -1"),
        (b"[limits.P03]\nrequests = true", "P03.requests is True"),
        (b"[limits]\nP03 = 5", "write a table: [limits.P03]"),
        (b"limits = 3", "write a table: [limits]"),
        (b"[rule]\nA = 5", "write a table: [rule.A]"),
        (b'[assume]\n"max.poll.interval.ms" = "x"', "max.poll.interval.ms is 'x'"),
        (b"\xff\xfe", "is no rule file"),
    ],
)
def test_wrong_rule_files(capture: str, tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_bytes(text)
    ran = run("lint", capture, "--rules", str(path))
    assert ran.code == 2
    assert says in ran.stderr


@pytest.mark.parametrize("options", [["--json", "--sarif"], ["--sarif", "--junit"], ["--json", "--junit"]])
def test_one_format_at_a_time(capture: str, options: list[str]) -> None:
    ran = run("lint", capture, *options)
    assert (ran.code, ran.stdout) == (2, "")
    assert "give one of --json, --sarif and --junit" in ran.stderr


def test_explain(capture: str) -> None:
    assert len(run("lint", "--explain", "all").lines()) == 58
    assert "P03 tiny-batches (warn)" in run("lint", "--explain", "p03", "-f", "table").stdout
    assert run("lint", "--explain", "Z9").code == 2
    assert run("lint").code == 2


def test_the_documents_have_every_rule() -> None:
    page = (ROOT / "docs" / "howto" / "lint.md").read_text()
    for one in RULES.values():
        limits = ", ".join(f"{name} {number:g}" for name, number in one.limits.items()) or "-"
        assert f"| {one.id} | {one.name} | {one.level.label} | {one.title} | {limits} |" in page
