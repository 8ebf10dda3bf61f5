"""What the brokers log about clients: why connections end, and which mistakes are tolerated or rejected."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kwire.broker import Cluster, diagnostics
from kwire.errors import ErrorCode
from kwire.net import Tls
from kwire.protocol import ApiKey
from kwire.protocol.headers import encode_request
from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire.protocol.schema import Request
from tests.broker.bench import GOOD
from tests.broker.client import Client
from tests.broker.conftest import StartCluster
from tests.broker.test_cluster import certificates

Dial = Callable[[Cluster], "RawClient"]


class RawClient:
    """A socket to broker 1 that sends arbitrary bytes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sock = socket.create_connection(cluster.brokers[1], 10)
        self._sock.settimeout(10)

    def send(self, frame: bytes) -> None:
        self._sock.sendall(len(frame).to_bytes(4, "big") + frame)

    def send_raw(self, data: bytes) -> None:
        self._sock.sendall(data)

    def request(self, request: Request[Any], version: int) -> None:
        """Send a request as client "raw", and wait for the response."""
        self.send(request_frame(request, version))
        size = int.from_bytes(self._receive(4), "big")
        self._receive(size)

    def wait_for_close(self) -> None:
        """Wait until the broker has closed the connection and has logged why: it logs later in the same turn."""
        with contextlib.suppress(ConnectionResetError):
            while self._sock.recv(1 << 16):
                pass
        self._cluster.call(lambda state, now: None)  # runs after the turn that closed the connection

    def close(self) -> None:
        self._sock.close()

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._sock.recv(size - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return data


@pytest.fixture
def dial() -> Iterator[Dial]:
    with ExitStack() as stack:

        def dial_one(cluster: Cluster) -> RawClient:
            client = RawClient(cluster)
            stack.callback(client.close)
            return client

        yield dial_one


def request_frame(request: Request[Any], version: int) -> bytes:
    return b"".join(encode_request(request, version, 1, "raw"))


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == level and record.name.startswith(("kwire.broker", "kwire.net"))
    ]


class TestTrailingBytes:
    def test_trailing_bytes_are_ignored_and_listed_once(
        self, start: StartCluster, dial: Dial, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "kwire.broker")
        cluster = start(1, topics={"t": 1})
        client = dial(cluster)
        client.request(ApiVersionsRequest(client_software_name="soft", client_software_version="1.5"), 3)
        for _ in range(2):
            client.send(request_frame(MetadataRequest(topics=None), 13) + b"\x01\0\0")
            client.request(MetadataRequest(topics=None), 13)  # responses come in order: the request before is complete
        (oddity,) = cluster.oddities
        assert (oddity.software, oddity.client_id) == ("soft 1.5", "raw")
        assert (oddity.api, oddity.version) == (ApiKey.METADATA, 13)
        assert oddity.what == "3 bytes after the last field, ignored as Kafka does: 01 00 00"
        assert logged(caplog, logging.INFO) == [str(oddity)]
        assert cluster.requests()[ApiKey.METADATA] == 4

    def test_trailing_bytes_of_session_apis_are_listed(self, start: StartCluster, dial: Dial) -> None:
        cluster = start(1, topics={"t": 1})
        client = dial(cluster)
        client.send(request_frame(ApiVersionsRequest(client_software_name="s", client_software_version="1"), 3) + b"!")
        client.request(MetadataRequest(topics=None), 13)
        assert [(oddity.api, oddity.what[:6]) for oddity in cluster.oddities] == [(ApiKey.API_VERSIONS, "1 byte")]


class TestClosedConnections:
    """Each is a warning, which Python prints by default."""

    def test_an_undecodable_request_is_logged_with_its_fields(
        self, start: StartCluster, dial: Dial, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "kwire.broker")
        cluster = start(1, topics={"t": 1})
        client = dial(cluster)
        client.request(ApiVersionsRequest(client_software_name="soft", client_software_version="1.5"), 3)
        client.send(request_frame(MetadataRequest(topics=[]), 1)[:-1])
        client.wait_for_close()
        (line,) = logged(caplog, logging.WARNING)
        assert line.startswith("connection 1 to broker 1, client 'raw' (soft 1.5) at 127.0.0.1: 4 bytes are needed")
        assert "MetadataRequest" in line
        assert "v1" in line
        assert "field topics, offset 13" in line
        (details,) = [text for text in logged(caplog, logging.DEBUG) if "the request's bytes" in text]
        assert "header of Metadata v1" in details
        assert "00 00 00  topics = 4 bytes are needed and 3 are left" in details

    @pytest.mark.parametrize(
        ("frame", "why"),
        [
            (b"\0\3\0\x63\0\0\0\1\0\3raw\0", "Metadata, v99"),
            (b"\0\x44\0\0\0\0\0\1\0\3raw\0", "ConsumerGroupHeartbeat, v0"),
            (b"\7\xd0\0\0\0\0\0\1\0\3raw\0", "2000"),
            (b"\0", "1 bytes are not a request"),
        ],
    )
    def test_unknown_apis_and_versions_are_logged(
        self, start: StartCluster, dial: Dial, caplog: pytest.LogCaptureFixture, frame: bytes, why: str
    ) -> None:
        cluster = start(1, topics={"t": 1}, api_versions={ApiKey.CONSUMER_GROUP_HEARTBEAT: range(0)})
        client = dial(cluster)
        client.send(frame)
        client.wait_for_close()
        (line,) = logged(caplog, logging.WARNING)
        assert why in line
        assert cluster.failures == ()

    def test_an_http_client_is_logged(self, start: StartCluster, dial: Dial, caplog: pytest.LogCaptureFixture) -> None:
        client = dial(start(1))
        client.send_raw(b"GET / HTTP/1.1\r\n\r\n")
        client.wait_for_close()
        (line,) = logged(caplog, logging.WARNING)
        assert "the peer is an HTTP client" in line

    def test_a_plaintext_client_on_a_tls_listener_is_logged(
        self, start: StartCluster, dial: Dial, caplog: pytest.LogCaptureFixture, tmp_path: Any
    ) -> None:
        listener: Tls = certificates(tmp_path)[0]
        client = dial(start(1, tls=listener))
        client.send(request_frame(MetadataRequest(topics=[]), 1))
        client.wait_for_close()
        (line,) = logged(caplog, logging.WARNING)
        assert line.startswith("a rejected connection: ")

    def test_a_client_that_just_leaves_is_no_warning(
        self, start: StartCluster, dial: Dial, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster = start(1, topics={"t": 1})
        client = dial(cluster)
        client.request(MetadataRequest(topics=[]), 1)
        client.close()
        other = dial(cluster)
        other.request(MetadataRequest(topics=[]), 1)  # the brokers have seen the end of the first by now
        assert logged(caplog, logging.WARNING) == []

    def test_an_error_with_acks_0_is_logged(
        self, start: StartCluster, dial: Dial, caplog: pytest.LogCaptureFixture
    ) -> None:
        client = dial(start(1))
        client.send(request_frame(produce("missing", acks=0), 9))
        client.wait_for_close()
        (line,) = logged(caplog, logging.WARNING)
        assert "client 'raw'" in line
        assert "Produce with acks=0 failed with UNKNOWN_TOPIC_OR_PARTITION" in line

    def test_a_connection_above_the_limit_is_logged(
        self, start: StartCluster, dial: Dial, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster = start(1, max_connections=1)
        dial(cluster).request(MetadataRequest(topics=[]), 1)
        dial(cluster).wait_for_close()
        assert logged(caplog, logging.WARNING) == [
            "broker 1 closes a new connection from 127.0.0.1: max_connections is 1"
        ]


def test_secrets_are_not_logged() -> None:
    frame = request_frame(SaslAuthenticateRequest(auth_bytes=b"\0user\0hunter2"), 2)
    text = "\n".join(diagnostics.describe_frame(frame))
    assert "SaslAuthenticate v2" in text
    assert b"hunter2".hex(" ") not in text
    assert "hunter2" not in text


def produce(topic: str, *, acks: int = -1) -> ProduceRequest:
    data = ProduceRequest.Topic.Partition(index=0, records=GOOD)
    return ProduceRequest(
        acks=acks, timeout_ms=1_000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=[data])]
    )


class TestResources:
    def test_a_full_storage_is_logged_once_until_there_is_space(
        self, start: StartCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster = start(1, topics={"t": 1, "u": 1}, storage_bytes_max=len(GOOD))
        client = Client(cluster.brokers[1])

        def send() -> int:
            response: ProduceResponse = client.request(produce("t"), 9)
            return response.responses[0].partition_responses[0].error_code

        assert [send() for _ in range(3)] == [ErrorCode.NONE, *[ErrorCode.KAFKA_STORAGE_ERROR] * 2]
        size = len(GOOD)
        (line,) = logged(caplog, logging.WARNING)
        assert f"rejects records: its storage is full (storage_bytes_max is {size}, {size} are used): raise" in line
        cluster.delete_topic("t")
        cluster.create_topic("t", 1)
        assert [send() for _ in range(2)] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        assert len(logged(caplog, logging.WARNING)) == 2
        client.close()

    def test_running_out_of_file_descriptors_is_logged(
        self, start: StartCluster, dial: Dial, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster = start(1)
        accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")] * 2

        def accept_later(self: socket.socket) -> Any:
            if failures:
                raise failures.pop()
            return accept(self)

        monkeypatch.setattr(socket.socket, "accept", accept_later)
        dial(cluster).request(MetadataRequest(topics=[]), 1)
        (line,) = logged(caplog, logging.WARNING)
        assert "takes no new connections: [Errno 24] Too many open files: raise the limit" in line

    def test_auto_created_topics_are_logged(
        self, start: StartCluster, dial: Dial, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "kwire.broker")
        dial(start(1, default_partitions=2)).request(MetadataRequest(topics=[MetadataRequest.Topic(name="oders")]), 4)
        assert logged(caplog, logging.INFO) == ["auto-created topic oders, requested by a client; partitions: 2"]


def test_members_of_consumer_groups_are_rejected_with_an_error_and_a_warning_where_these_are_off(
    start: StartCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = start(1, group_version=0)
    client = Client(cluster.brokers[1])
    remedy = "use group.protocol=classic"
    for _ in range(2):
        response = client.request(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0))
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert remedy in response.error_message
    (line,) = logged(caplog, logging.WARNING)
    assert line.startswith("broker 1 rejects client 'kwire' at 127.0.0.1 as a member of group g: ")
    assert remedy in line
    client.close()
