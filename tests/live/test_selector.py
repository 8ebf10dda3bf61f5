"""Test the two lowest rooms alone, as an embedding program uses them: a KafkaSelector, frames, and messages.

Without a session or a loop, it sends many ApiVersions and Metadata requests at once on one connection to each cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kwire.errors import ConnectError
from kwire.net import KafkaSelector
from kwire.protocol.headers import decode_response, encode_request
from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.metadata import MetadataRequest
from tests.live.backends import Backend

NODE = 0
TURNS_MAX = 500


@pytest.fixture
def selector() -> Iterator[KafkaSelector]:
    one = KafkaSelector()
    yield one
    one.close()


def connect(selector: KafkaSelector, backend: Backend) -> None:
    host, port = backend.bootstrap.split(",")[0].rsplit(":", 1)
    selector.connect(NODE, host, int(port))
    for _ in range(TURNS_MAX):
        selector.poll([], 1.0)
        if NODE in selector.connected:
            return
    pytest.fail("not connected")


def test_responses_come_in_the_order_of_the_requests(selector: KafkaSelector, backend: Backend) -> None:
    connect(selector, backend)
    request = MetadataRequest(topics=[])
    sends = [(NODE, encode_request(request, 0, correlation_id, "embedder")) for correlation_id in range(100)]
    responses = []
    for _ in range(TURNS_MAX):
        responses += selector.poll(sends, 5.0)
        sends = []
        if len(responses) == 100:
            break
    assert [decode_response(one.frame, MetadataRequest, 0)[0] for one in responses] == list(range(100))
    _, metadata = decode_response(responses[-1].frame, MetadataRequest, 0)
    listed = {f"{broker.host}:{broker.port}" for broker in metadata.brokers}
    assert listed == set(backend.bootstrap.split(",")) or backend.is_external


def test_api_versions_of_each_backend(selector: KafkaSelector, backend: Backend) -> None:
    """Kafka 0.8.2 does not know ApiVersions and closes the connection, so sessions may connect without it."""
    connect(selector, backend)
    request = encode_request(ApiVersionsRequest(), 0, 1, "embedder")
    responses = selector.poll([(NODE, request)], 5.0)
    for _ in range(TURNS_MAX):
        if responses or selector.disconnected:
            break
        responses = selector.poll([], 5.0)
    if backend.is_ancient:
        assert not responses
        assert [one.node for one in selector.disconnected] == [NODE]
        return
    _, response = decode_response(responses[0].frame, ApiVersionsRequest, 0)
    offered = {one.api_key: range(one.min_version, one.max_version + 1) for one in response.api_keys}
    assert 13 in offered[MetadataRequest.API_KEY]


def test_a_later_poll_returns_a_refused_connection(selector: KafkaSelector) -> None:
    selector.connect(NODE, "127.0.0.1", 1)
    for _ in range(TURNS_MAX):
        selector.poll([], 1.0)
        if selector.disconnected:
            break
    (end,) = selector.disconnected
    assert end.node == NODE
    assert isinstance(end.cause, ConnectError)
