"""Faults: which requests they match and what their effects do; then the same through a connection's frames."""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

import kwire
from kwire.broker.authorizer import Access, Authorizer
from kwire.broker.connection import Connection, RawBytes
from kwire.broker.fault_file import read_faults
from kwire.broker.faults import (
    CORRUPTIONS,
    Answer,
    ApplyLate,
    Corrupt,
    Cut,
    Delay,
    Disconnect,
    Effect,
    Fault,
    Faults,
    HalfOpen,
    Mute,
    Refuse,
    Reset,
    Throttle,
    Trickle,
    make_fault,
)
from kwire.broker.handlers.table import HANDLERS
from kwire.broker.ids import NO_ID
from kwire.broker.request_context import Reply, RequestContext
from kwire.errors import ConfigurationError, CorruptRecordsError, ErrorCode, error_name
from kwire.protocol import ApiKey, api
from kwire.protocol.headers import decode_response, encode_request
from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest
from kwire.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.schema import Request
from kwire.records import decode_batches
from kwire.session import SaslServer
from tests.broker.bench import GOOD, Bench, batch
from tests.broker.client import Client as SocketClient
from tests.broker.conftest import StartCluster
from tests.broker.virtual_cluster import VirtualCluster
from tests.waiting import wait_until

HIT = Refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
PLACES = [("t", 0), ("t", 1), ("u", -1)]

MATCHES: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"api": ApiKey.PRODUCE}, True),
    ({"api": ApiKey.FETCH}, False),
    ({"node": 1}, True),
    ({"node": 2}, False),
    ({"client_id": "c"}, True),
    ({"client_id": "d"}, False),
    ({"topic": "t"}, True),
    ({"topic": "t", "partition": 1}, True),
    ({"topic": "t", "partition": 2}, False),
    ({"topic": "v"}, False),
    ({"partition": 1}, True),
    ({"topic": "u", "partition": 7}, True),  # the request names the topic as a whole
    ({"api": ApiKey.PRODUCE, "node": 1, "client_id": "c", "topic": "t"}, True),
    ({"api": ApiKey.PRODUCE, "node": 2, "client_id": "c", "topic": "t"}, False),
]


@pytest.mark.parametrize(("rule", "matches"), MATCHES)
def test_a_fault_matches_by_its_fields(rule: dict[str, Any], matches: bool) -> None:
    assert Fault(effect=HIT, **rule).take(ApiKey.PRODUCE, 1, "c", PLACES) is matches


@pytest.mark.parametrize(
    ("after", "times", "taken"),
    [(0, 1, "x...."), (2, 1, "..x.."), (1, 2, ".xx.."), (0, None, "xxxxx"), (3, None, "...xx"), (0, 0, ".....")],
)
def test_after_and_times_select_the_requests(after: int, times: int | None, taken: str) -> None:
    fault = Fault(effect=HIT, after=after, times=times)
    assert "".join("x" if fault.take(ApiKey.FETCH, 1, "", ()) else "." for _ in range(5)) == taken


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"api": ApiKey.PRODUCE, "version": range(50, 60)}, "version is range.50, 60., PRODUCE has 0 to "),
        ({"version": range(5, 5)}, "version is empty"),
        ({"api": ApiKey.PRODUCE, "group": "g"}, "requests of PRODUCE name no group"),
        ({"api": ApiKey.FETCH, "transaction": "x"}, "requests of FETCH name no transaction"),
        ({"api": ApiKey.API_VERSIONS, "client_id": "c"}, "client_id does not select requests of API_VERSIONS"),
        ({"api": ApiKey.SASL_HANDSHAKE, "when": bool}, "when does not select requests of SASL_HANDSHAKE"),
        ({"principal": "alice"}, "principal is 'alice': write it with its type: User:alice"),
    ],
)
def test_a_fault_that_no_request_meets_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Fault(effect=Disconnect(), **fields)


@pytest.mark.parametrize("key", list(HANDLERS))
def test_a_fault_may_name_what_the_requests_of_an_api_name(key: ApiKey) -> None:
    names = {field.name for field in api(key).request.FIELDS}
    more: dict[str, Any] = {"version": api(key).versions, "principal": "User:a", "when": bool}
    if {"group_id", "groups", "key_type"} & names:
        more["group"] = "g"
    if {"transactional_id", "transactions", "key_type"} & names:
        more["transaction"] = "x"
    assert Fault(effect=Disconnect(), api=key, **more).api is key


def test_a_fault_of_an_api_that_brokers_lack_or_do_not_search_is_refused(start: StartCluster) -> None:
    cluster = start(1)
    with pytest.raises(ConfigurationError, match="the brokers have no VOTE"):
        cluster.add_fault(Disconnect(), api=ApiKey.VOTE)
    with pytest.raises(ConfigurationError, match="topic and partition do not select requests of HEARTBEAT: use when"):
        cluster.add_fault(Disconnect(), api=ApiKey.HEARTBEAT, topic="t")
    with pytest.raises(ConfigurationError, match=r"fault is 5: give a kwire\.broker\.Fault"):
        cluster.inject(5)  # type: ignore[arg-type]
    cluster.add_fault(Disconnect(), api=ApiKey.API_VERSIONS)
    assert len(cluster.faults) == 1


def test_faults_are_tried_in_order_and_removed_when_spent() -> None:
    faults = Faults()
    first, second = faults.add(Fault(effect=HIT, times=2)), faults.add(Fault(effect=HIT))
    found = [faults.match(ApiKey.FETCH, 1, "", ()) for _ in range(4)]
    assert found == [first, first, second, None]
    assert len(faults) == 0
    faults.remove(first)


@pytest.mark.parametrize("effect", [Cut(5), ApplyLate(5), HIT, Delay(5, applied=True), Mute(applied=True)])
def test_session_apis_cannot_be_applied_or_refused(effect: Effect) -> None:
    with pytest.raises(ConfigurationError):
        Fault(effect=effect, api=ApiKey.API_VERSIONS)


WRONG_FAULTS: list[tuple[Any, dict[str, Any], str]] = [
    (HIT, {"api": "PRODUCE"}, "api is 'PRODUCE': give a kwire.protocol.ApiKey"),
    (HIT, {"api": 0}, "api is 0"),
    (HIT, {"times": "x"}, "times is 'x'"),
    (HIT, {"times": -1}, "times is -1"),
    (HIT, {"times": True}, "times is True"),
    (HIT, {"after": None}, "after is None"),
    (HIT, {"partition": "0"}, "partition is '0'"),
    (HIT, {"partition": -1}, "partition is -1"),
    (HIT, {"topic": b"t"}, "topic is b't': give a topic's name"),
    (HIT, {"client_id": 5}, "client_id is 5"),
    (HIT, {"node": "1"}, "node is '1'"),
    (HIT, {"tims": 3}, "a fault has no tims: did you mean times?"),
    (HIT, {"hits": 3}, "a fault has no hits"),
    (Delay, {}, r"the effect of a fault is <class .*such as Delay\(ms=50\)"),
    ("boom", {}, "the effect of a fault is 'boom': give an instance of one of Refuse, Disconnect"),
]


@pytest.mark.parametrize(("effect", "match", "message"), WRONG_FAULTS)
def test_a_fault_that_could_never_match_is_rejected(effect: Any, match: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_fault(effect, match)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Refuse("X"), "Refuse: code is 'X': give a kwire.errors.ErrorCode"),  # type: ignore[arg-type]
        (lambda: Refuse(6), "Refuse: code is 6"),  # type: ignore[arg-type]
        (lambda: Refuse(ErrorCode.NONE, applied=1), "applied is 1"),  # type: ignore[arg-type]
        (lambda: Disconnect("x"), "applied is 'x'"),  # type: ignore[arg-type]
        (lambda: Mute(None), "applied is None"),  # type: ignore[arg-type]
        (lambda: Delay("x"), "Delay: ms is 'x'"),  # type: ignore[arg-type]
        (lambda: Delay(-1), "Delay: ms is -1"),
        (lambda: Delay(5, applied=0), "applied is 0"),  # type: ignore[arg-type]
        (lambda: ApplyLate(1.5), "ApplyLate: ms is 1.5"),  # type: ignore[arg-type]
        (lambda: Cut("9"), "Cut: keep_bytes is '9'"),  # type: ignore[arg-type]
    ],
)
def test_invalid_effects_are_rejected(make: Callable[[], Effect], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_a_fault_without_an_api_ignores_the_handshake() -> None:
    fault = Fault(effect=Disconnect())
    assert not fault.take(ApiKey.API_VERSIONS, 1, "", ())
    assert fault.take(ApiKey.METADATA, 1, "", ())


class Produced:
    """One Produce under a fault, and its effect on the log and the client."""

    def __init__(self, effect: Effect, **rule: Any) -> None:
        self.bench = Bench(partitions=2)
        self.bench.topic.partitions[1].move_leader(self.bench.leader("t"), 0.0)
        self.bench.state.faults.add(Fault(effect=effect, api=ApiKey.PRODUCE, **rule))
        self.sent = self.bench.send(self.bench.leader("t"), self.bench.produce_request(GOOD))

    @property
    def is_applied(self) -> bool:
        return self.bench.topic.partitions[0].log.end_offset == 2

    @property
    def outcome(self) -> str:
        """Return "pending", the name of an error, or the kind of completion."""
        if self.sent.is_pending:
            return "pending"
        (outcome,) = self.sent.completions
        if isinstance(outcome, Reply):
            return error_name(self.sent.response.responses[0].partition_responses[0].error_code)
        return type(outcome).__name__


EFFECTS = [
    # effect, (applied, outcome) at once, and 150 ms later
    (Refuse(ErrorCode.KAFKA_STORAGE_ERROR), (False, "KAFKA_STORAGE_ERROR"), (False, "KAFKA_STORAGE_ERROR")),
    (Refuse(ErrorCode.REQUEST_TIMED_OUT, applied=True), (True, "REQUEST_TIMED_OUT"), (True, "REQUEST_TIMED_OUT")),
    (Disconnect(), (False, "CloseConnection"), (False, "CloseConnection")),
    (Disconnect(applied=True), (True, "CloseConnection"), (True, "CloseConnection")),
    (Cut(9), (True, "TruncatedReply"), (True, "TruncatedReply")),
    (Delay(100), (False, "pending"), (True, "NONE")),
    (Delay(100, applied=True), (True, "pending"), (True, "NONE")),
    (Mute(), (False, "pending"), (False, "pending")),
    (Mute(applied=True), (True, "pending"), (True, "pending")),
    (ApplyLate(100), (False, "CloseConnection"), (True, "CloseConnection")),
]


@pytest.mark.parametrize(("effect", "at_once", "later"), EFFECTS)
def test_each_effect_applies_and_responds_as_documented(
    effect: Effect, at_once: tuple[bool, str], later: tuple[bool, str]
) -> None:
    produced = Produced(effect)
    assert (produced.is_applied, produced.outcome) == at_once
    produced.bench.advance(0.15)
    assert (produced.is_applied, produced.outcome) == later


@pytest.mark.parametrize("effect", [Delay(100), ApplyLate(100)])
def test_a_broker_that_stops_meanwhile_does_not_apply_the_request(effect: Effect) -> None:
    produced = Produced(effect)
    produced.bench.state.stop_node(produced.bench.leader("t"), 0.05)
    produced.bench.advance(0.15)
    assert not produced.is_applied


def test_an_error_for_one_partition_does_not_affect_others() -> None:
    bench = Bench(partitions=2)
    bench.topic.partitions[1].move_leader(bench.leader("t"), 0.0)
    bench.state.faults.add(Fault(effect=Refuse(ErrorCode.KAFKA_STORAGE_ERROR), topic="t", partition=1))
    data = [ProduceRequest.Topic.Partition(index=index, records=GOOD) for index in (0, 1)]
    topic = ProduceRequest.Topic(name="t", partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic])
    response = bench.request(bench.leader("t"), request, 12)
    codes = [result.error_code for result in response.responses[0].partition_responses]
    assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR]


def test_metadata_can_have_an_error_for_one_topic() -> None:
    bench = Bench()
    bench.state.create_topic("u")
    bench.state.faults.add(Fault(effect=Refuse(ErrorCode.LEADER_NOT_AVAILABLE), topic="u"))
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name) for name in ("t", "u")])
    assert [topic.error_code for topic in bench.request(1, request).topics] == [0, ErrorCode.LEADER_NOT_AVAILABLE]


def test_a_request_without_partitions_fails_as_a_whole() -> None:
    bench = Bench()
    bench.state.faults.add(Fault(effect=Refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert bench.request(1, request).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Client:
    """The client's end of a connection without a socket. Frames are without their size."""

    def __init__(self, bench: Bench, *, sasl: SaslServer | None = None) -> None:
        self.bench = bench
        self.woken = 0
        apis = {int(key): handler.request.VERSIONS for key, handler in HANDLERS.items()}
        broker = bench.brokers[bench.leader("t")]
        self.connection = Connection(broker, apis=apis, sasl=sasl, client_host="10.0.0.1", on_ready=self._wake)
        self.sent: list[tuple[type[Request[Any]], int]] = []
        self.written: list[list[Any] | RawBytes] = []

    def _wake(self, connection: Connection) -> None:
        self.woken += 1

    def send(self, request: Request[Any], version: int) -> None:
        frame = encode_request(request, version, len(self.sent), "test")
        self.sent.append((type(request), version))
        self.connection.receive(b"".join(frame), self.bench.now)
        self.turn()

    def turn(self) -> None:
        self.written += self.connection.turn(self.bench.now)

    def advance(self, seconds: float) -> None:
        self.bench.advance(seconds)
        self.turn()

    def responses(self) -> list[Any]:
        found = []
        for number, frame in enumerate(self.written):
            assert isinstance(frame, list)
            correlation_id, response = decode_response(b"".join(frame), *self.sent[number])
            assert correlation_id == number
            found.append(response)
        return found

    def produce(self, acks: int = -1) -> None:
        self.send(self.bench.produce_request(batch(b"v"), acks=acks), 13)


class TestConnection:
    def test_requests_are_handled_one_after_the_other_in_order(self) -> None:
        client = Client(Bench())
        client.send(client.bench.fetch_request(max_wait_ms=500, offset=0), 18)
        client.produce()
        client.produce()
        assert client.written == []  # the fetch waits, and the requests behind it have not started
        assert client.connection.queued == 2
        assert client.bench.topic.partitions[0].log.end_offset == 0
        client.advance(0.6)
        fetched, first, second = client.responses()
        assert fetched.responses[0].partitions[0].records == b""
        offsets = [r.responses[0].partition_responses[0].base_offset for r in (first, second)]
        assert offsets == [0, 1]

    def test_acks_0_has_no_response_and_blocks_nothing(self) -> None:
        client = Client(Bench())
        client.produce(acks=0)
        assert client.written == []
        client.send(MetadataRequest(topics=[]), 9)
        client.sent.pop(0)
        frame = client.written[0]
        assert isinstance(frame, list)
        assert decode_response(b"".join(frame), MetadataRequest, 9)[0] == 1

    def test_an_undecodable_request_closes_the_connection(self) -> None:
        client = Client(Bench())
        client.connection.receive(b"\x00\x03\x00\x09\x00\x00\x00\x00garbage", 0.0)
        assert client.connection.is_closing

    def test_an_unsupported_version_closes_the_connection(self) -> None:
        client = Client(Bench())
        client.connection.receive(b"\x00\x03\x7f\xff\x00\x00\x00\x00\xff\xff", 0.0)
        assert client.connection.is_closing

    def test_requests_before_authentication_close_the_connection(self) -> None:
        client = Client(Bench(), sasl=SaslServer({"u": "p"}))
        client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        assert len(client.responses()) == 1
        client.send(MetadataRequest(topics=[]), 9)
        assert client.connection.is_closing

    def test_a_response_after_the_client_has_gone_is_dropped(self) -> None:
        client = Client(Bench())
        client.send(client.bench.fetch_request(max_wait_ms=500), 18)
        client.connection.closed(0.0)
        client.advance(1)
        assert client.written == []

    def test_a_cut_response_is_the_start_of_its_frame(self) -> None:
        whole, cut = Client(Bench()), Client(Bench())
        cut.bench.state.faults.add(Fault(effect=Cut(20)))
        for client in (whole, cut):
            client.send(MetadataRequest(topics=[]), 9)
        frame = b"".join(whole.written[0])  # type: ignore[arg-type]
        (raw,) = cut.written
        assert isinstance(raw, RawBytes)
        assert raw.data == (len(frame).to_bytes(4, "big") + frame)[:20]
        assert cut.connection.is_closing

    def test_a_muted_connection_sends_no_more_responses(self) -> None:
        client = Client(Bench())
        client.bench.state.faults.add(Fault(effect=Mute()))
        for _ in range(3):
            client.send(MetadataRequest(topics=[]), 9)
        client.advance(1_000)
        assert client.written == []
        assert not client.connection.is_closing

    @pytest.mark.parametrize(
        ("effect", "responses", "closing"),
        [(Disconnect(), 0, True), (Mute(), 0, False), (Delay(100), 2, False)],
    )
    def test_faults_apply_to_api_versions(self, effect: Effect, responses: int, closing: bool) -> None:
        client = Client(Bench())
        client.bench.state.faults.add(Fault(effect=effect, api=ApiKey.API_VERSIONS))
        client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        client.send(MetadataRequest(topics=[]), 9)
        assert client.written == []
        assert client.connection.is_closing is closing
        client.advance(0.2)
        assert len(client.responses()) == responses


class TestConditions:
    """What a fault can match beyond API, broker, partition and client."""

    def context(self, request: Request[Any], version: int = 1, principal: str = "User:alice") -> RequestContext:
        access = Access(Authorizer(), principal, "10.0.0.1")
        return RequestContext(
            request, version, client_id="c", client_host="10.0.0.1", access=access, on_complete=lambda completion: None
        )

    @pytest.mark.parametrize(
        ("request_", "rule", "matches"),
        [
            (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), {"group": "g"}, True),
            (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), {"group": "h"}, False),
            (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), {"transaction": "g"}, False),
            (DescribeGroupsRequest(groups=["a", "g"]), {"group": "g"}, True),
            (OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="g", topics=None)]), {"group": "g"}, True),
            (FindCoordinatorRequest(key="g", key_type=0), {"group": "g"}, True),
            (FindCoordinatorRequest(key="g", key_type=1), {"group": "g"}, False),
            (FindCoordinatorRequest(key="x", key_type=1), {"transaction": "x"}, True),
            (MetadataRequest(topics=[]), {"principal": "User:alice"}, True),
            (MetadataRequest(topics=[]), {"principal": "User:bob"}, False),
            (MetadataRequest(topics=[]), {"version": range(1, 3)}, True),
            (MetadataRequest(topics=[]), {"version": range(2, 3)}, False),
            (MetadataRequest(topics=[]), {"when": lambda request: request.topics == []}, True),
            (MetadataRequest(topics=None), {"when": lambda request: request.topics == []}, False),
        ],
    )
    def test_a_fault_matches_by_the_request(self, request_: Request[Any], rule: dict[str, Any], matches: bool) -> None:
        api = ApiKey(request_.API_KEY)
        assert Fault(effect=HIT, **rule).take(api, 1, "c", (), self.context(request_)) is matches

    def test_a_chance_has_a_seed(self) -> None:
        def taken(seed: int) -> str:
            fault = Fault(effect=HIT, times=None, chance=0.3, seed=seed)
            return "".join("x" if fault.take(ApiKey.FETCH, 1, "", ()) else "." for _ in range(1000))

        assert taken(1) == taken(1) != taken(2)
        assert 200 < taken(1).count("x") < 400

    @pytest.mark.parametrize("rule", [{"chance": 2}, {"chance": True}, {"when": 5}, {"version": 3}, {"group": 1}])
    def test_values_that_could_never_match(self, rule: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            make_fault(HIT, rule)


def test_a_response_is_changed_or_made_up() -> None:
    cluster = VirtualCluster(1)

    def no_brokers(request: MetadataRequest, response: Any) -> None:
        response.brokers = []

    cluster.state.faults.add(make_fault(Answer(no_brokers), {"api": ApiKey.METADATA}))
    made_up = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    cluster.state.faults.add(make_fault(Answer(lambda request, response: made_up), {"api": ApiKey.HEARTBEAT}))
    assert cluster.request(1, MetadataRequest(topics=[])).brokers == []
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert cluster.request(1, beat).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_throttled_response_mutes_its_connection(start: StartCluster) -> None:
    cluster = start(1)
    cluster.add_fault(Throttle(300), api=ApiKey.METADATA)
    client = SocketClient(cluster.brokers[1])
    began = time.monotonic()
    assert client.request(MetadataRequest(topics=[])).throttle_time_ms == 300
    assert client.request(MetadataRequest(topics=[])).throttle_time_ms == 0
    assert time.monotonic() - began >= 0.3
    client.close()


FAULT_FILE = """
[[fault]]
effect = "Refuse"
code = "NOT_LEADER_OR_FOLLOWER"
api = "Produce"
topic = "orders"
times = "all"
chance = 0.1
version = "9-12"

[[fault]]
effect = "Delay"
ms = 200
group = "billing"
"""


def test_faults_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(FAULT_FILE)
    refuse, delay = read_faults(file)
    assert refuse.effect == Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (refuse.api, refuse.topic, refuse.times, refuse.chance) == (ApiKey.PRODUCE, "orders", None, 0.1)
    assert refuse.version == range(9, 13)
    assert (delay.effect, delay.group, delay.times) == (Delay(200), "billing", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[fault]]\neffect = 'Refuze'\n", "fault 1: effect is 'Refuze'"),
        ("[[fault]]\neffect = 'Refuse'\ncode = 'NO_LEADER'\n", "fault 1: there is no error 'NO_LEADER'"),
        (
            "[[fault]]\neffect = 'Delay'\n",
            "Delay: the key ms is missing: Delay has the keys ms, applied, jitter_ms",
        ),
        ("[[fault]]\neffect = 'Cut'\nbytes = 9\n", "fault 1: Cut: the key keep_bytes is missing"),
        ("[[fault]]\neffect = 'Cut'\nkeep_bytes = 9\nbytes = 9\n", "fault 1: a fault has no bytes"),
        ("[[fault]]\neffect = 'Mute'\napi = 'Prodduce'\n", "there is no API 'Prodduce'"),
        ("[[fault]]\neffect = 'Mute'\ntopik = 'orders'\n", "a fault has no topik"),
        ("[[fault]]\neffect = 'Mute'\nwhen = 'never'\n", "when is a function"),
        ("[fault]\neffect = 'Mute'\n", "faults.toml"),
        ("faults = 3\n", "it has faults"),
        ("= 3", "faults.toml"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_faults(file)


def test_the_documents_name_the_fields_of_effects() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "test.md").read_text()
    rows = re.findall(r"^\| `add_fault\((\w+)\((.*?)\)[,)]", page, re.MULTILINE)
    kinds = {kind.__name__: kind for kind in get_args(Effect)}
    assert {name for name, _ in rows} == set(kinds)
    for name, arguments in rows:
        named = {one.partition("=")[0].strip() for one in arguments.split(",") if one}
        assert named <= {field.name for field in fields(kinds[name])}, name


class TestDamage:
    """Faults in the bytes of a response."""

    def written(self, effect: Effect | None, request: Request[Any], version: int) -> tuple[Client, bytes]:
        client = Client(Bench())
        client.bench.produce(batch(b"value"))
        if effect is not None:
            client.bench.state.faults.add(Fault(effect=effect))
        client.send(request, version)
        (frame,) = client.written
        if isinstance(frame, RawBytes):
            return client, frame.data
        body = b"".join(frame)
        return client, len(body).to_bytes(4, "big") + body

    def test_the_checksum_of_fetched_records_is_wrong(self) -> None:
        client = Client(Bench())
        client.bench.produce(batch(b"value"))
        client.bench.state.faults.add(Fault(effect=Corrupt("records")))
        client.send(client.bench.fetch_request(), 18)
        (response,) = client.responses()
        records = response.responses[0].partitions[0].records
        with pytest.raises(CorruptRecordsError, match="CRC"):
            list(decode_batches(records))
        client.send(client.bench.fetch_request(), 18)  # the log itself is intact
        assert list(decode_batches(client.responses()[1].responses[0].partitions[0].records))

    @pytest.mark.parametrize(
        ("what", "change"),
        [
            ("correlation", lambda frame: frame[:4] + b"\x40\0\0\0" + frame[8:]),
            ("length", lambda frame: b"\x7f\xff\xff\xff" + frame[4:]),
            ("duplicate", lambda frame: frame + frame),
        ],
    )
    def test_bytes_of_a_frame(self, what: str, change: Callable[[bytes], bytes]) -> None:
        request = MetadataRequest(topics=[])
        _, whole = self.written(None, request, 9)
        client, damaged = self.written(Corrupt(what), request, 9)
        assert damaged == change(whole)
        assert not client.connection.is_closing

    def test_garbage_has_the_size_of_the_response(self) -> None:
        request = MetadataRequest(topics=[])
        _, whole = self.written(None, request, 9)
        _, damaged = self.written(Corrupt("garbage"), request, 9)
        assert len(damaged) == len(whole)
        assert damaged[:4] == whole[:4]
        assert damaged[4:] != whole[4:]

    def test_a_trickling_response_holds_up_the_next_one(self) -> None:
        client = Client(Bench())
        client.bench.state.faults.add(Fault(effect=Trickle(100)))
        client.send(MetadataRequest(topics=[]), 9)
        client.send(MetadataRequest(topics=[]), 9)
        parts = []
        for _ in range(1000):
            parts += client.written
            client.written = []
            if parts and not isinstance(parts[-1], RawBytes):
                break
            client.advance(0.05)
        slow = b"".join(part.data for part in parts[:-1] if isinstance(part, RawBytes))
        _, whole = self.written(None, MetadataRequest(topics=[]), 9)
        assert slow == whole
        assert {len(part.data) for part in parts[:-2] if isinstance(part, RawBytes)} == {5}
        assert client.bench.now >= len(whole) / 100 - 0.05

    def test_a_client_recovers_from_damage(self, start: StartCluster) -> None:
        cluster = start(1, topics={"t": 1})
        for what in CORRUPTIONS:
            cluster.add_fault(Corrupt(what), api=ApiKey.PRODUCE)
        with kwire.Producer(cluster.bootstrap, delivery_timeout_ms=60_000) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number).result(timeout=60)
        assert [record.value for record in cluster.log("t").records()] == [b"%d" % number for number in range(10)]
        assert cluster.faults == ()

    @pytest.mark.parametrize("make", [lambda: Corrupt("crc"), lambda: Trickle(0)])
    def test_wrong_arguments(self, make: Callable[[], Effect]) -> None:
        with pytest.raises(ConfigurationError):
            make()


class TestConnectionsThatEndBadly:
    def test_a_reset_reaches_the_client_as_one(self, start: StartCluster) -> None:
        cluster = start(1)
        cluster.add_fault(Reset(), api=ApiKey.METADATA)
        with socket.create_connection(cluster.brokers[1]) as client:
            client.sendall(framed(MetadataRequest(topics=[]), 9))
            with pytest.raises(ConnectionResetError):
                client.recv(1)

    def test_a_half_open_connection_is_forgotten_and_neither_closed_nor_read(self, start: StartCluster) -> None:
        cluster = start(1, topics={"t": 1})
        fault = cluster.add_fault(HalfOpen(), api=ApiKey.METADATA)
        with socket.create_connection(cluster.brokers[1]) as client:
            client.sendall(framed(MetadataRequest(topics=[]), 9) * 2)
            wait_until(lambda: fault.hits)
            other = SocketClient(cluster.brokers[1])  # whose response shows that the broker has had its turn
            assert other.request(MetadataRequest(topics=[]), 9) is not None
            other.close()
            assert select.select([client], [], [], 0) == ([], [], [])
            assert [record.outcome for record in cluster.request_log(api=ApiKey.METADATA)] == ["closed", "response"]

    @pytest.mark.parametrize("effect", [Reset(), Reset(applied=True), HalfOpen(), HalfOpen(applied=True)])
    def test_a_producer_stores_each_record_once(self, start: StartCluster, effect: Effect) -> None:
        """It sends them again: at once after a reset, after its request timeout where nothing comes back."""
        cluster = start(1, topics={"t": 1})
        fault = cluster.add_fault(effect, api=ApiKey.PRODUCE, after=1)
        with kwire.Producer(cluster.bootstrap, request_timeout_ms=500) as producer:
            for number in range(5):
                producer.send("t", b"%d" % number).result(timeout=60)
        assert fault.hits == 1
        assert [record.value for record in cluster.log("t").records()] == [b"%d" % number for number in range(5)]

    @pytest.mark.parametrize("api", [ApiKey.API_VERSIONS, ApiKey.LIST_OFFSETS, ApiKey.FETCH])
    @pytest.mark.parametrize("effect", [Reset(), HalfOpen()])
    def test_a_consumer_reads_on(self, start: StartCluster, effect: Effect, api: ApiKey) -> None:
        cluster = start(1, topics={"t": 1})
        with kwire.Producer(cluster.bootstrap) as producer:
            producer.send_many("t", [b"%d" % number for number in range(100)])
        fault = cluster.add_fault(effect, api=api)
        with kwire.Consumer(cluster.bootstrap, request_timeout_ms=500, max_wait_ms=100) as consumer:
            consumer.assign([("t", 0, "earliest")])
            values: list[bytes | None] = []
            while len(values) < 100:
                values += [record.value for record in consumer.poll(timeout=60)]
        assert fault.hits == 1
        assert values == [b"%d" % number for number in range(100)]


def framed(request: Request[Any], version: int) -> bytes:
    frame = b"".join(encode_request(request, version, 1, "t"))
    return len(frame).to_bytes(4, "big") + frame


def test_jitter_is_by_chance_and_has_a_seed() -> None:
    def latencies(seed: int) -> list[float | None]:
        client = Client(Bench())
        client.bench.state.faults.add(Fault(effect=Delay(10, jitter_ms=20), times=None, seed=seed))
        for _ in range(50):
            client.send(MetadataRequest(topics=[]), 9)
            for _ in range(40):
                client.advance(0.001)
        return [record.latency_ms for record in client.bench.state.request_log]

    found = latencies(1)
    assert found == latencies(1) != latencies(2)
    numbers = [latency for latency in found if latency is not None]
    assert len(numbers) == 50
    assert 10 <= min(numbers) < 15 < 25 < max(numbers) <= 31


def test_stale_metadata_of_one_broker() -> None:
    cluster = VirtualCluster(3)
    cluster.state.create_topic("t", 1)
    leader = cluster.leader("t")
    other = next(id for id in cluster.brokers if id != leader)
    cluster.state.told_leaders[1, "t", 0] = other

    def told(node: int) -> tuple[int, int]:
        named = [MetadataRequest.Topic(name="t", topic_id=NO_ID)]
        (metadata,) = cluster.request(node, MetadataRequest(topics=named)).topics
        wanted = [DescribeTopicPartitionsRequest.Topic(name="t")]
        request = DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=10, cursor=None)
        (described,) = cluster.request(node, request).topics
        return metadata.partitions[0].leader_id, described.partitions[0].leader_id

    assert (told(1), told(2)) == ((other, other), (leader, leader))


def test_a_producer_gets_past_stale_metadata(start: StartCluster) -> None:
    cluster = start(3, topics={"t": 1})
    leader = cluster.leader("t")
    wrong = next(id for id in cluster.brokers if id != leader)
    cluster.tell_leader("t", 0, wrong)
    with kwire.Producer(cluster.bootstrap) as producer:
        sent = producer.send("t", b"v")
        wait_until(lambda: any(record.node == wrong for record in cluster.request_log(api=ApiKey.PRODUCE)))
        cluster.tell_leader("t", 0, None)
        assert sent.result(timeout=60).offset == 0
