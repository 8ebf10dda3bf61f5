"""The control port: what a test in another language can do by HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

import kwire
from kwire.broker import Cluster
from kwire.broker.control import ControlServer
from kwire.errors import ConfigurationError, ConnectError
from tests.broker.conftest import StartCluster
from tests.waiting import PATIENCE_SECONDS


class Remote:
    """A program that controls the cluster."""

    def __init__(self, server: ControlServer) -> None:
        self.address = server.address

    def send(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE_SECONDS)
        try:
            text = body if isinstance(body, str) else None if body is None else json.dumps(body)
            connection.request(method, path, text, headers or {})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self.send(method, path, body)
        assert status == 200, answer
        return answer


@pytest.fixture
def cluster(start: StartCluster) -> Cluster:
    return start(3, topics={"t": 1})


@pytest.fixture
def remote(cluster: Cluster) -> Iterator[Remote]:
    with ControlServer(cluster) as server:
        yield Remote(server)


def test_the_state_of_the_cluster(cluster: Cluster, remote: Remote) -> None:
    state = remote.ok("GET", "/")
    assert state["bootstrap"] == cluster.bootstrap
    assert [(broker["id"], broker["port"], broker["is_up"]) for broker in state["brokers"]] == [
        (id, port, True) for id, (_, port) in cluster.brokers.items()
    ]
    (topic,) = state["topics"]
    assert (topic["name"], topic["partitions"][0]["leader"]) == ("t", cluster.leader("t"))
    assert len(topic["partitions"][0]["isr"]) == 3


def test_faults_come_and_go(cluster: Cluster, remote: Remote) -> None:
    code = {"effect": "Refuse", "code": "NOT_ENOUGH_REPLICAS", "api": "Produce", "times": 2}
    first = remote.ok("POST", "/faults", code)["id"]
    second = remote.ok("POST", "/faults", {"effect": "Delay", "ms": 1, "api": "Fetch", "times": "all"})["id"]
    assert [fault["id"] for fault in remote.ok("GET", "/faults")] == [first, second]
    with kwire.Producer(cluster.bootstrap) as producer:
        producer.send("t", b"v").result(timeout=60)
    assert [fault["id"] for fault in remote.ok("GET", "/faults")] == [second]
    assert remote.ok("DELETE", f"/faults/{first}") == {"seen": 2, "hits": 2}
    remote.ok("DELETE", f"/faults/{second}")
    assert cluster.faults == ()
    remote.ok("POST", "/faults", {"effect": "Mute"})
    remote.ok("DELETE", "/faults")
    assert remote.ok("GET", "/faults") == []


def test_brokers_and_leaders(cluster: Cluster, remote: Remote) -> None:
    leader = cluster.leader("t")
    other = next(id for id in cluster.brokers if id != leader)
    remote.ok("POST", "/topics/t/0/leader", {"broker": other})
    assert cluster.leader("t") == other
    remote.ok("POST", f"/brokers/{other}/stop")
    assert cluster.leader("t") != other
    assert [b["is_up"] for b in remote.ok("GET", "/")["brokers"] if b["id"] == other] == [False]
    remote.ok("POST", f"/brokers/{other}/start")
    remote.ok("POST", f"/brokers/{other}/freeze")
    remote.ok("POST", f"/brokers/{other}/thaw")
    remote.ok("POST", f"/brokers/{other}/serve-as", {"version": "3.9"})
    remote.ok("POST", "/topics/t/0/told-leader", {"broker": 1, "nodes": [2]})
    assert cluster.call(lambda state, now: dict(state.told_leaders)) == {(2, "t", 0): 1}
    remote.ok("POST", "/topics/t/0/told-leader", {"broker": None})
    assert cluster.call(lambda state, now: dict(state.told_leaders)) == {}


def test_topics_logs_offsets_and_requests(cluster: Cluster, remote: Remote) -> None:
    remote.ok("POST", "/topics", {"name": "made/it".replace("/", "."), "partitions": 2, "configs": {"retention.ms": 5}})
    remote.ok("POST", "/topics", {"name": "kept", "configs": {"cleanup.policy": "compact"}})
    with kwire.Producer(cluster.bootstrap, client_id="app") as producer:
        for number in range(3):
            producer.send("kept", b"%d" % number, key=b"k").result(timeout=60)
    log = remote.ok("GET", "/topics/kept/0")
    assert (log["start_offset"], log["end_offset"], log["high_watermark"]) == (0, 3, 3)
    remote.ok("POST", "/topics/kept/compact")
    assert [record.value for record in cluster.log("kept").records()] == [b"2"]
    found = remote.ok("GET", "/requests?api=Produce&client_id=app")
    assert len(found) == 3
    assert {record["outcome"] for record in found} == {"response"}
    assert remote.ok("GET", "/requests?client_id=other") == []
    remote.ok("DELETE", "/requests")
    assert remote.ok("GET", "/requests") == []
    assert remote.ok("GET", "/groups/none/offsets") == []
    remote.ok("DELETE", "/topics/made.it")
    assert {topic["name"] for topic in remote.ok("GET", "/")["topics"]} == {"t", "kept"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("GET", "/nothing", None, 404, "there is no GET /nothing"),
        ("PUT", "/faults", None, 501, "Unsupported method ('PUT')"),
        ("DELETE", "/faults/7", None, 404, "there is no fault 7"),
        ("POST", "/brokers/9/stop", None, 400, "there is no broker 9"),
        ("POST", "/brokers/1/serve-as", {"version": "2.99"}, 400, "version is '2.99'"),
        ("POST", "/brokers/one/stop", None, 404, "there is no broker one"),
        ("POST", "/faults", {"effect": "Delay"}, 400, "Delay: the key ms is missing"),
        ("POST", "/faults", {"effect": "Mute", "api": "Prodduce"}, 400, "there is no API 'Prodduce'"),
        ("POST", "/faults", {"effect": "Mute", "times": 2.5}, 400, "times is 2.5"),
        ("POST", "/faults", "{", 400, "the body is not JSON"),
        ("POST", "/faults", [1], 400, "the body is not an object"),
        ("POST", "/topics", {"name": "t"}, 409, "TOPIC_ALREADY_EXISTS"),
        ("POST", "/topics", {"name": "x", "partition": 3}, 400, "a topic has no partition"),
        ("POST", "/topics", {"name": 5}, 400, "name is 5"),
        ("POST", "/faults", "[" * 50_000, 400, "the body is not JSON"),
        ("POST", "/topics/t/0/leader", {}, 400, "the key broker is missing"),
        ("POST", "/topics/t/0/leader", {"broker": None}, 400, "broker is None"),
        ("POST", "/topics/t/0/told-leader", {"broker": 1, "node": [1]}, 400, "there is no key node"),
        ("POST", "/brokers/1/serve-as", {}, 400, "the key version is missing"),
        ("POST", "/brokers/1/serve-as", {"version": "3.9", "when": 1}, 400, "there is no key when"),
        ("GET", "/topics/none/0", None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("GET", "/topics/t/7", None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("DELETE", "/topics/none", None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("POST", "/topics/none/compact", None, 409, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("GET", "/requests?topic=t", None, 400, "requests are not selected by topic"),
        ("GET", "/requests?api=Nothing", None, 400, "there is no API 'Nothing'"),
    ],
)
def test_wrong_requests_say_why(remote: Remote, method: str, path: str, body: object, status: int, says: str) -> None:
    got, answer = remote.send(method, path, body)
    assert (got, answer["error"].count(says)) == (status, 1), answer


def test_head_has_no_body(remote: Remote) -> None:
    connection = http.client.HTTPConnection(*remote.address, timeout=PATIENCE_SECONDS)
    connection.request("HEAD", "/")
    response = connection.getresponse()
    assert (response.status, response.read()) == (501, b"")
    connection.close()


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}])
def test_web_pages_are_refused(cluster: Cluster, remote: Remote, headers: dict[str, str]) -> None:
    status, answer = remote.send("POST", "/brokers/1/stop", headers=headers)
    assert (status, "web page" in answer["error"]) == (400, True)
    assert cluster.call(lambda state, now: state.nodes[1].is_up)


def test_it_listens_on_this_machine_only(cluster: Cluster) -> None:
    with pytest.raises(ConfigurationError, match=r"0\.0\.0\.0"):
        ControlServer(cluster, "0.0.0.0")
    with ControlServer(cluster) as server, pytest.raises(ConnectError):
        ControlServer(cluster, port=server.address[1])
