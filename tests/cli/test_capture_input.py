"""What the commands say of a file without exchanges: no capture, a capture of something else, an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.broker import Cluster
from kwire.protocol.messages.heartbeat import HeartbeatResponse
from tests.capture.captures import BROKER, CLIENT, Talk, pcap, pcapng, timed
from tests.capture.test_pairing import Exchanged, talked
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


def beating(exchanges: int, segment_bytes: int = 1000, port: int = 40000) -> Talk:
    said: list[Exchanged] = [(BEAT, 4, HeartbeatResponse(error_code=0))] * exchanges
    return talked(Talk(client=("127.0.0.1", port), segment_bytes=segment_bytes).opened(), said, first_id=1)


def beats(segment_bytes: int = 20) -> list[bytes]:
    """Return the packets of six exchanges; a request has two packets."""
    return beating(6, segment_bytes).packets


CLOSED = beating(2, 8).closed().packets


DAMAGED = {
    "the file ends inside packet": pcap(timed(beats()))[:-3],
    "a frame is cut off: 11 bytes were not captured": pcap(timed([*beats()[:4], *beats()[5:]])),
    "frames are cut off": pcap(timed(beats(1000), snapshot=80)),
    "a frame is cut off: 5 bytes were not captured": pcap(timed(beating(1).packets, snapshot=80)),
    "4 frames are cut off": pcap(
        timed([one for port in (1, 2, 3, 4) for one in beating(1, port=port).closed().packets], snapshot=80)
    ),
    # The last packet with data is missing.
    "a frame is cut off: 8 bytes were not captured": pcap(timed([*CLOSED[:-4], *CLOSED[-3:]])),
    "cut off: 8 bytes were not captured": pcapng(timed([*CLOSED[:-4], beating(2, 8).reset().packets[-1]])),
}
LOSSY = {name: words for name, words in COMMANDS.items() if name not in ("view", "replay")}
LOSSY["report"] = ["pipeline", "report", "FILE", "-o", "PAGE"]


@pytest.mark.parametrize("says", DAMAGED)
@pytest.mark.parametrize("command", LOSSY)
def test_lost_bytes_are_an_error_of_each_command(tmp_path: Path, command: str, says: str) -> None:
    """What could be read is shown all the same."""
    path = tmp_path / "damaged.pcap"
    path.write_bytes(DAMAGED[says])
    files = {"FILE": str(path), "PAGE": str(tmp_path / "page.html")}
    ran = run(*(files.get(word, word) for word in LOSSY[command]), "-q")
    assert ran.code == 4
    assert says in ran.stderr
    assert command in ("lint", "diff") or ran.stdout or Path(files["PAGE"]).exists()


def test_lint_says_what_is_lost_beside_a_report_for_programs(tmp_path: Path) -> None:
    path = tmp_path / "damaged.pcap"
    path.write_bytes(DAMAGED["frames are cut off"])
    for options in (["--junit"], ["--sarif"], ["--fail-on", "never"]):
        ran = run("lint", str(path), *options)
        assert ran.code == 4
        assert "frames are cut off" in ran.stderr


@pytest.mark.parametrize("command", LOSSY)
@pytest.mark.parametrize("end", ["capture", "FIN", "RST", "RST of the other side"])
def test_a_capture_may_end_within_a_frame(tmp_path: Path, command: str, end: str) -> None:
    """It was ended while a client or a broker wrote, or one of them died then: nothing of it was lost."""
    path = tmp_path / "ended.pcap"
    talk = beating(6, 20).send(BROKER, b"\0\0\0\x0a1234")
    match end:
        case "FIN":
            talk.closed()
        case "RST":
            talk.reset()
        case "RST of the other side":
            talk.reset(CLIENT)
    path.write_bytes(pcap(timed(talk.packets)))
    files = {"FILE": str(path), "PAGE": str(tmp_path / "page.html")}
    ran = run(*(files.get(word, word) for word in LOSSY[command]), "-q")
    assert ran.stderr == ""
    assert ran.code in ((0, 1) if command == "lint" else (0,))  # it finds that no LeaveGroup was sent


def test_a_replay_of_a_damaged_capture_is_not_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "damaged.pcap"
    path.write_bytes(DAMAGED["the file ends inside packet"])
    with Cluster(1) as cluster:
        ran = run("replay", str(path), "--to", cluster.bootstrap, "-w", "api == Fetch")
    assert ran.code == 4
    assert "0 requests sent" in ran.stderr


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
