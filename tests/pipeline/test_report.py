"""The report has what `kwire stats` counts, merges files, and is a page of its own."""

from __future__ import annotations

import io
import pickle
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlparse

from kwire.pipeline.report import BUCKETS_MAX, KEYS_MAX, OTHERS, Measured, Traffic, measure, measure_files, to_html
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.capture.captures import Talk, pcap, timed
from tests.capture.test_pairing import talked
from tests.cli.running import run
from tests.cli.test_capture_view import CAPTURE

SECOND = 1_000_000_000


class Page(HTMLParser):
    """The cells of each table, the tags, and what the page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "rect"):
            self.open.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href") and value]
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.rows[-1][-1] += data


def test_a_report_of_captures(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    for name in ("one.pcap", "two.pcap"):
        (folder / name).write_bytes(CAPTURE)
    page_file = tmp_path / "report.html"
    ran = run("pipeline", "report", str(folder), "-o", str(page_file), "--processes", "1", "--title", "A <b> day")
    assert (ran.code, ran.stderr) == (0, "8 requests of 2 files\n")
    text = page_file.read_text()
    page = Page(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert page.loads == []
    assert "<h1>A &lt;b&gt; day</h1>" in text
    counted = {line["api"]: line for line in run("stats", "-", "--json", stdin=CAPTURE).lines()}
    by_api = {row[0]: row for row in page.rows if row and row[0] in counted}
    assert by_api.keys() == counted.keys() == {"ApiVersions", "Metadata", "Heartbeat"}
    for api, line in counted.items():
        assert by_api[api][1] == str(2 * line["n"])
        assert float(by_api[api][5]) == round(line["latency_ms"]["p50"], 2)
    assert by_api["Metadata"][-1] == "2 UNKNOWN_TOPIC_OR_PARTITION"
    assert ["client (k 1)", "Heartbeat", "4"] in [row[:3] for row in page.rows]


def test_processes_and_merges_give_the_same(tmp_path: Path) -> None:
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.pcap"))
        Path(paths[-1]).write_bytes(CAPTURE)
    alone, together = measure_files(paths, 1), measure_files(paths, 2)
    assert to_html(alone) == to_html(together)
    assert (alone.requests, alone.files, alone.connections) == (12, 3, 3)
    copied: Traffic = pickle.loads(pickle.dumps(alone))  # as a task of Spark returns it
    assert to_html(copied) == to_html(alone)


def test_what_a_client_says_cannot_become_html() -> None:
    said = [(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, HeartbeatResponse(error_code=0))]
    capture = pcap(timed(talked(Talk().opened(), said).closed().packets))
    traffic = measure(lambda: io.BytesIO(capture), "x")
    (key,) = traffic.rows
    traffic.rows = {("<script>alert(1)</script>", key[1]): traffic.rows[key]}
    traffic.problems = ["<img src=x>"]
    assert not Page(to_html(traffic)).tags & {"script", "img"}


def test_damage_is_on_the_page(tmp_path: Path) -> None:
    file = tmp_path / "cut.pcap"
    file.write_bytes(CAPTURE[:-30])
    page = tmp_path / "report.html"
    ran = run("pipeline", "report", str(file), "-o", str(page))
    assert ran.code == 4
    assert "Not read" in page.read_text()
    assert (
        f"kwire: {file}: the file ends inside packet"
        in run("pipeline", "report", str(file), "-o", str(page), "-q").stderr
    )


def test_without_traffic(tmp_path: Path) -> None:
    (tmp_path / "empty.pcap").write_bytes(pcap([]))
    page = tmp_path / "report.html"
    assert run("pipeline", "report", str(tmp_path / "empty.pcap"), "-o", str(page)).code == 4
    assert "No Kafka exchange" in page.read_text()
    assert urlparse(str(page)).scheme == ""
    assert run("pipeline", "report", str(tmp_path / "none*.pcap"), "-o", str(page)).code == 2


def test_memory_is_bounded() -> None:
    traffic = Traffic()
    for number in range(BUCKETS_MAX * 3):
        traffic._at(number * SECOND, 1, number % 2)
    assert len(traffic.buckets) <= BUCKETS_MAX
    assert traffic.width_ns == 4 * SECOND
    assert sum(n for n, _ in traffic.buckets.values()) == BUCKETS_MAX * 3
    narrow = Traffic(buckets={SECOND: (5, 1)})
    narrow.merge(traffic)
    assert narrow.width_ns == 4 * SECOND
    assert narrow.buckets[0] == (traffic.buckets[0][0] + 5, traffic.buckets[0][1] + 1)
    many = Traffic(rows={(f"client {number}", "Produce"): Measured(n=1) for number in range(KEYS_MAX)})
    many.merge(Traffic(rows={("one more", "Produce"): Measured(n=3)}))
    assert many.rows[OTHERS].n == 3
