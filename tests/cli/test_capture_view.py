"""`kwire decode` of captures: its output, the filters, the exit codes, and its memory."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any
from uuid import UUID

import pytest

from kwire.protocol.headers import encode_request, encode_response
from kwire.protocol.json import uuid_text
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.capture import samples
from tests.capture.captures import BROKER, CLIENT, Talk, pcap, pcapng, sized, timed
from tests.capture.generated import generated
from tests.capture.test_pairing import Exchanged, talked
from tests.cli.running import run
from tests.cli.test_process import ROOT, environment

FIXTURES = ROOT / "fixtures"
NAME = re.compile(r"(?P<stem>(?P<api>.+?)_v(?P<version>\d+).*)_request")

REFUSED = MetadataResponse(brokers=[], topics=[MetadataResponse.Topic(error_code=3, name="orders", partitions=[])])
SAID: list[Exchanged] = [
    (ApiVersionsRequest(client_software_name="k", client_software_version="1"), 3,
     ApiVersionsResponse(error_code=0, api_keys=[])),
    (MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 12, REFUSED),
    (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, HeartbeatResponse(error_code=0)),
    (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, HeartbeatResponse(error_code=27)),
]  # fmt: skip
TALK = talked(Talk(("10.0.0.7", 40112), ("10.0.0.2", 9092)).opened(), SAID, first_id=1).closed()
CAPTURE = pcap(timed(TALK.packets))


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (CAPTURE, []),
        (CAPTURE, ["--pcap"]),
        (pcapng(timed(TALK.packets)), []),
        (pcap(timed(TALK.packets), order=">", nano=True), []),
        (gzip.compress(CAPTURE), []),
    ],
)
def test_pairs_as_json(data: bytes, options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "capture"
    file.write_bytes(data)
    for ran in (run("decode", str(file), *options), run("decode", *options, stdin=data)):
        assert (ran.code, ran.stderr) == (0, "")
        pairs = ran.lines()
        assert [(one["api"], one["version"], one["correlation_id"]) for one in pairs] == [
            ("ApiVersions", 3, 1), ("Metadata", 12, 2), ("Heartbeat", 4, 3), ("Heartbeat", 4, 4)
        ]  # fmt: skip
        metadata = pairs[1]
        assert (metadata["connection"], metadata["client"], metadata["broker"], metadata["client_id"]) == (
            1, "10.0.0.7:40112", "10.0.0.2:9092", "client"
        )  # fmt: skip
        assert metadata["latency_ms"] == 1.0
        assert metadata["errors"] == [{"path": "topics[0].errorCode", "code": 3, "name": "UNKNOWN_TOPIC_OR_PARTITION"}]
        assert metadata["request"]["message"]["topics"][0]["name"] == "orders"
        assert metadata["response"]["message"]["topics"][0]["errorCode"] == 3
        assert metadata["request"]["time"].startswith("2023-11-14T22:13:20.")
        assert "fields" not in metadata["request"]


def test_annotate_shows_the_bytes_of_fields() -> None:
    (pair,) = run("decode", "--annotate", "--api", "metadata", stdin=CAPTURE).lines()
    for side, cls_bytes in (("request", encode_request(SAID[1][0], 12, 2, "client")), ("response", None)):
        hexed = "".join(field["hex"] for field in pair[side]["fields"])
        expected = cls_bytes if cls_bytes is not None else encode_response(REFUSED, 12, 2)
        assert hexed == b"".join(expected).hex()
    table = run("decode", "-f", "table", "--annotate", "--api", "metadata", stdin=CAPTURE).stdout
    assert "Metadata response v12, correlation id 2, after 1.000 ms" in table
    assert "error_code" in table


def test_a_line_for_each_pair() -> None:
    ran = run("decode", "-f", "table", stdin=CAPTURE)
    lines = ran.stdout.splitlines()
    assert lines[0].split() == ["time", "conn", "api", "v", "request", "response", "ms", "details"]
    assert lines[1] == 'connection 1: 10.0.0.7:40112 > 10.0.0.2:9092 client "client"'
    assert re.fullmatch(
        r"22:13:20\.\d{3} +1 Metadata +12 +\d+ +\d+ +1\.000  UNKNOWN_TOPIC_OR_PARTITION at topics\[0\]  topic orders"
        r"  -> 0 brokers, 1 topic",
        lines[3],
    ), lines[3]
    assert len(lines) == 6
    assert "4 exchanges of 1 connection; slowest" in ran.stderr
    assert "1 with UNKNOWN_TOPIC_OR_PARTITION" in ran.stderr


FILTERED = [
    (["--api", "Metadata"], [2]),
    (["--api", "metadata,18"], [1, 2]),
    (["--api", "Metadata", "--version", "11"], []),
    (["--errors-only"], [2]),
    (["--all-errors"], [2, 4]),  # 4 is of normal operation: a rebalance begins
    (["--all-errors", "--api", "Heartbeat"], [4]),
    (["-w", "api == Heartbeat or topic == orders"], [2, 3, 4]),
    (["-w", "error ~ 'UNKNOWN*' and ms == 1"], [2]),
    (["--slower-than", "0.5"], [1, 2, 3, 4]),
    (["--slower-than", "1000"], []),
    (["--connection", "1"], [1, 2, 3, 4]),
    (["--connection", "2"], []),
    (["--connection", "10.0.0.7:40112"], [1, 2, 3, 4]),
    (["--connection", "10.0.0.2"], [1, 2, 3, 4]),
    (["--connection", ":9092"], [1, 2, 3, 4]),
    (["--connection", "10.0.0"], []),
    (["--port", "9092"], [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("options", "expected"), FILTERED)
def test_filters(options: list[str], expected: list[int]) -> None:
    ran = run("decode", *options, stdin=CAPTURE)
    assert (ran.code, [one["correlation_id"] for one in ran.lines()]) == (0, expected)


@pytest.mark.parametrize(
    ("options", "stdin", "says"),
    [
        (["--errors-only"], samples.METADATA_REQUEST, "need a capture; the input is not one"),
        (["--port", "9092"], samples.METADATA_REQUEST, "need a capture; the input is not one"),
        (["--bare"], CAPTURE, "do not apply to a capture"),
        (["--try-versions"], CAPTURE, "do not apply to a capture"),
        (["--version", "3"], CAPTURE, "--version needs --api"),
        (["--api", "Metadata,Nosuch"], CAPTURE, "there is no API Nosuch"),
    ],
)
def test_options_that_do_not_apply_are_errors(options: list[str], stdin: bytes, says: str) -> None:
    ran = run("decode", *options, stdin=stdin)
    assert (ran.code, ran.stdout) == (2, "")
    assert says in ran.stderr


def test_topic_ids_are_named_by_the_metadata_in_the_capture() -> None:
    known, unknown = UUID(int=7), UUID(int=8)
    metadata = MetadataResponse(
        brokers=[], topics=[MetadataResponse.Topic(error_code=0, name="orders", topic_id=known, partitions=[])]
    )

    def fetch(id: UUID) -> Exchanged:
        part = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1)
        topic = FetchRequest.Topic(topic_id=id, partitions=[part])
        return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic]), 13, FetchResponse(responses=[])

    exchanges: list[Exchanged] = [(MetadataRequest(topics=None), 12, metadata), fetch(known), fetch(unknown)]
    data = pcap(timed(talked(Talk().opened(), exchanges, first_id=1).closed().packets))
    lines = run("decode", "-f", "table", stdin=data).stdout.splitlines()
    assert [re.findall(r"\S+\[0\]@0", line) for line in lines if " Fetch " in line] == [
        ["orders[0]@0"], [f"{uuid_text(unknown)}[0]@0"],
    ]  # fmt: skip
    # A filter hides a Metadata response, but its topic names are used.
    by_name, by_id = run("decode", "--api", "Fetch", stdin=data).lines()
    assert by_name["topic_names"] == {uuid_text(known): "orders"}
    assert "topic_names" not in by_id


@pytest.mark.parametrize("broker", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()))
def test_recorded_frames_of_real_brokers(broker: str) -> None:
    """All recorded exchanges on one connection: each response belongs to its request."""
    talk = Talk().opened()
    expected: list[list[Any]] = []
    for file in sorted((FIXTURES / broker).glob("*_request.bin")):
        name = NAME.fullmatch(file.stem)
        assert name is not None
        response = file.with_name(f"{name['stem']}_response.bin")
        # Consecutive correlation ids of a connection.
        id_ = (len(expected) + 1).to_bytes(4, "big")
        request = bytearray(file.read_bytes())
        request[4:8] = id_
        talk.send(CLIENT, sized([request]))
        if response.exists():
            talk.send(BROKER, sized([id_ + response.read_bytes()[4:]]))
        texts = [one.with_suffix(".json") for one in (file, response)]
        expected.append([json.loads(text.read_text())["body"] if text.exists() else None for text in texts])
    ran = run("decode", "--show-secrets", stdin=pcap(timed(talk.packets)))
    assert ran.code == 0, ran.stderr
    found = ran.lines()
    assert len(found) == len(expected) >= 9
    by_id = {one["correlation_id"]: one for one in found}
    for id_number, (request_body, response_body) in enumerate(expected, 1):
        one = by_id[id_number]
        assert one["request"]["message"] == request_body
        assert (one["response"] and one["response"]["message"]) == response_body


def test_sasl() -> None:
    exchanges: list[Exchanged] = [
        (SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])),
        (SaslAuthenticateRequest(auth_bytes=b"\0u\0p"), 2,
         SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"")),
    ]  # fmt: skip
    pairs = run("decode", stdin=pcap(timed(talked(Talk().opened(), exchanges).packets))).lines()
    assert [(one["api"], [error["name"] for error in one["errors"]]) for one in pairs] == [
        ("SaslHandshake", []), ("SaslAuthenticate", ["SASL_AUTHENTICATION_FAILED"])
    ]  # fmt: skip


def test_sasl_tokens_without_headers() -> None:
    shake: Exchanged = (
        SaslHandshakeRequest(mechanism="PLAIN"), 0, SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
    )  # fmt: skip
    talk = talked(Talk().opened(), [shake], first_id=1)
    talk.send(CLIENT, sized([b"\0user\0password"])).send(BROKER, sized([b""]))
    data = pcap(timed(talked(talk, SAID[1:]).packets))
    pairs = run("decode", stdin=data).lines()
    assert [one["api"] for one in pairs] == ["SaslHandshake", None, "Metadata", "Heartbeat", "Heartbeat"]
    assert pairs[1]["request"]["is_sasl_token"]
    assert "(SASL token)" in run("decode", "-f", "table", stdin=data).stdout


def test_tls_is_reported() -> None:
    talk = Talk().opened().send(CLIENT, bytes.fromhex("16030100a5010000a10303"))
    talk.send(BROKER, b"\x16\x03\x03\0\x05hello")
    ran = run("decode", stdin=pcap(timed(talk.packets)))
    assert (ran.code, ran.stdout) == (4, "")
    assert "encrypted with TLS: give the key log of a side (--keylog), or capture on a plaintext listener" in ran.stderr
    assert "the capture has no Kafka requests" in ran.stderr


def test_lost_bytes_are_reported() -> None:
    packets = talked(Talk(segment_bytes=20).opened(), SAID * 3, first_id=1).packets
    ran = run("decode", stdin=pcap(timed([*packets[:20], *packets[24:]])))
    assert ran.code == 4
    assert "connection 1 (127.0.0.1:40000 > 127.0.0.1:9092): among the" in ran.stderr
    assert re.search(r"\d+ bytes that were not captured", ran.stderr)
    assert len(ran.lines()) >= 10


def test_a_response_whose_request_came_before_the_capture() -> None:
    packets = talked(Talk(), [SAID[0], *[SAID[1]] * 20], first_id=1).packets[1:]
    ran = run("decode", "-f", "table", stdin=pcap(timed(packets)))
    assert ran.code == 0
    assert "1 response (12 bytes) not decoded: the requests are not in the capture" in ran.stderr
    pairs = run("decode", stdin=pcap(timed(packets))).lines()
    (first,) = (one for one in pairs if one["request"] is None)
    assert (first["api"], first["response"]["message"]) == (None, None)
    assert len(pairs) == 21


def test_bytes_beyond_the_snapshot_length_are_a_problem() -> None:
    ran = run("decode", "-f", "table", stdin=pcap(timed(TALK.packets, snapshot=80)))
    assert ran.code == 4
    assert "bytes of the frame's" in ran.stdout
    damaged = run("decode", stdin=CAPTURE[:-3])
    assert damaged.code == 4
    assert "the file ends inside packet" in damaged.stderr


def test_undecodable_frames_show_the_fields_before_the_error() -> None:
    newer = sized([bytes.fromhex("0012 0009 00000001 0001 63")])
    talk = Talk().opened().send(CLIENT, newer).send(BROKER, sized([bytes.fromhex("00000001 0000 00000000")]))
    ran = run("decode", stdin=pcap(timed(talked(talk, SAID).packets)))
    assert ran.code == 4
    first = ran.lines()[0]
    assert first["api"] == "ApiVersions"
    assert first["request"]["problems"][0]["message"].startswith("kwire knows ApiVersions in versions")
    assert first["response"]["problems"]


GROWTH = """
import resource, sys
from kwire.cli import main
try:
    main(sys.argv[1:])
finally:
    sys.stderr.write(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} KiB\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "json"])
def test_memory_does_not_grow_with_the_capture(form: str) -> None:
    """The peak memory of a capture is the same as for a capture of a fourth of its size.

    If all of the capture stayed in memory, the peak would be 24 MB higher.
    """
    peaks = [_peak_kib(form, megabytes) for megabytes in (8, 32)]
    assert peaks[1] - peaks[0] < 10 * 1024, peaks


def _peak_kib(form: str, megabytes: int) -> int:
    command = [sys.executable, "-c", GROWTH, "decode", "-f", form]
    with Popen(command, stdin=PIPE, stdout=DEVNULL, stderr=PIPE, env=environment()) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        for piece in generated(megabytes * 1_000_000):
            process.stdin.write(piece)
        process.stdin.close()
        stderr = process.stderr.read().decode()
        assert process.wait(60) == 0, stderr
    return int(re.findall(r"peak (\d+) KiB", stderr)[0])
