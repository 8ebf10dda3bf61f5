"""Test that each frequent mistake raises in time a typed error that names the cause and the remedy, on real sockets.

The error is the one that a user of `kwire.Producer` sees, or its cause.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from brokers.cluster import KafkaCluster

from kwire import Admin, Consumer, Producer, Tls
from kwire.errors import (
    ConnectError,
    DeliveryError,
    DisconnectedError,
    KwireError,
    NodeError,
    NotKafkaError,
    RecordTooLargeError,
    RequestTimeoutError,
    ResolveError,
    TlsError,
    TopicError,
    UnsupportedVersionError,
)
from tests.live.backends import OLDEST, Backend

# The time until the error. The delivery timeout is DELIVERY_MS; an error that may pass comes only then.
SECONDS_MAX = 15.0
DELIVERY_MS = 2_000

Answer = Callable[[socket.socket], None]


@contextmanager
def server(response: Answer) -> Iterator[str]:
    """Yield the address of a port that passes every connection to `answer` and then closes it."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def talk(connection: socket.socket) -> None:
        with connection:
            try:
                response(connection)
            except OSError:
                return  # the client disconnected first

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=talk, args=(connection,))
            thread.start()
            threads.append(thread)

    accepting = threading.Thread(target=accept)
    accepting.start()
    host, port = listener.getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for thread in threads:
            thread.join()


def http(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def mid_frame(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(struct.pack(">i", 100) + bytes(40))


def endless_frame(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(struct.pack(">i", 2**31 - 1))
    connection.recv(65_536)


def negative_size(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(struct.pack(">i", -1))
    connection.recv(65_536)


def at_once(connection: socket.socket) -> None:
    connection.recv(65_536)


def silent(connection: socket.socket) -> None:
    while connection.recv(65_536):
        pass


def failure(bootstrap: str, topic: str = "nowhere", value: bytes = b"never", **options: Any) -> KwireError:
    """Return the cause of a failed delivery, which must come in time."""
    start = time.monotonic()
    options = {"delivery_timeout_ms": DELIVERY_MS, **options}
    with Producer(bootstrap, **options) as producer, pytest.raises(KwireError) as caught:
        producer.send(topic, value).result(timeout=SECONDS_MAX)
    assert time.monotonic() - start < SECONDS_MAX
    error = caught.value
    while isinstance(error, DeliveryError) and isinstance(error.__cause__, KwireError):
        error = error.__cause__
    return error


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "127.0.0.1:{1}".format(*listener.getsockname())


@pytest.mark.parametrize(
    ("bootstrap", "kind", "says"),
    [
        ("no-such-host.invalid:9092", ResolveError, "no-such-host.invalid"),
        (closed_port(), ConnectError, "refused"),
    ],
    ids=["wrong host", "closed port"],
)
def test_address_without_a_listener(bootstrap: str, kind: type[NodeError], says: str) -> None:
    error = failure(bootstrap)
    assert isinstance(error, kind)
    assert says in str(error)
    assert error.remedy


@pytest.mark.parametrize(
    ("response", "kind", "says"),
    [
        (http, NotKafkaError, "HTTP"),
        (endless_frame, NotKafkaError, "2,147,483,647"),
        (negative_size, NotKafkaError, "-1"),
        (mid_frame, DisconnectedError, "of 100"),
        (at_once, DisconnectedError, "closed"),
    ],
)
def test_port_of_another_service(response: Answer, kind: type[NodeError], says: str) -> None:
    with server(response) as bootstrap:
        error = failure(bootstrap)
    assert isinstance(error, kind), repr(error)
    assert says in str(error)
    assert error.remedy


def test_port_that_never_responds() -> None:
    with server(silent) as bootstrap:
        error = failure(bootstrap, request_timeout_ms=1_000)
    assert isinstance(error, RequestTimeoutError)
    assert "1,000 ms" in str(error)
    assert error.remedy


def test_plaintext_client_on_a_tls_port(secure: KafkaCluster) -> None:
    error = failure(secure.addresses("tls"))
    assert isinstance(error, NotKafkaError)
    assert "TLS" in str(error)
    assert error.remedy


def test_tls_client_on_a_plaintext_port(secure: KafkaCluster) -> None:
    assert secure.certificates is not None
    error = failure(secure.bootstrap, tls=Tls(ca_file=str(secure.certificates.ca_file)))
    assert isinstance(error, TlsError)
    assert error.remedy


def test_client_without_credentials_on_a_sasl_port(secure: KafkaCluster) -> None:
    error = failure(secure.addresses("sasl"))
    assert isinstance(error, NodeError)
    assert error.remedy


def test_unknown_topic_without_automatic_creation(secure: KafkaCluster, topic_name: str) -> None:
    error = failure(secure.bootstrap, topic_name, unknown_topic_timeout_ms=1_000)
    assert isinstance(error, TopicError)
    assert topic_name in str(error)
    assert error.remedy
    with Consumer(secure.bootstrap, unknown_topic_timeout_ms=1_000) as consumer:
        consumer.assign([(topic_name, 0, "earliest")])
        with pytest.raises(TopicError, match=topic_name):
            consumer.poll(timeout=SECONDS_MAX)


@pytest.mark.parametrize("name", ["with a blank", "x" * 256, ".."])
def test_invalid_topic_name(backend: Backend, name: str) -> None:
    error = failure(backend.bootstrap, name)
    assert isinstance(error, TopicError)
    assert error.remedy


def test_partition_that_the_topic_lacks(backend: Backend, make_topic: Callable[[int], str]) -> None:
    topic = make_topic(2)
    with (
        Producer(backend.bootstrap, unknown_topic_timeout_ms=1_000) as producer,
        pytest.raises(TopicError, match="2 partitions"),
    ):
        producer.send(topic, b"x", partition=2).result(timeout=SECONDS_MAX)


def test_record_too_large_for_the_client(backend: Backend, topic_name: str) -> None:
    with Producer(backend.bootstrap) as producer, pytest.raises(RecordTooLargeError) as caught:
        producer.send(topic_name, bytes(2_000_000))
    assert "max_request_bytes" in str(caught.value)
    assert caught.value.where["topic"] == topic_name


def test_record_too_large_for_the_broker(backend: Backend, make_topic: Callable[[int], str]) -> None:
    """The broker rejects the record: only this record fails, and the next ones are delivered."""
    topic = make_topic(1)
    with Producer(backend.bootstrap, max_request_bytes=4_000_000, linger_ms=0) as producer:
        before = producer.send(topic, b"before", partition=0)
        too_large = producer.send(topic, bytes(2_000_000), partition=0)
        after = producer.send(topic, b"after", partition=0)
        with pytest.raises(KwireError) as caught:
            too_large.result(timeout=SECONDS_MAX)
        error = caught.value
        if isinstance(error, DeliveryError) and isinstance(error.__cause__, KwireError):
            error = error.__cause__
        assert isinstance(error, RecordTooLargeError)
        assert "max.message.bytes" in str(error)
        assert (before.result(timeout=30).offset, after.result(timeout=30).offset) == (0, 1)


@pytest.mark.parametrize("backend", [OLDEST], indirect=True)
def test_codec_that_an_old_broker_does_not_support(backend: Backend, make_topic: Callable[[int], str]) -> None:
    error = failure(backend.bootstrap, make_topic(1), compression="zstd")
    assert isinstance(error, UnsupportedVersionError)
    assert "zstd" in str(error).lower()
    assert error.remedy


def test_admin_and_consumer_time_out_too() -> None:
    address = closed_port()
    start = time.monotonic()
    with Admin(address) as admin, pytest.raises(KwireError, match="refused"):
        admin.describe_cluster(timeout=1)
    with Consumer(address) as consumer:
        consumer.assign([("nowhere", 0, "earliest")])
        with pytest.raises(KwireError, match="refused"):
            consumer.end_offsets([("nowhere", 0)], timeout=1)
    assert time.monotonic() - start < SECONDS_MAX
