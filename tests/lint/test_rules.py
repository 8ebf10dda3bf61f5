"""Each rule: traffic in which it speaks, and the same traffic without the fault, in which it is silent."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.lint import RULES, LintReport, Settings, lint_file
from kwire.lint.rule import Window
from kwire.protocol.headers import encode_request, encode_response
from kwire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kwire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kwire.records import Compression, encode_batch
from tests.capture.captures import BROKER
from tests.lint.traffic import Connection, Traffic

Plant = Callable[[Traffic, bool], object]
PLANTS: dict[str, Plant] = {}


def plants(id: str) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        PLANTS[id] = plant
        return plant

    return register


def linted(traffic: Traffic, folder: Path, **settings: Any) -> LintReport:
    path = folder / "traffic.pcap"
    path.write_bytes(traffic.capture())
    return lint_file(str(path), Settings.of(**settings))


@pytest.mark.parametrize("id", list(RULES))
def test_a_rule_speaks(id: str, tmp_path: Path) -> None:
    traffic = Traffic()
    PLANTS[id](traffic, True)
    (found, *_) = linted(traffic, tmp_path, select=[id]).findings
    assert found.rule is RULES[id]
    assert found.packets
    assert found.count
    assert found.text
    assert found.subject


@pytest.mark.parametrize("id", list(RULES))
def test_a_rule_is_silent(id: str, tmp_path: Path) -> None:
    traffic = Traffic()
    PLANTS[id](traffic, False)
    report = linted(traffic, tmp_path, select=[id])
    assert report.findings == []
    assert report.exchanges  # there is something that it could have spoken of


# -- messages


def produce(
    c: Connection, at: float, *, records: int = 20, partition: int = 0, value: bytes = b"x" * 50, sequence: int = -1,
    code: int = 0, acks: int = -1, ms: float = 1.0, codec: Compression = Compression.GZIP, txn: str | None = None,
    producer_id: int = 7, version: int = 9, throttle: int = 0,
) -> None:  # fmt: skip
    batch = encode_batch(
        [(0, None, value, ()) for _ in range(records)], compression=codec, producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1, base_sequence=sequence if producer_id >= 0 else -1,
        is_transactional=txn is not None,
    )  # fmt: skip
    part = ProduceRequest.Topic.Partition(index=partition, records=batch)
    request = ProduceRequest(
        acks=acks, timeout_ms=1000, transactional_id=txn,
        topic_data=[ProduceRequest.Topic(name="orders", partition_data=[part])],
    )  # fmt: skip
    result = ProduceResponse.Topic.Partition(index=partition, error_code=code, base_offset=0)
    topics = [ProduceResponse.Topic(name="orders", partition_responses=[result])]
    response = None if acks == 0 else ProduceResponse(responses=topics, throttle_time_ms=throttle)
    c.exchange(at, request, version, response, ms)


def fetch(
    c: Connection, at: float, *, offset: int = 0, high: int = 100, most: int = 1_048_576, data: bytes | None = b"",
    code: int = 0, top: int = 0, epoch: int = -1, session: int = 0, isolation: int = 1, rack: str = "",
    partition: int = 0, ms: float = 1.0, preferred: int = -1, version: int = 11,
) -> None:  # fmt: skip
    part = FetchRequest.Topic.Partition(partition=partition, fetch_offset=offset, partition_max_bytes=most)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, isolation_level=isolation, session_id=session, session_epoch=epoch, rack_id=rack,
        topics=[FetchRequest.Topic(topic="orders", partitions=[part])],
    )  # fmt: skip
    result = FetchResponse.Topic.Partition(
        partition_index=partition, error_code=code, high_watermark=high, records=data, preferred_read_replica=preferred
    )
    topics = [FetchResponse.Topic(topic="orders", partitions=[result])]
    c.exchange(at, request, version, FetchResponse(responses=topics, error_code=top, session_id=session), ms)


def metadata(
    c: Connection, at: float, *, nodes: int = 3, leaders: tuple[int, ...] = (1, 2, 3), code: int = 0,
    topics: tuple[str, ...] | None = ("orders",), allow: bool = False, racks: bool = False,
) -> None:  # fmt: skip
    request = MetadataRequest(
        topics=None if topics is None else [MetadataRequest.Topic(name=name) for name in topics],
        allow_auto_topic_creation=allow,
    )
    brokers = [
        MetadataResponse.Broker(node_id=n, host=f"10.0.1.{n}", port=9092, rack=f"r{n}" if racks else None)
        for n in range(1, nodes + 1)
    ]
    parts = [
        MetadataResponse.Topic.Partition(
            error_code=0, partition_index=index, leader_id=leader, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for index, leader in enumerate(leaders)
    ]
    found = [
        MetadataResponse.Topic(error_code=code, name=name, partitions=[] if code else parts)
        for name in topics or ("orders",)
    ]
    c.exchange(at, request, 9, MetadataResponse(brokers=brokers, controller_id=1, topics=found))


def join(
    c: Connection, at: float, *, generation: int = 1, member: str = "m", timeout: int = 45_000, ms: float = 5.0,
    protocols: tuple[str, ...] = ("cooperative-sticky",), members: tuple[str, ...] = (), group: str = "billing",
) -> None:  # fmt: skip
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=timeout, rebalance_timeout_ms=60_000, member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name=name, metadata=SUBSCRIPTION) for name in protocols],
    )  # fmt: skip
    response = JoinGroupResponse(
        error_code=0, generation_id=generation, protocol_name=protocols[0], leader=member, member_id=member,
        members=[JoinGroupResponse.Member(member_id=name, metadata=SUBSCRIPTION) for name in members],
    )  # fmt: skip
    c.exchange(at, request, 5, response, ms)


def beat(c: Connection, at: float, *, code: int = 0, group: str = "billing", answers: bool = True) -> None:
    request = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    c.exchange(at, request, 3, HeartbeatResponse(error_code=code) if answers else None)


def commit(c: Connection, at: float) -> None:
    c.exchange(at, OffsetCommitRequest(group_id="billing", topics=[]), 5, OffsetCommitResponse(topics=[]))


def init(c: Connection, at: float, *, txn: str | None = None, timeout: int = 60_000, code: int = 0) -> None:
    request = InitProducerIdRequest(transactional_id=txn, transaction_timeout_ms=timeout)
    c.exchange(at, request, 1, InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=0))


def add(c: Connection, at: float, *, code: int = 0, txn: str = "t") -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=txn, v3_and_below_producer_id=7, v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
    )  # fmt: skip
    part = AddPartitionsToTxnTopicResult.Partition(partition_index=0, partition_error_code=code)
    topics = [AddPartitionsToTxnTopicResult(name="orders", results_by_partition=[part])]
    c.exchange(at, request, 1, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))


def end(c: Connection, at: float, *, code: int = 0, txn: str = "t") -> None:
    request = EndTxnRequest(transactional_id=txn, producer_id=7, producer_epoch=0, committed=True)
    c.exchange(at, request, 1, EndTxnResponse(error_code=code))


def versions(c: Connection, at: float, *, highest: int = 9, code: int = 0, name: str = "", version: str = "") -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=most)
        for key, most in ((0, highest), (1, highest), (3, 12), (11, 9), (12, 4), (18, 4), (68, 1))
    ]
    c.exchange(at, request, 3, ApiVersionsResponse(error_code=code, api_keys=[] if code else keys))


def assignment(partitions: int) -> bytes:
    topics = b"\0\0\0\1\0\6orders" + partitions.to_bytes(4, "big")
    return b"\0\0" + topics + b"".join(n.to_bytes(4, "big") for n in range(partitions)) + b"\xff\xff\xff\xff"


SUBSCRIPTION = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"
RANDOM = random.Random(1).randbytes(8_000)


# -- producers


@plants("P01")
def _(t: Traffic, bad: bool) -> None:
    produce(t.connection(), 1, acks=0 if bad else -1)


@plants("P02")
def _(t: Traffic, bad: bool) -> None:
    produce(t.connection(), 1, acks=1 if bad else -1)


@plants("P03")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(20):
        produce(c, 1 + n, records=3 if bad else 4)


@plants("P04")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(10):
        produce(c, 1 + n, records=1, value=b"x" * 8_000 if bad else RANDOM, codec=Compression.NONE)


@plants("P05")
def _(t: Traffic, bad: bool) -> None:
    produce(t.connection(), 1, producer_id=-1 if bad else 7, sequence=0)


@plants("P06")
def _(t: Traffic, bad: bool) -> None:
    produce(t.connection(), 1, code=ErrorCode.MESSAGE_TOO_LARGE if bad else 0)


@plants("P07")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(3):
        produce(c, 1 + n * (4 if bad else 6), code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


@plants("P08")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    metadata(c, 0.1)
    for n in range(100):
        produce(c, 1 + n, partition=0 if bad or n % 5 else 1)


@plants("P09")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(20):
        produce(c, 1 + 3 * n, ms=1_100 if bad else 900)


@plants("P10")
def _(t: Traffic, bad: bool) -> None:
    for n in range(8):
        c = t.connection(n)
        init(c, n + 0.1)
        for m in range(2 if bad else 3):
            produce(c, n + 0.2 + m / 10)


@plants("P11")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection(node=1)
    metadata(c, 0.1, leaders=(2 if bad else 1,))
    for n in range(3):
        produce(c, 1 + n)


@plants("P12")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(60):
        if bad or n != 30:
            produce(c, 1 + n / 100, ms=5)
        else:  # the next one is sent before this is answered
            requests = [c.correlation_id + 1, c.correlation_id + 2]
            pipelined(c, 1 + n / 100, requests)


def pipelined(c: Connection, at: float, ids: list[int]) -> None:
    """Send two Produce requests, and then get both responses."""
    batch = encode_batch([(0, None, b"x", ())])
    part = ProduceRequest.Topic.Partition(index=0, records=batch)
    topics = [ProduceRequest.Topic(name="orders", partition_data=[part])]
    for id in ids:
        c._send(at, 0, encode_request(ProduceRequest(acks=-1, timeout_ms=1, topic_data=topics), 9, id, "app"))
    for id in ids:
        c._send(at + 0.005, BROKER, encode_response(ProduceResponse(responses=[]), 9, id))
    c.correlation_id = ids[-1]


@plants("P13")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(4 if bad else 3):
        produce(c, 1 + n, sequence=0, code=ErrorCode.REQUEST_TIMED_OUT)


@plants("P14")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n, sequence in enumerate((0, 20, 20, 60 if bad else 40)):  # one is sent again
        produce(c, 1 + n, sequence=sequence)


# -- consumers


@plants("C01")
def _(t: Traffic, bad: bool) -> None:
    fetch(t.connection(), 1, most=65_535 if bad else 65_536)


@plants("C02")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    batch = encode_batch([(0, None, b"x", ())])
    for n in range(220):
        fetch(c, 1 + n / 25, data=b"" if bad or n % 3 == 0 else batch)


@plants("C03")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(3 if bad else 2):
        fetch(c, 1 + n, code=ErrorCode.OFFSET_OUT_OF_RANGE)


@plants("C04")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(3 if bad else 2):
        fetch(c, 1 + n, top=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


@plants("C05")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(60):
        fetch(c, 1 + n, epoch=-1 if bad else n)


@plants("C06")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(60):
        commit(c, 1 + n / (6 if bad else 4))


@plants("C07")
def _(t: Traffic, bad: bool) -> None:
    c, d = t.connection(), t.connection()
    beat(c, 0.5)
    commit(d, 0.5)
    for n in range(0, 320, 10):
        beat(c, 1 + n)
        if n == 0 or (not bad and n == 100):
            fetch(d, 2 + n)


@plants("C08")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(70):
        fetch(c, 1 + n, offset=10 * n, high=(12 if bad or n < 40 else 9) * n + (0 if bad or n < 40 else 200))


@plants("C09")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(0, 70, 3):
        beat(c, 1 + n)
    if not bad:
        commit(c, 65)


@plants("C10")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection(node=1)
    metadata(c, 0.1, racks=True)
    for n in range(20):
        fetch(c, 1 + n, rack="r2" if bad else "r1", data=encode_batch([(0, None, b"x", ())]))


# -- groups


@plants("G01")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(5):
        join(c, 1 + n * (70 if bad else 80), generation=n + 1)


@plants("G02")
def _(t: Traffic, bad: bool) -> None:
    join(t.connection(), 1, timeout=9_999 if bad else 10_000)


@plants("G03")
def _(t: Traffic, bad: bool) -> None:
    join(t.connection(), 1, member="a", protocols=("range",))
    join(t.connection(), 2, member="b", protocols=("range", "roundrobin") if bad else ("range",))


@plants("G04")
def _(t: Traffic, bad: bool) -> None:
    join(t.connection(), 1, protocols=("range",) if bad else ("range", "cooperative-sticky"))


@plants("G05")
def _(t: Traffic, bad: bool) -> None:
    join(t.connection(), 1, generation=2 if bad else 1, ms=3_100)


@plants("G06")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    join(c, 1)
    beat(c, 2)
    if not bad:
        member = LeaveGroupRequest.Member(member_id="m")
        c.exchange(3, LeaveGroupRequest(group_id="billing", members=[member]), 3, LeaveGroupResponse(error_code=0))
    c.closed(4)


@plants("G07")
def _(t: Traffic, bad: bool) -> None:
    beat(t.connection(), 1, code=ErrorCode.ILLEGAL_GENERATION if bad else ErrorCode.REBALANCE_IN_PROGRESS)


@plants("G08")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    join(c, 1, timeout=10_000)
    beat(c, 4)
    beat(c, 9.2 if bad else 8.8)


@plants("G09")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    join(c, 1, members=("a", "b"))
    assigned = [
        SyncGroupRequest.Assignment(member_id=name, assignment=assignment(count))
        for name, count in (("a", 4 if bad else 3), ("b", 1))
    ]
    request = SyncGroupRequest(group_id="billing", generation_id=1, member_id="a", assignments=assigned)
    c.exchange(2, request, 3, SyncGroupResponse(error_code=0, assignment=b""))


@plants("G10")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    versions(c, 1, name="librdkafka", version="2.12.1" if bad else "2.11.0")
    join(c, 2)


# -- network


@plants("N01")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(30):
        metadata(c, 1 + n / (3 if bad else 2.5))


@plants("N02")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(5):
        metadata(c, 1 + n, topics=None if bad else ())


@plants("N03")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(5 if bad else 4):
        metadata(c, 1 + n, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@plants("N04")
def _(t: Traffic, bad: bool) -> None:
    metadata(t.connection(), 1, code=ErrorCode.LEADER_NOT_AVAILABLE, allow=bad)


@plants("N05")
def _(t: Traffic, bad: bool) -> None:
    for n in range(15):
        c = t.connection(n * (4 if bad else 5))
        beat(c, n * (4 if bad else 5) + 0.1)
        c.closed(n * (4 if bad else 5) + 1)


@plants("N06")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    beat(c, 1)
    beat(c, 2, answers=not bad)
    c.closed(3, BROKER)


@plants("N07")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection(node=1)
    metadata(c, 0.1, leaders=(1, 2) if bad else (1, 1))
    for n in range(50):
        produce(c, 1 + n, partition=n % 2)


@plants("N08")
def _(t: Traffic, bad: bool) -> None:
    metadata(t.connection(node=1), 1)
    t.unopened(node=2).opened(2, is_answered=not bad)


@plants("N09")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    beat(c, 1)
    c.closed(601 if bad else 301, BROKER)


# -- versions, quotas, security


@plants("V01")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    versions(c, 1, highest=8 if bad else 9)
    produce(c, 2)


@plants("V02")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    versions(c, 1, highest=12)
    produce(c, 2, version=7 if bad else 8)


@plants("V03")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection(client_id="rdkafka")
    metadata(c, 1)
    if bad:
        body = b"".join(bytes(part) for part in encode_request(MetadataRequest(topics=None), 9, 2, "rdkafka"))
        c._send(2, 0, [body + b"\0\0\0"])


@plants("V04")
def _(t: Traffic, bad: bool) -> None:
    for n in range(3 if bad else 2):
        c = t.connection(n)
        c.exchange(
            n + 0.1, ApiVersionsRequest(), 0, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
        )


@plants("Q01")
def _(t: Traffic, bad: bool) -> None:
    produce(t.connection(), 1, throttle=1 if bad else 0)


@plants("Q02")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    produce(c, 1, throttle=1_000)
    produce(c, 1.5 if bad else 2.1)


@plants("S01")
def _(t: Traffic, bad: bool) -> None:
    beat(t.connection(), 1, code=ErrorCode.GROUP_AUTHORIZATION_FAILED if bad else 0)


@plants("S02")
def _(t: Traffic, bad: bool) -> None:
    request = SaslHandshakeRequest(mechanism="PLAIN" if bad else "SCRAM-SHA-512")
    t.connection().exchange(1, request, 1, SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]))


@plants("S03")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for at, code in ((1, 0), (2, ErrorCode.SASL_AUTHENTICATION_FAILED if bad else 0)):
        response = SaslAuthenticateResponse(
            error_code=code, error_message=None, auth_bytes=b"", session_lifetime_ms=60_000
        )
        c.exchange(at, SaslAuthenticateRequest(auth_bytes=b"x"), 1, response)


# -- transactions


@plants("T01")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    init(c, 1, txn="t")
    add(c, 2)
    if not bad:
        end(c, 3)
    metadata(c, 20)


@plants("T02")
def _(t: Traffic, bad: bool) -> None:
    end(t.connection(), 1, code=ErrorCode.INVALID_PRODUCER_EPOCH if bad else 0)


@plants("T03")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(4):
        add(c, 1 + n, code=ErrorCode.CONCURRENT_TRANSACTIONS if bad or n % 2 else 0)


@plants("T04")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    for n in range(4):
        add(c, 1 + n)
        if not bad and n % 2:
            produce(c, 1.2 + n, txn="t", sequence=0)
        end(c, 1.5 + n)


@plants("T05")
def _(t: Traffic, bad: bool) -> None:
    c = t.connection()
    init(c, 1, txn="t", timeout=10_000)
    add(c, 2)
    end(c, 7.1 if bad else 6.9)


@plants("T06")
def _(t: Traffic, bad: bool) -> None:
    batch = encode_batch([(0, None, b"x", ())], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    fetch(t.connection(), 1, data=batch, isolation=0 if bad else 1)


# -- the run


def test_every_rule_has_a_text() -> None:
    assert len(RULES) == 58
    assert len({one.name for one in RULES.values()}) == 58
    for one in RULES.values():
        assert one.title
        assert one.explanation.endswith(".")
        assert one.fix.endswith(".")


def test_a_finding_is_explained_by_another(tmp_path: Path) -> None:
    traffic = Traffic()
    c = traffic.connection()
    init(c, 1, txn="t")
    add(c, 2)
    metadata(c, 20)
    end(c, 21, code=ErrorCode.INVALID_PRODUCER_EPOCH)
    found = {one.rule.id: one for one in linted(traffic, tmp_path).findings}
    assert found["T02"].because_of is found["T01"]


def test_clients_with_the_same_id_are_told_apart(tmp_path: Path) -> None:
    """By their groups; and the connections of one program are one client."""
    traffic = Traffic()
    for group in ("billing", "audit"):
        join(traffic.connection(client_id="rdkafka"), 1, group=group, timeout=6_000)
    report = linted(traffic, tmp_path, select=["G02"])
    assert {one.subject for one in report.findings} == {"rdkafka / billing", "rdkafka / audit"}
    together = Traffic()
    commits, fetches_ = together.connection(), together.connection()
    commit(commits, 1)
    fetch(fetches_, 2, most=100)
    (one,) = linted(together, tmp_path, select=["C01"]).findings
    assert one.subject == "app / billing"


def test_connections_to_different_brokers_are_one_client(tmp_path: Path) -> None:
    """A system chooses the ports to each address on its own: they say nothing about one another."""
    traffic = Traffic()
    metadata(traffic.connection(0, port=58_000), 0.1)
    join(traffic.connection(0.2, node=2, port=41_000), 0.3)
    for node, port in ((2, 41_010), (3, 34_000)):
        fetch(traffic.connection(0.4, node=node, port=port), 2, most=100)
    (one,) = linted(traffic, tmp_path, select=["C01"]).findings
    assert (one.subject, one.count) == ("app / billing", 2)


def test_the_client_whose_connections_were_opened_last_takes_one_to_another_broker(tmp_path: Path) -> None:
    traffic = Traffic()
    for at, group, port, node in ((0, "billing", 41_000, 2), (20, "audit", 52_000, 3)):
        join(traffic.connection(at, port=port), at + 0.1, group=group)
        fetch(traffic.connection(at + 0.2, node=node), at + 0.3, most=100)
    report = linted(traffic, tmp_path, select=["C01"])
    assert {one.subject for one in report.findings} == {"app / billing", "app / audit"}


def test_a_group_does_not_name_an_older_program(tmp_path: Path) -> None:
    """Two programs with the same name, of which only the later one says its group."""
    traffic = Traffic()
    producer = traffic.connection(0)
    produce(producer, 0.1, acks=0)
    metadata(traffic.connection(60), 60.1)
    join(traffic.connection(60.2), 60.3)
    produce(producer, 61, acks=0)
    fetch(traffic.connection(60.4, node=2), 62, most=100)
    report = linted(traffic, tmp_path, select=["P01", "C01"])
    assert {one.rule.id: one.subject for one in report.findings} == {"P01": "app", "C01": "app / billing"}


def test_connections_that_are_open_at_the_same_time_are_no_churn(tmp_path: Path) -> None:
    """A program that starts four times in a minute, with eight connections each time."""
    traffic = Traffic()
    for began in (0, 5, 10, 15):
        connections = [traffic.connection(began) for _ in range(8)]
        for one in connections:
            beat(one, began + 0.1)
            one.closed(began + 1)
    assert linted(traffic, tmp_path, select=["N05"]).findings == []


def test_thresholds_and_rules_of_a_file(tmp_path: Path) -> None:
    traffic = Traffic()
    PLANTS["P03"](traffic, True)
    path = tmp_path / "rules.toml"
    path.write_text(
        '[limits.P03]\nrequests = 21\n[rule.X1]\nwhere = "api == Produce and request.acks == -1"\nlevel = "info"\n'
    )
    report = linted(traffic, tmp_path, rule_file=str(path))
    assert {one.rule.id for one in report.findings} & {"P03", "X1"} == {"X1"}
    assert next(one for one in report.findings if one.rule.id == "X1").count == 20


def test_an_assumption(tmp_path: Path) -> None:
    traffic = Traffic()
    PLANTS["C07"](traffic, True)
    assert linted(traffic, tmp_path, select=["C07"], assume={"max.poll.interval.ms": 600_000}).findings == []


def test_a_window_looks_at_the_newest() -> None:
    window = Window()
    times = (0.0, 100.0, 101.0, 102.0)
    assert [window.add(at, 3, 5.0) for at in times] == [False, False, False, True]
