"""Kafka's connections in captures: complete ones, and ones that begin midway, lost packets or are not Kafka's."""

from __future__ import annotations

import io
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from random import Random
from typing import Any

import pytest

from kwire.capture import CapturedFrame, Remark, RequestPair, ResponseMissing, pair_frames, read_capture
from kwire.capture.streams import ANOTHER_PROTOCOL, CUT_OFF, NO_REQUEST, TLS
from kwire.protocol import Request, Response
from kwire.protocol.headers import encode_request, encode_response
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.capture import captures
from tests.capture.captures import BROKER, CLIENT, Talk, pcap, pcap_pieces, pcapng, sized, timed
from tests.protocol.samples import random_message

Exchanged = tuple[Request[Any], int, Response | None]

METADATA = MetadataResponse(
    brokers=[MetadataResponse.Broker(node_id=1, host="h", port=9092)], controller_id=1, cluster_id="c",
    topics=[MetadataResponse.Topic(error_code=0, name=f"topic-{n}", partitions=[]) for n in range(80)],
)  # fmt: skip


def produce(acks: int, size: int = 3000) -> ProduceRequest:
    partition = ProduceRequest.Topic.Partition(index=0, records=Random(size).randbytes(size))
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name="t", partition_data=[partition])]
    )


def fetched(size: int) -> FetchResponse:
    partition = FetchResponse.Topic.Partition(
        partition_index=0, error_code=0, high_watermark=5, records=Random(size).randbytes(size)
    )
    return FetchResponse(responses=[FetchResponse.Topic(topic="t", partitions=[partition])])


FETCH = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[])
SAID: list[Exchanged] = [
    (ApiVersionsRequest(client_software_name="k", client_software_version="1"), 3,
     ApiVersionsResponse(error_code=0, api_keys=[])),
    (MetadataRequest(topics=None), 12, METADATA),
    (produce(0), 9, None),
    (produce(-1), 9, ProduceResponse(responses=[])),
    (FETCH, 12, fetched(5000)),
    (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, HeartbeatResponse(error_code=0)),
    (FETCH, 12, fetched(0)),
    (MetadataRequest(topics=None), 12, METADATA),
    (FETCH, 12, fetched(2500)),
]  # fmt: skip


def request_bytes(said: Exchanged, id_: int) -> bytes:
    request, version, _ = said
    return sized(encode_request(request, version, id_, "client"))


def response_bytes(said: Exchanged, id_: int) -> bytes:
    _, version, response = said
    return sized(encode_response(response, version, id_)) if response is not None else b""


def talked(talk: Talk, exchanges: Iterable[Exchanged] = SAID, first_id: int = 70_000) -> Talk:
    """Send each request after the response to the one before it."""
    for id_, said in enumerate(exchanges, first_id):
        talk.send(CLIENT, request_bytes(said, id_)).send(BROKER, response_bytes(said, id_))
    return talk


def read(packets: Iterable[bytes], **options: Any) -> tuple[list[CapturedFrame], list[Remark]]:
    found = list(read_capture(io.BytesIO(pcap(timed(packets))), **options))
    frames = [one for one in found if isinstance(one, CapturedFrame)]
    return frames, [one for one in found if isinstance(one, Remark)]


def named(frames: Iterable[CapturedFrame]) -> list[tuple[str, str | None, int]]:
    return [(frame.kind, frame.api and frame.api.name, frame.version) for frame in frames]


EXPECTED = [
    (kind, type(said[0]).__name__.removesuffix("Request"), said[1])
    for said in SAID
    for kind in ("request", "response")
    if kind == "request" or said[2] is not None
]
BYTES = {
    data[4:] for id_, said in enumerate(SAID, 70_000) for data in (request_bytes(said, id_), response_bytes(said, id_))
}


def test_a_complete_connection() -> None:
    talk = talked(Talk().opened()).closed()
    frames, remarks = read(talk.packets)
    assert named(frames) == EXPECTED
    assert {frame.data for frame in frames} == BYTES - {b""}
    assert not remarks
    assert {str(frame.connection) for frame in frames} == {"127.0.0.1:40000 > 127.0.0.1:9092"}
    assert not any(frame.missing or frame.is_guess or frame.is_token for frame in frames)
    for frame in frames:
        # Packets are a millisecond apart; a request is one packet or a few, and its response follows at once.
        assert (frame.latency_ns is None) == (frame.kind == "request")
        assert frame.latency_ns is None or 1_000_000 <= frame.latency_ns <= 8_000_000


@pytest.mark.slow
@pytest.mark.parametrize("segment_bytes", [1, 7, 100, 60_000])
def test_segments_of_any_size(segment_bytes: int) -> None:
    frames, _ = read(talked(Talk(segment_bytes=segment_bytes).opened()).closed().packets)
    assert named(frames) == EXPECTED


def test_many_requests_in_flight() -> None:
    talk = Talk().opened()
    for id_, said in enumerate(SAID, 70_000):
        talk.send(CLIENT, request_bytes(said, id_))
    for id_, said in enumerate(SAID, 70_000):
        talk.send(BROKER, response_bytes(said, id_))
    frames, _ = read(talk.closed().packets)
    assert sorted(named(frames)) == sorted(EXPECTED)
    assert {frame.data for frame in frames} == BYTES - {b""}


def test_several_connections_at_once() -> None:
    talks = [talked(Talk(("10.0.0.1", 40000 + n), ("10.0.0.2", 9092 + n % 2)).opened()).closed() for n in range(5)]
    packets = [packet for row in zip_longest(*(talk.packets for talk in talks)) for packet in row if packet]
    frames, remarks = read(packets)
    assert Counter(named(frames)) == Counter(EXPECTED * 5)
    assert {frame.connection.number for frame in frames} == {1, 2, 3, 4, 5}
    assert not remarks
    only, _ = read(packets, ports=[9093])
    assert {frame.connection.broker for frame in only} == {"10.0.0.2:9093"}
    assert len(only) == 2 * len(EXPECTED)


def test_the_same_ports_again() -> None:
    first = talked(Talk().opened())
    second = talked(Talk(seqs=[5, 6]).opened(), first_id=1)
    frames, _ = read([*first.packets, *second.packets])
    assert named(frames) == EXPECTED * 2
    assert Counter(frame.connection.number for frame in frames) == {1: len(EXPECTED), 2: len(EXPECTED)}


@pytest.mark.parametrize("is_closed", [False, True])
def test_the_same_ports_again_in_packets_made_up(is_closed: bool) -> None:
    """A tap's file, and several of them in a row: each connection begins at sequence number 0."""
    talks = [talked(Talk(seqs=[0, 0]).opened(), first_id=first) for first in (70_000, 1)]
    packets = [packet for talk in talks for packet in (talk.closed() if is_closed else talk).packets]
    frames, _ = read(packets)
    assert named(frames) == EXPECTED * 2


@pytest.mark.parametrize("behind", [0, 1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("is_reset", [False, True])
def test_each_packet_twice(behind: int, is_reset: bool) -> None:
    """As two captures merged into one have them: the copies come later, after the end of the connection, too."""
    first, second = talked(Talk().opened()), talked(Talk(("10.0.0.1", 1)).opened(), first_id=1)
    packets = [*(first.reset() if is_reset else first.closed()).packets, *second.closed().packets]
    copies = [None] * behind + packets
    frames, remarks = read([one for pair in zip_longest(packets, copies) for one in pair if one])
    assert Counter(frame.data for frame in frames) == Counter(frame.data for frame in read(packets)[0])
    assert not remarks


def test_a_reset_ends_a_connection() -> None:
    talk = Talk().opened().send(CLIENT, request_bytes(SAID[1], 1)).send(BROKER, response_bytes(SAID[1], 1)[:1500])
    frames, remarks = read(talk.reset().packets)
    assert named(frames) == [("request", "Metadata", 12), ("response", "Metadata", 12)]
    assert frames[1].data == response_bytes(SAID[1], 1)[4:1500]
    assert frames[1].missing == len(response_bytes(SAID[1], 1)) - 1500
    assert not remarks


def test_requests_without_a_response_are_named() -> None:
    talk = Talk().opened().send(CLIENT, request_bytes(SAID[4], 1)).send(CLIENT, request_bytes(SAID[5], 2))
    _, remarks = read(talk.packets)
    assert [remark.text for remark in remarks] == ["no response was captured to 1 Fetch, 1 Heartbeat"]
    assert remarks[0].connection


def test_a_capture_that_begins_anywhere() -> None:
    """Cut the front of a capture anywhere: what is read is right, and nothing is missing after the first request."""
    packets = talked(Talk().opened()).closed().packets
    whole = read(packets)[0]
    for first in range(len(packets)):
        frames, _ = read(packets[first:])
        assert all(frame.data in BYTES for frame in frames if not frame.missing), first
        later = [frame for frame in whole if frame.packet > first + 12 and frame.packet <= len(packets)]
        if len(later) > 4:
            unread = {frame.data for frame in later} - {frame.data for frame in frames}
            assert not unread, f"after {first}: {[named([f]) for f in whole if f.data in unread]}"


def test_a_response_whose_request_came_before_the_capture() -> None:
    talk = Talk()
    talk.send(BROKER, response_bytes(SAID[4], 69_999))
    frames, _ = read(talked(talk, SAID[3:]).packets)
    guessed = [frame for frame in frames if frame.is_guess]
    assert named(guessed) == [("response", "Fetch", 12)]
    assert guessed[0].data == response_bytes(SAID[4], 69_999)[4:]
    assert guessed[0].latency_ns is None


@pytest.mark.parametrize("version", [4, 11])
@pytest.mark.parametrize("first", range(10))
def test_small_correlation_ids_do_not_make_a_response_a_request(first: int, version: int) -> None:
    """The response to request 4 begins like a Produce v4 request. It is no request, although it comes first."""
    fetches: list[Exchanged] = [(FETCH, version, fetched(size)) for size in (30_000, 10)]
    talk = Talk().send(BROKER, response_bytes(fetches[first % 2], first))
    frames, _ = read(talked(talk, fetches * 4, first_id=first + 1).packets)
    assert {str(frame.connection) for frame in frames} == {"127.0.0.1:40000 > 127.0.0.1:9092"}
    assert [frame.kind for frame in frames].count("request") == 8
    assert sum(frame.latency_ns is not None for frame in frames) == 8


def test_one_direction_only() -> None:
    packets = talked(Talk().opened()).closed().packets
    by_port = {port: [p for p in packets if int.from_bytes(p[20:22], "big") == port] for port in (40000, 9092)}
    frames, remarks = read(by_port[40000])
    assert named(frames) == [one for one in EXPECTED if one[0] == "request"]
    assert "no response was captured" in remarks[-1].text
    frames, _ = read(by_port[9092], ports=[9092])
    assert [frame.kind for frame in frames] == ["response"] * 8
    assert {frame.api for frame in frames} == {None}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_lost_repeated_and_reordered_packets(seed: int) -> None:
    """Drop packets: every frame that is read was sent, and only frames in the dropped packets are missing."""
    random = Random(seed)
    talk = Talk(segment_bytes=random.choice([200, 700, 1400])).opened()
    for lap in range(3):
        talked(talk, SAID, first_id=70_000 + lap * len(SAID))
    expected = {
        data[4:]
        for id_, said in enumerate(SAID * 3, 70_000)
        for data in (request_bytes(said, id_), response_bytes(said, id_))
    }
    packets: list[tuple[float, bytes]] = []
    lost = 0
    for at, packet in enumerate(talk.closed().packets):
        if at > 3 and random.random() < 0.02:
            lost += 1
            continue
        packets.append((at + (random.choice([0, 0, 0, 1.5, 2.5]) if at > 2 else 0), packet))
        if random.random() < 0.05:
            packets.append((at + random.choice([0.5, 3]), packet))
    frames, _ = read([packet for _, packet in sorted(packets)])
    right = {frame.data for frame in frames if not frame.missing}
    assert right <= expected
    # A packet is part of one or two frames. Without it the next frame may not be found either.
    assert len(expected - {b""} - right) <= 3 * lost
    for frame in frames:
        if frame.kind == "response" and frame.api and not frame.is_guess and not frame.missing:
            id_ = int.from_bytes(frame.data[:4], "big") - 70_000
            assert frame.api.name == type(SAID[id_ % len(SAID)][0]).__name__.removesuffix("Request")


def test_bytes_beyond_the_snapshot_length_are_missing() -> None:
    packets = talked(Talk(segment_bytes=60_000).opened()).closed().packets
    found = list(read_capture(io.BytesIO(pcapng(timed(packets, snapshot=200)))))
    frames = [one for one in found if isinstance(one, CapturedFrame)]
    assert named(frames) == EXPECTED
    whole = read(packets)[0]
    for frame, other in zip(frames, whole, strict=True):
        assert other.data.startswith(frame.data)
        assert len(frame.data) + frame.missing == len(other.data)
    assert {frame.api.name for frame in frames if frame.api and frame.missing} == {"Metadata", "Produce", "Fetch"}


@pytest.mark.parametrize("snapshot", [54, 66, 80, 90, 100, 120])
def test_who_opened_a_connection_is_its_client_also_where_packets_are_cut_off(snapshot: int) -> None:
    """This response with correlation id 1 begins like a Produce of version 1."""
    keys = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=9) for key in range(72)]
    request = sized(encode_request(ApiVersionsRequest(), 3, 1, "client-" * 20))
    response = sized(encode_response(ApiVersionsResponse(error_code=0, api_keys=keys), 3, 1))
    talk = Talk().opened().send(CLIENT, request).send(BROKER, response).closed()
    found = list(read_capture(io.BytesIO(pcap(timed(talk.packets, snapshot=snapshot)))))
    assert {one.connection.broker for one in found if isinstance(one, CapturedFrame)} <= {"127.0.0.1:9092"}
    if snapshot == 54:
        (remark,) = found
        assert isinstance(remark, Remark)
        assert remark.text.endswith(CUT_OFF)


def test_of_large_frames_only_the_beginning_is_kept() -> None:
    packets = talked(Talk().opened()).closed().packets
    frames, _ = read(packets, frame_bytes_max=1000)
    assert named(frames) == EXPECTED
    assert max(len(frame.data) for frame in frames) == 1000
    assert {len(f.data) + f.missing for f in frames} == {len(data) for data in BYTES if data}


def hello(first: int, data: bytes) -> list[bytes]:
    return Talk().opened().send(first, data).send(1 - first, b"a response of some length").closed().packets


REJECTED = [
    (CLIENT, b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", ANOTHER_PROTOCOL),
    (BROKER, b"SSH-2.0-OpenSSH_9.2\r\n", ANOTHER_PROTOCOL),
    (CLIENT, bytes.fromhex("16030100a5010000a10303"), TLS),
    (CLIENT, bytes(100), ANOTHER_PROTOCOL),
]


@pytest.mark.parametrize(("first", "data", "reason"), REJECTED)
def test_other_protocols_are_named(first: int, data: bytes, reason: str) -> None:
    frames, remarks = read([*hello(first, data), *talked(Talk(("1.1.1.1", 1), ("2.2.2.2", 2)).opened()).packets])
    assert named(frames) == EXPECTED
    size = len(data) + len(b"a response of some length")
    assert [remark.text for remark in remarks] == [f"1 connection is not read ({size} bytes): {reason}"]


def test_tls_on_a_given_port() -> None:
    frames, remarks = read(hello(CLIENT, bytes.fromhex("16030100a5010000a10303")), ports=[9092])
    assert not frames
    assert [remark.text for remark in remarks] == [f"1 connection is not read (36 bytes): {TLS}"]


def test_tls_joined_midway() -> None:
    talk = Talk()
    for number in range(5):
        record = b"\x17\x03\x03" + (900).to_bytes(2, "big") + Random(number).randbytes(900)
        talk.send(number % 2, record)
    assert [remark.text for remark in read(talk.packets[1:])[1]] == [f"1 connection is not read (3620 bytes): {TLS}"]


def test_other_traffic_joined_midway_is_ignored() -> None:
    random = Random(1)
    talk = Talk()
    for _ in range(100):
        talk.send(CLIENT, random.randbytes(500)).send(BROKER, random.randbytes(3000))
    frames, (remark,) = read(talk.packets)
    assert (frames, remark) == ([], Remark(f"1 connection is not read (350000 bytes): {NO_REQUEST}"))


def test_sasl_tokens_without_headers() -> None:
    """After SaslHandshake v0, tokens have only a size and no header, until the first request."""
    shake: Exchanged = (
        SaslHandshakeRequest(mechanism="PLAIN"), 0, SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
    )  # fmt: skip
    talk = talked(Talk().opened(), [shake], first_id=1)
    talk.send(CLIENT, sized([b"\0user\0password"])).send(BROKER, sized([b""]))
    frames, remarks = read(talked(talk, SAID[1:]).packets)
    assert named(frames)[:4] == [
        ("request", "SaslHandshake", 0), ("response", "SaslHandshake", 0), ("request", None, -1), ("response", None, -1)
    ]  # fmt: skip
    assert [(frame.is_token, frame.data) for frame in frames[2:4]] == [(True, b"\0user\0password"), (True, b"")]
    assert named(frames)[4:] == EXPECTED[2:]
    assert not remarks


def test_a_response_to_an_unknown_version_has_version_0() -> None:
    request = ApiVersionsRequest(client_software_name="k", client_software_version="1")
    talk = Talk().opened().send(CLIENT, sized(encode_request(request, 4, 1, "c")))
    response = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=3)]
    )
    talk.send(BROKER, sized(encode_response(response, 0, 1)))
    frames, _ = read(talk.packets)
    assert named(frames) == [("request", "ApiVersions", 4), ("response", "ApiVersions", 0)]


def test_requests_of_an_unknown_version_or_api() -> None:
    newer = sized([bytes.fromhex("0012 0009 00000001 0001 63")])
    unknown = sized([bytes.fromhex("7fff 0000 00000002 0001 63")])
    talk = Talk().opened().send(CLIENT, newer).send(BROKER, sized([bytes.fromhex("00000001 0023 00000000")]))
    talk.send(CLIENT, unknown).send(BROKER, sized([bytes.fromhex("00000002 0000")]))
    frames, _ = read(talked(talk, SAID[1:2]).packets)
    assert named(frames)[:4] == [
        ("request", "ApiVersions", 9), ("response", "ApiVersions", 0), ("request", None, -1), ("response", None, -1)
    ]  # fmt: skip
    assert named(frames)[4:] == EXPECTED[2:4]


def test_a_damaged_file_is_read_up_to_the_damage() -> None:
    data = pcapng(timed(talked(Talk().opened()).packets))
    found = list(read_capture(io.BytesIO(data[: len(data) * 2 // 3])))
    assert 4 < len(found) < len(EXPECTED)
    assert isinstance(found[-1], Remark)
    assert found[-1].is_problem
    assert "the file ends inside" in found[-1].text
    (remark,) = read_capture(io.BytesIO(b"nonsense"))
    assert isinstance(remark, Remark)
    assert "not a pcap or pcapng capture" in remark.text


def test_skipped_packets_are_reported() -> None:
    data = pcap(timed(Talk().opened().packets, link=captures.RAW), link=147)
    (remark,) = read_capture(io.BytesIO(data))
    assert remark == Remark("3 packets were skipped: link type 147", is_problem=True)


def paired(packets: Iterable[bytes]) -> list[RequestPair]:
    return [one for one in pair_frames(read_capture(io.BytesIO(pcap(timed(packets))))) if isinstance(one, RequestPair)]


def test_pairs() -> None:
    pairs = paired(talked(Talk().opened()).closed().packets)
    assert len(pairs) == len(SAID)
    for pair, (request, version, response) in zip(pairs, SAID, strict=True):
        assert pair.request is not None
        assert pair.request.api is not None
        assert (pair.request.api.request, pair.request.version) == (type(request), version)
        assert pair.request.expects_response == (response is not None)
        assert (pair.response is None) == (response is None)
        assert pair.latency_ms is None or 1 <= pair.latency_ms <= 8


def test_pairs_without_a_request_or_response() -> None:
    talk = Talk().send(BROKER, response_bytes(SAID[4], 69_000))  # requested before the capture
    for id_ in range(4):
        talk.send(CLIENT, request_bytes(SAID[5], id_))
    for id_ in (0, 2):  # 1 and 3 get no response
        talk.send(BROKER, response_bytes(SAID[5], id_))
    pairs = paired(talk.packets)
    sides = [((pair.request, 4), (pair.response, 0)) for pair in pairs]
    assert [
        tuple(frame and int.from_bytes(frame.data[at : at + 4], "big") for frame, at in both) for both in sides
    ] == [(0, 0), (1, None), (2, 2), (None, 69_000), (3, None)]  # fmt: skip


def test_pending_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.capture.pairing.PENDING_BYTES_MAX", 10_000)
    monkeypatch.setattr("kwire.capture.pairing._IN_FLIGHT_MAX", 7)
    talk = Talk().opened()
    for id_ in range(20):
        talk.send(CLIENT, request_bytes(SAID[3], id_))
    talk.send(BROKER, response_bytes(SAID[3], 13))
    pairs = paired(talk.packets)
    assert len(pairs) == 21, "a request that was handed on alone, and later its response"
    assert [pair.latency_ms is None for pair in pairs].count(False) == 1


class Pieces(io.RawIOBase):
    """A file that is generated while it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        while len(self._left) < size and (piece := next(self._pieces, None)) is not None:
            self._left += piece
        data, self._left = self._left[:size], self._left[size:]
        self.size += len(data)
        return data


@pytest.mark.slow
def test_100_megabytes_take_the_memory_of_a_few_frames() -> None:
    def packets() -> Iterator[bytes]:
        talk = Talk(segment_bytes=16_000).opened()
        fetch = request_bytes(SAID[4], 0)
        large = sized(encode_response(fetched(900_000), 12, 0))
        for id_ in range(112):
            id_bytes = id_.to_bytes(4, "big")
            talk.send(CLIENT, fetch[:8] + id_bytes + fetch[12:]).send(BROKER, large[:4] + id_bytes + large[8:])
            yield from talk.packets
            talk.packets.clear()

    file = Pieces(pcap_pieces(timed(packets())))
    tracemalloc.start()
    frames = sum(isinstance(one, CapturedFrame) for one in read_capture(file))  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert frames == 224
    assert file.size > 100_000_000
    assert peak < 12_000_000, f"{peak} bytes"


def test_many_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.capture.streams.CONNECTIONS_MAX", 10)
    talks = [Talk(("10.0.0.1", 20_000 + n), ("10.0.0.2", 9092)).opened() for n in range(30)]
    packets = chain.from_iterable(talk.send(CLIENT, request_bytes(SAID[5], n)).packets for n, talk in enumerate(talks))
    frames, remarks = read(packets)
    assert len(frames) == len(remarks) == 30, "each of them ends without a response"


def test_random_messages_of_every_api() -> None:
    random = Random(5)
    from tests.protocol.samples import class_versions

    pairs = [(cls, version) for cls, version in class_versions() if issubclass(cls, Request)]
    said: list[Exchanged] = []
    for cls, version in random.sample(pairs, 300):
        request = random_message(cls, version, random)
        expects = not (isinstance(request, ProduceRequest) and request.acks == 0)
        said.append((request, version, random_message(cls.RESPONSE, version, random) if expects else None))
    said = [one for one in said if not isinstance(one[0], SaslHandshakeRequest)]
    frames, remarks = read(talked(Talk(segment_bytes=1448).opened(), said).closed().packets)
    assert not remarks
    requests = [frame for frame in frames if frame.kind == "request"]
    assert [frame.data for frame in requests] == [request_bytes(one, 70_000 + n)[4:] for n, one in enumerate(said)]
    responses = [frame for frame in frames if frame.kind == "response"]
    assert [frame.data for frame in responses] == [
        response_bytes(one, 70_000 + n)[4:] for n, one in enumerate(said) if one[2] is not None
    ]


@pytest.mark.parametrize("seed", range(20))
def test_damaged_captures_raise_nothing(seed: int) -> None:
    random = Random(seed)
    for make in (pcap, pcapng):
        data = bytearray(make(timed(talked(Talk().opened()).closed().packets)))
        for _ in range(random.choice([1, 10, 100, 1000])):
            data[random.randrange(24, len(data))] ^= 1 << random.randrange(8)
        found = list(read_capture(io.BytesIO(bytes(data))))
        assert all(isinstance(one, CapturedFrame | Remark | ResponseMissing) for one in found)
