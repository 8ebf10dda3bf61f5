"""The request log: what is in it, how long requests took, and how many are kept."""

from __future__ import annotations

from kwire.broker import Cut, Delay, Disconnect, Fault, Mute, RequestRecord
from kwire.broker.faults import Effect
from kwire.protocol import ApiKey
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.session import Sasl
from tests.broker.bench import Bench, batch
from tests.broker.client import Client
from tests.broker.conftest import StartCluster
from tests.broker.test_faults import Client as VirtualClient
from tests.waiting import wait_until


def log_of(client: VirtualClient) -> list[RequestRecord]:
    return list(client.bench.state.request_log)


def test_latency_is_the_time_from_start_to_response() -> None:
    client = VirtualClient(Bench())
    client.send(client.bench.fetch_request(max_wait_ms=500, offset=0), 18)
    client.produce()
    (fetch,) = log_of(client)
    assert (fetch.api, fetch.version, fetch.latency_ms, fetch.outcome) == (ApiKey.FETCH, 18, None, "pending")
    client.advance(0.5)
    fetch, produce = log_of(client)
    assert (fetch.number, fetch.latency_ms, fetch.outcome) == (1, 500.0, "response")
    # The produce waited behind the fetch: that time is not its own.
    assert (produce.number, produce.api, produce.latency_ms) == (2, ApiKey.PRODUCE, 0.0)
    assert produce.time_ms - fetch.time_ms == 500
    assert produce.size_bytes > len(batch(b"v"))


def test_outcomes() -> None:
    found = []
    effects: list[Effect] = [Mute(), Disconnect(), Cut(5), Delay(30)]
    for effect in effects:
        client = VirtualClient(Bench())
        client.bench.state.faults.add(Fault(effect=effect))
        client.send(MetadataRequest(topics=[]), 9)
        client.advance(0.03)
        (record,) = log_of(client)
        found.append((record.outcome, record.latency_ms))
    assert found == [("pending", None), ("closed", 0.0), ("cut", 0.0), ("response", 30.0)]
    client = VirtualClient(Bench())
    client.produce(acks=0)
    assert [record.outcome for record in log_of(client)] == ["no response"]


def test_only_the_last_ones_are_kept() -> None:
    client = VirtualClient(Bench(request_log_size=3))
    for _ in range(5):
        client.send(MetadataRequest(topics=[]), 9)
    assert [record.number for record in log_of(client)] == [3, 4, 5]
    none = VirtualClient(Bench(request_log_size=0))
    none.send(MetadataRequest(topics=[]), 9)
    assert log_of(none) == []
    assert len(none.written) == 1


def test_who_asked_whom(start: StartCluster) -> None:
    cluster = start(2, sasl={"alice": "secret"})
    client = Client(cluster.brokers[2], sasl=Sasl("PLAIN", "alice", "secret"))
    seen: list[RequestRecord] = []
    cluster.on_request(seen.append)
    client.request(MetadataRequest(topics=[]), 9)
    client.close()
    (record,) = cluster.request_log()
    assert (record.node, record.principal, record.host) == (2, "User:alice", "127.0.0.1")
    assert record.software.startswith("kwire")
    assert seen == [record]
    assert cluster.request_log(api=ApiKey.FETCH) == cluster.request_log(node=1) == []
    assert cluster.request_log(client_id="x") == []
    assert record.as_json()["api"] == "Metadata"
    cluster.clear_request_log()
    assert cluster.request_log() == []


def test_a_frozen_broker_answers_when_it_thaws(start: StartCluster) -> None:
    cluster = start(2)
    frozen, other = Client(cluster.brokers[1]), Client(cluster.brokers[2])
    cluster.freeze(1)
    frozen.session.send(MetadataRequest(topics=[]), 0.0)
    frozen.selector.poll([(node, frame) for node in frozen.selector.nodes for frame in frozen.session.frames()], 0.05)
    assert other.request(MetadataRequest(topics=[])) is not None
    assert [record.node for record in cluster.request_log()] == [2]
    cluster.thaw(1)
    frozen.wait_for_responses(1)
    wait_until(lambda: [record.node for record in cluster.request_log()] == [2, 1])
    frozen.close()
    other.close()
