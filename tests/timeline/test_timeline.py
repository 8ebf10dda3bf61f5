"""What a timeline has: bars, lanes, ribbons, findings, and that no secret is in the page."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kwire.capture.filters import Filter
from kwire.capture.secrets import Redaction
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.timeline import Timeline, collect_timeline, timeline_page, timeline_text
from kwire.timeline.details import cut_long
from kwire.timeline.families import FAMILIES, family_of
from tests.cli.running import run
from tests.lint.traffic import START_NS, Traffic
from tests.timeline.traffic import SECRET, everything, produce


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timeline") / "traffic.pcap"
    path.write_bytes(everything().capture())
    return path


@pytest.fixture(scope="module")
def found(capture: Path) -> Timeline:
    return collect_timeline(capture)


def unpacked(page: str) -> list[Any]:
    """Return what is packed in a page: the data, then the chunks of messages."""
    blocks = re.findall(r'<script type="text/plain"[^>]*>([^<]*)</script>', page)
    return [json.loads(gzip.decompress(base64.b64decode(block))) for block in blocks]


def test_bars_and_lanes(found: Timeline) -> None:
    assert len(found.bars) == 41
    assert [bar.at_ns for bar in found.bars] == sorted(bar.at_ns for bar in found.bars)
    refused = [bar for bar in found.bars if bar.is_error and not bar.is_routine]
    assert [bar.api for bar in refused] == ["Metadata", "Produce"]
    assert "NOT_LEADER_OR_FOLLOWER" in refused[1].text
    (unanswered,) = [bar for bar in found.bars if bar.end_ns is None]
    assert (unanswered.api, unanswered.sizes[1]) == ("Produce", 0)
    clients = found.lanes_by_client()
    assert list(clients) == ["shop", "tx / g2", "billing / g1"]
    (lane,) = clients["shop"]
    assert (lane.software, lane.ends[1]) == ("lib 1.2", "10.0.1.1:9092")
    assert lane.opened_ns is not None
    assert lane.closed_ns is not None
    assert abs(lane.closed_ns - START_NS - 5.9e9) < 1e6
    assert lane.closed_by == "client"


def test_connections_of_one_client_with_two_groups_are_apart(tmp_path: Path) -> None:
    """Java's default client id is the same for all: then the group tells programs apart."""
    traffic = Traffic()
    for group in ("a", "b"):
        beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
        traffic.connection(0, "rdkafka").exchange(1, beat, 4, HeartbeatResponse(error_code=0))
    path = tmp_path / "two.pcap"
    path.write_bytes(traffic.capture())
    assert list(collect_timeline(path).lanes_by_client()) == ["rdkafka / a", "rdkafka / b"]


def spans(found: Timeline, name: str) -> list[tuple[float, float | None, str, str]]:
    (ribbon,) = [one for one in found.ribbons if one.name == name]

    def seconds(at: int | None) -> float | None:
        return None if at is None else round((at - START_NS) / 1e9, 2)

    return [(seconds(one.begin_ns) or 0.0, seconds(one.end_ns), one.state, one.text) for one in ribbon.spans]


def test_ribbons(found: Timeline) -> None:
    assert spans(found, "g1") == [
        (2.0, 2.4, "joining", "members join"),
        (2.4, 4.0, "stable", "generation 1"),
        (4.0, 4.4, "joining", "members join"),
        (4.4, None, "stable", "generation 2"),
    ]
    assert spans(found, "g2") == [(5.2, 5.4, "stable", "epoch 1"), (5.4, None, "stable", "epoch 3")]
    assert spans(found, "t1") == [
        (1.0, 1.5, "committed", "committed"),
        (3.0, 3.5, "aborted", "aborted"),
        (5.0, None, "open", "open"),
    ]
    assert [one.kind for one in found.ribbons] == ["group", "group", "transaction"]


def test_the_linter_sees_what_the_filter_leaves_out(capture: Path) -> None:
    found = collect_timeline(capture, where=Filter("api == Metadata"))
    assert (len(found.bars), found.filtered) == (1, 40)
    assert [one.rule.id for one in found.findings]
    assert len(found.ribbons) == 3


def test_a_limit(capture: Path) -> None:
    found = collect_timeline(capture, bars_max=5)
    assert (len(found.bars), found.left_out) == (5, 36)
    assert "36 later exchanges left out" in timeline_text(found)


def test_the_page_loads_nothing_and_has_no_secret(found: Timeline, capture: Path) -> None:
    page = timeline_page(found)
    assert not re.findall(r"https?://|src=|url\(|@import|<link", page)
    assert page.count("</script>") == 3  # data, one chunk, the page's script: nothing of the capture ends one
    assert "onerror" not in page
    assert "{{" not in page
    assert SECRET not in json.dumps(unpacked(page))
    shown = timeline_page(collect_timeline(capture, redaction=Redaction(secrets=False)))
    assert base64.b64encode(f"\0shop\0{SECRET}".encode()).decode() in json.dumps(unpacked(shown))


def test_payloads_are_masked(capture: Path) -> None:
    text = json.dumps(unpacked(timeline_page(collect_timeline(capture, redaction=Redaction(payloads=True)))))
    assert "value 42" not in text
    assert '"k1"' not in text
    assert "********" in text


def test_columns_have_the_same_length(found: Timeline) -> None:
    data, chunk = unpacked(timeline_page(found))
    columns = ["at", "took", "lane", "api", "family", "version", "flags", "text", "packets", "asked", "got", "values"]
    assert {len(data[name]) for name in columns} == {41} == {len(chunk)}
    assert data["took"][data["text"].index(next(text for text in data["text"] if text.startswith("payments")))] == -1


def test_the_same_capture_gives_the_same_page(capture: Path) -> None:
    assert timeline_page(collect_timeline(capture)) == timeline_page(collect_timeline(capture))


def test_long_messages_are_cut(tmp_path: Path) -> None:
    traffic = Traffic()
    produce(traffic.connection(0), 1, records=2000, value=b"x" * 2000)
    path = tmp_path / "long.pcap"
    path.write_bytes(traffic.capture())
    page = timeline_page(collect_timeline(path))
    _, (details,) = unpacked(page)
    assert len(json.dumps(details)) < 40_000
    assert details["request"]["batches"][0]["records"][-1].startswith("... ")
    assert details["request"]["batches"][0]["count"] == 2000


def test_cut_long() -> None:
    assert cut_long({"a": [1, 2, 3], "b": "x" * 400}, 2) == {
        "a": [1, 2, "... 1 more"],
        "b": "x" * 150 + "... (400 characters)",
    }
    assert cut_long([1, 2], 2) == [1, 2]


def test_the_text(found: Timeline) -> None:
    lines = timeline_text(found, 100).splitlines()
    assert all(len(line) <= 104 for line in lines if not line.startswith(("warn", "error", "P ")))
    (shop,) = [line for line in lines if line.startswith("  #1 ")]
    row = shop[34:-9]
    assert len(row) == 56
    assert row[2] == "!"  # the Metadata with an error
    assert "P" in row
    assert row.count("!") == 2
    (group,) = [line for line in lines if line.startswith("group g1")]
    assert re.search(r"jjjj1=+jjjj2=+$", group[34:]), group
    (transaction,) = [line for line in lines if line.startswith("transaction t1")]
    assert re.fullmatch(r" +c{4,6} +a{4,6} +o+", transaction[34:])
    assert "\x1b" not in "".join(lines)
    assert "\u202e" not in "".join(lines)


def test_every_api_has_a_family() -> None:
    assert family_of(None).name == "other"
    assert family_of(None, is_token=True).name == "connection"
    assert len({family.letter for family in FAMILIES}) == len(FAMILIES)


def test_the_command(capture: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = run("timeline", str(capture), "-o", str(page))
    assert (ran.code, ran.stdout) == (0, "")
    assert ran.stderr.startswith("41 exchanges in ")
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    ran = run("timeline", str(capture), "--ascii", "--width", "90", "-w", "client == shop")
    assert ran.code == 0
    assert "only client == shop" in ran.stdout
    assert "billing" not in ran.stdout.partition("\nwarn")[0].replace("group g1", "")


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ([], 2, "give -o PAGE.html for a page, or --ascii for text"),
        (["--ascii", "-o", "x.html"], 2, "give -o PAGE.html"),
        (["-o", "/no/such/folder/x.html"], 2, "cannot be written"),
        (["--ascii", "-w", "topc == x"], 2, "did you mean topic?"),
    ],
)
def test_wrong_options(capture: Path, options: list[str], code: int, text: str) -> None:
    ran = run("timeline", str(capture), *options)
    assert ran.code == code
    assert text in ran.stderr


def test_a_page_does_not_replace_its_capture(capture: Path) -> None:
    before = capture.read_bytes()
    ran = run("timeline", str(capture), "-o", str(capture.parent / "." / capture.name))
    assert (ran.code, capture.read_bytes()) == (2, before)
    assert "-o names the capture itself" in ran.stderr


def test_a_file_without_kafka(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(Traffic().capture())
    ran = run("timeline", str(path), "--ascii")
    assert ran.code == 0
    assert "no Kafka exchange is in the capture" in ran.stderr
    page = timeline_page(collect_timeline(path))
    assert "no exchanges" in json.dumps(unpacked(page)[0])
