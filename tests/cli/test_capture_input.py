"""What the commands say of a file without exchanges: no capture, a capture of something else, an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.captures import CLIENT, Talk, pcap, timed
from tests.cli.running import run
from tests.lint.test_statistics import BEAT
from tests.lint.traffic import Traffic

COMMANDS = {
    "decode": ["decode", "FILE"],
    "stats": ["stats", "FILE"],
    "lint": ["lint", "FILE"],
    "diff": ["diff", "FILE", "FILE"],
    "timeline": ["timeline", "FILE", "--ascii"],
    "replay": ["replay", "FILE", "--serve", ":0"],
    "view": ["view", "FILE"],
}
READERS = pytest.mark.parametrize("command", [one for one in COMMANDS if one not in ("decode", "view")])
TLS = "is not read (200 bytes): encrypted with TLS"


def run_on(file: Path, command: str, *options: str) -> tuple[int, str]:
    ran = run(*(str(file) if word == "FILE" else word for word in COMMANDS[command]), *options)
    return ran.code, ran.stderr


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "tls.pcap"
    talk = Talk().opened().send(CLIENT, b"\x16\x03\x01\x00\xc3" + bytes(195)).closed()
    path.write_bytes(pcap(timed(talk.packets)))
    return path


@READERS
def test_a_file_that_is_no_capture_is_an_error_in_spite_of_q(tmp_path: Path, command: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"no capture")
    for options in ([], ["-q"]):
        code, text = run_on(path, command, *options)
        assert code == 4
        assert "not a pcap or pcapng capture" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_capture_of_tls_only_is_not_one_without_findings(encrypted: Path, command: str) -> None:
    code, text = run_on(encrypted, command)
    assert code == 4
    assert TLS in text


@pytest.mark.parametrize("command", ["stats", "lint", "diff", "timeline", "view"])
def test_a_capture_without_traffic_has_no_exchange(tmp_path: Path, command: str) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap([]))
    code, text = run_on(path, command)
    assert code == 0
    assert "no Kafka exchange is in the capture" in text


def test_reports_say_why_nothing_was_read(encrypted: Path) -> None:
    for options in (["--junit"], ["--sarif"]):
        assert TLS in run("lint", str(encrypted), *options).stdout


def test_a_screen_needs_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "t.pcap"
    traffic = Traffic()
    traffic.connection().exchange(0, BEAT, 4, None)
    path.write_bytes(traffic.capture())
    for args in (["view", str(path)], ["tap", "-b", "127.0.0.1:1", "--ui"]):
        ran = run(*args)
        assert (ran.code, ran.stdout) == (2, "")
        assert "the screen needs a terminal" in ran.stderr
