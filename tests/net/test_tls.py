"""Test TLS in the selector: client and server, server and mutual authentication, and frequent mistakes."""

from __future__ import annotations

import contextlib
import datetime
import re
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

import kwire.aio
import kwire.broker
from kwire.errors import ConfigurationError, DisconnectedError, NodeError, NotKafkaError, TlsError
from kwire.net import KafkaSelector, Receive, Tls, VirtualClock
from kwire.net.tls_filter import TlsFilter
from tests.net.harness import Driver, Peer, closed_port, drive, framed, joined, running

LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Files:
    """Hold certificates of one authority, and one that it did not sign."""

    ca: str
    stranger_ca: str
    server: tuple[str, str]
    wrong_host: tuple[str, str]
    expired: tuple[str, str]
    client: tuple[str, str]
    stranger: tuple[str, str]

    def broker(self, name: str = "server", *, wants_client: bool = False) -> Tls:
        cert, key = getattr(self, name)
        return Tls(cert_file=cert, key_file=key, ca_file=self.ca if wants_client else None)

    def trusting(self, client: str | None = None, **options: Any) -> Tls:
        cert, key = getattr(self, client) if client else (None, None)
        return Tls(ca_file=self.ca, cert_file=cert, key_file=key, **options)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = trustme.CA(), trustme.CA()

    def write(name: str, certificate: trustme.LeafCert) -> tuple[str, str]:
        cert, key = folder / f"{name}.pem", folder / f"{name}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        key.write_bytes(certificate.private_key_pem.bytes())
        return str(cert), str(key)

    authority.cert_pem.write_to_path(folder / "ca.pem")
    stranger.cert_pem.write_to_path(folder / "stranger-ca.pem")
    return Files(
        ca=str(folder / "ca.pem"),
        stranger_ca=str(folder / "stranger-ca.pem"),
        server=write("server", authority.issue_cert("127.0.0.1", "localhost", "broker.example")),
        wrong_host=write("wrong-host", authority.issue_cert("other.example", "10.1.2.3")),
        expired=write(
            "expired", authority.issue_cert("127.0.0.1", not_before=LONG_AGO, not_after=LONG_AGO.replace(year=2021))
        ),
        client=write("client", authority.issue_cert("alice@example.org")),
        stranger=write("stranger", stranger.issue_cert("mallory@example.org", "127.0.0.1")),
    )


@pytest.fixture
def pair() -> Iterator[tuple[Driver, Driver]]:
    client, broker = Driver(), Driver()
    yield client, broker
    client.close()
    broker.close()


def talk(client: Driver, broker: Driver, node: Any = 1) -> None:
    """Send small and large frames both ways on an open connection."""
    frames = [b"small", b"", bytes(range(256)) * 4000, b"last"]
    client.poll([(node, frame) for frame in frames])
    drive(lambda: len(broker.received) == len(frames), client, broker)
    assert [receive.frame for receive in broker.received] == frames
    assert [sent.frame for sent in client.sent] == frames
    broker.poll([(broker.accepted[0], [frame, b"!"]) for frame in frames])
    drive(lambda: len(client.received) == len(frames), client, broker)
    assert client.received == [Receive(node, frame + b"!") for frame in frames]


class TestOpenConnections:
    def test_server_authenticated(self, files: Files, pair: tuple[Driver, Driver]) -> None:
        client, broker = pair
        address = broker.selector.listen("127.0.0.1", 0, tls=files.broker())
        client.selector.connect(1, *address, tls=files.trusting())
        drive(lambda: bool(client.connected and broker.accepted), client, broker)
        talk(client, broker)

    def test_mutual(self, files: Files, pair: tuple[Driver, Driver]) -> None:
        client, broker = pair
        address = broker.selector.listen("127.0.0.1", 0, tls=files.broker(wants_client=True))
        client.selector.connect(1, *address, tls=files.trusting("client"))
        drive(lambda: bool(client.connected and broker.accepted), client, broker)
        talk(client, broker)

    @pytest.mark.parametrize(
        "options",
        [{"server_name": "broker.example"}, {"check_hostname": False}, {"verify": False}],
        ids=["server_name", "no host check", "no check at all"],
    )
    def test_by_another_name(self, files: Files, pair: tuple[Driver, Driver], options: dict[str, Any]) -> None:
        client, broker = pair
        certificate = "server" if "server_name" in options else "wrong_host"
        address = broker.selector.listen("127.0.0.1", 0, tls=files.broker(certificate))
        client.selector.connect(1, *address, tls=files.trusting(**options))
        drive(lambda: bool(client.connected and broker.accepted), client, broker)
        talk(client, broker)

    def test_plaintext_and_tls_side_by_side(self, files: Files) -> None:
        client, broker = Driver(tls=files.trusting()), Driver()
        try:
            secure = broker.selector.listen("127.0.0.1", 0, tls=files.broker())
            plain = broker.selector.listen("127.0.0.1", 0)
            client.selector.connect("secure", *secure)
            client.selector.connect("plain", *plain, tls=False)
            client.poll([("secure", b"waits for the handshake"), ("plain", b"does not")])
            drive(lambda: len(broker.received) == 2, client, broker)
            assert {broker.selector.sockname(node): frame for node, frame in broker.received} == {
                secure: b"waits for the handshake",
                plain: b"does not",
            }
        finally:
            client.close()
            broker.close()

    def test_a_close_notify_is_not_a_truncation(self, files: Files, pair: tuple[Driver, Driver]) -> None:
        client, broker = pair
        address = broker.selector.listen("127.0.0.1", 0, tls=files.broker())
        client.selector.connect(1, *address, tls=files.trusting())
        drive(lambda: bool(client.connected and broker.accepted), client, broker)
        talk(client, broker)
        broker.selector.disconnect(broker.accepted[0])
        cause = client.cause(1)
        assert type(cause) is DisconnectedError
        assert "the peer closed the connection" in cause.message

    def test_a_close_notify_ends_the_connection_although_the_socket_stays_open(self, files: Files) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*files.server)
        over = threading.Event()

        def serve(peer: Peer) -> None:
            with context.wrap_socket(peer.accept(), server_side=True) as sock:
                sock.sendall(framed(b"last words"))
                sock.setblocking(False)
                with contextlib.suppress(ssl.SSLWantReadError):
                    sock.unwrap()
                assert over.wait(20)

        with running() as (driver, peer):
            server = threading.Thread(target=serve, args=(peer,))
            server.start()
            driver.connect(1, peer.address, tls=files.trusting())
            cause = driver.cause(1)
            over.set()
            server.join()
            assert type(cause) is DisconnectedError
            assert driver.frames(1) == [b"last words"]

    def test_against_a_plain_ssl_socket_that_trickles(self, files: Files) -> None:
        """The peer is another implementation (ssl.SSLSocket) that sends TLS records of one byte."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*files.server)

        def serve(peer: Peer, got: list[bytes]) -> None:
            with context.wrap_socket(peer.accept(), server_side=True) as sock:
                got.append(sock.recv(100))
                for byte in framed(b"slow", b"trickle"):
                    sock.send(bytes([byte]))
                sock.sendall(framed(bytes(3_000_000)))
                got.append(sock.recv(1))

        got: list[bytes] = []
        with running() as (driver, peer):
            server = threading.Thread(target=serve, args=(peer, got))
            server.start()
            driver.connect(1, peer.address, tls=files.trusting())
            driver.poll([(1, b"hello")])
            drive(lambda: len(driver.received) == 3, driver)
            driver.selector.disconnect(1)
            server.join()
            assert driver.frames(1) == [b"slow", b"trickle", bytes(3_000_000)]
            assert got == [framed(b"hello"), b""]

    def test_a_peer_that_does_not_read_blocks_only_the_writes(self, files: Files, pair: tuple[Driver, Driver]) -> None:
        client, broker = pair
        address = broker.selector.listen("127.0.0.1", 0, tls=files.broker())
        client.selector.connect(1, *address, tls=files.trusting())
        drive(lambda: bool(client.connected and broker.accepted), client, broker)
        node = broker.accepted[0]
        broker.selector.pause(node)
        frames = [bytes([n]) * 1_000_000 for n in range(15)]
        client.poll([(1, frame) for frame in frames])
        broker.poll([(node, b"still heard")])
        drive(lambda: bool(client.received), client, broker)
        assert client.selector.bytes_queued(1) > 0
        broker.selector.resume(node)
        drive(lambda: len(broker.received) == len(frames), client, broker)
        assert [receive.frame for receive in broker.received] == frames


WRONG_CERTIFICATES = [
    ("expired", {}, "the broker's certificate has expired", "renew it"),
    ("wrong_host", {}, "the broker's certificate is for another address", "set server_name"),
    ("server", {"server_name": "not.example"}, "the broker's certificate is for another host", "set server_name"),
    ("stranger", {}, "is signed by an authority that is not trusted", "as ca_file"),
]


@pytest.mark.parametrize(("certificate", "options", "message", "remedy"), WRONG_CERTIFICATES)
def test_certificates_that_the_client_refuses(
    files: Files, pair: tuple[Driver, Driver], certificate: str, options: dict[str, Any], message: str, remedy: str
) -> None:
    client, broker = pair
    address = broker.selector.listen("127.0.0.1", 0, tls=files.broker(certificate))
    client.selector.connect(1, *address, tls=files.trusting(**options))
    drive(lambda: bool(client.disconnected and broker.rejected), client, broker)
    cause = client.disconnected[0].cause
    assert type(cause) is TlsError
    assert message in cause.message
    assert remedy in str(cause.remedy)
    assert cause.where["broker"] == f"1 at 127.0.0.1:{address[1]}"
    assert client.selector.next_attempt_at(1) > 0
    refused = broker.rejected[0].cause  # the alert says why
    assert isinstance(refused, TlsError)
    assert (broker.accepted, broker.disconnected) == ([], [])


@pytest.mark.parametrize(
    ("shown", "client_error", "broker_error"),
    [
        (None, "it demands a client certificate", "the peer showed no certificate"),
        ("stranger", "it does not trust our certificate's authority", "the client's certificate is signed by an auth"),
    ],
)
def test_certificates_that_the_broker_refuses(
    files: Files, pair: tuple[Driver, Driver], shown: str | None, client_error: str, broker_error: str
) -> None:
    """With TLS 1.3 the client is connected before the broker has checked its certificate.

    The broker rejects it by an alert on the open connection, and the error must still say so.
    """
    client, broker = pair
    address = broker.selector.listen("127.0.0.1", 0, tls=files.broker(wants_client=True))
    client.selector.connect(1, *address, tls=files.trusting(shown))
    drive(lambda: bool(client.disconnected and broker.rejected), client, broker)
    cause = client.disconnected[0].cause
    assert type(cause) is TlsError
    assert client_error in cause.message
    assert cause.remedy
    assert broker_error in broker.rejected[0].cause.message


class TestPeersWithoutTls:
    @pytest.mark.parametrize(
        ("response", "kind", "message"),
        [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", NotKafkaError, "the peer speaks HTTP: 'HTTP/1.1 400"),
            (framed(b"kafka, but plain"), TlsError, "the broker does not speak TLS on this port"),
            (b"\xff" * 10, TlsError, "the broker does not speak TLS on this port"),
            (b"", TlsError, "closed the connection during the TLS handshake"),
            (b"\x15\x03\x03\0\2\2\x46", TlsError, "it speaks no TLS version that we do"),
            (b"\x16\x03\x03\x00\x04junk", TlsError, "TLS failed"),
        ],
    )
    def test_a_broker(self, files: Files, response: bytes, kind: type[NodeError], message: str) -> None:
        with running() as (driver, peer):
            driver.selector.connect(1, *peer.address, tls=files.trusting())
            driver.poll()
            sock = peer.accept()
            drive(lambda: _has(sock), driver)
            sock.sendall(response)
            sock.shutdown(socket.SHUT_WR)
            cause = driver.cause(1)
            assert type(cause) is kind
            assert message in cause.message
            assert cause.remedy

    def test_a_silent_broker(self, files: Files) -> None:
        clock = VirtualClock(1000.0)
        with running(clock=clock, connect_timeout_ms=5000) as (driver, peer):
            driver.selector.connect(1, *peer.address, tls=files.trusting())
            driver.poll()
            sock = peer.accept()
            drive(lambda: _has(sock), driver)
            clock.advance(4.9)
            driver.poll()
            assert driver.disconnected == []
            clock.advance(0.2)
            cause = driver.cause(1)
            assert type(cause) is TlsError
            assert "did not respond to the TLS handshake" in cause.message

    @pytest.mark.parametrize(
        ("hello", "kind", "message"),
        [
            (framed(b"\0\x12\0\3\0\0\0\0\0\4test"), TlsError, "the client does not speak TLS"),
            (b"GET / HTTP/1.1\r\n\r\n", NotKafkaError, "the peer is an HTTP client"),
            (b"", TlsError, "the client closed the connection during the TLS handshake"),
        ],
    )
    def test_a_client(self, files: Files, hello: bytes, kind: type[NodeError], message: str) -> None:
        broker = Driver()
        try:
            address = broker.selector.listen("127.0.0.1", 0, tls=files.broker())
            with socket.create_connection(address, 5) as sock:
                sock.sendall(hello)
                sock.shutdown(socket.SHUT_WR)
                drive(lambda: bool(broker.rejected), broker)
            assert type(broker.rejected[0].cause) is kind
            assert message in broker.rejected[0].cause.message
            assert broker.accepted == []
        finally:
            broker.close()

    def test_a_handshake_that_was_answered_before_a_late_poll(self, files: Files) -> None:
        clock, broker = VirtualClock(1000.0), Driver()
        client = Driver(clock=clock, connect_timeout_ms=5000)
        try:
            address = broker.selector.listen("127.0.0.1", 0, tls=files.broker())
            client.selector.connect(1, *address, tls=files.trusting())
            drive(lambda: bool(client.selector._nodes), client)
            (channel,) = client.selector._nodes
            drive(lambda: _has(channel._sock), broker)
            clock.advance(6.0)
            client.poll()
            assert (client.connected, client.disconnected) == ([1], [])
        finally:
            client.close()
            broker.close()

    def test_a_silent_client(self, files: Files) -> None:
        clock = VirtualClock(1000.0)
        broker = Driver(clock=clock, connect_timeout_ms=5000)
        try:
            address = broker.selector.listen("127.0.0.1", 0, tls=files.broker())
            with socket.create_connection(address, 5):
                drive(lambda: len(broker.selector.nodes) == 1, broker)
                clock.advance(5.1)
                drive(lambda: bool(broker.rejected), broker)
            assert "not finished in time" in broker.rejected[0].cause.message
        finally:
            broker.close()

    def test_a_client_with_tls_on_a_plaintext_listener(self, files: Files, pair: tuple[Driver, Driver]) -> None:
        client, broker = pair
        address = broker.selector.listen("127.0.0.1", 0)
        client.selector.connect(1, *address, tls=files.trusting())
        drive(lambda: bool(client.disconnected and broker.disconnected), client, broker)
        assert "speaks TLS (it sent a handshake)" in broker.disconnected[0].cause.message
        assert "closed the connection during the TLS handshake" in client.disconnected[0].cause.message

    def test_a_client_without_tls_on_a_tls_listener(self, files: Files, pair: tuple[Driver, Driver]) -> None:
        client, broker = pair
        address = broker.selector.listen("127.0.0.1", 0, tls=files.broker())
        client.selector.connect(1, *address)
        client.poll([(1, b"a request")])
        drive(lambda: bool(client.disconnected and broker.rejected), client, broker)
        assert "the client does not speak TLS" in broker.rejected[0].cause.message
        cause = client.disconnected[0].cause
        assert type(cause) is NotKafkaError
        assert "speaks TLS (it sent an alert)" in cause.message

    def test_a_broker_that_sends_an_alert_to_a_client_without_tls(self) -> None:
        with joined() as (driver, sock):
            sock.sendall(b"\x15\x03\x03\x00\x02\x02\x50")
            cause = driver.cause(1)
            assert type(cause) is NotKafkaError
            assert "speaks TLS (it sent an alert), and this connection is plaintext" in cause.message
            assert "turn TLS on" in str(cause.remedy)

    @pytest.mark.parametrize("name", [".bad", "a\0b", "a" * 300])
    def test_a_host_name_that_tls_cannot_send(self, files: Files, name: str) -> None:
        with running() as (driver, peer):
            driver.selector.connect(1, *peer.address, tls=files.trusting(server_name=name))
            assert "no valid TLS server name" in driver.cause(1).message

    def test_a_closed_port(self, files: Files) -> None:
        driver = Driver()
        try:
            driver.selector.connect(1, *closed_port(), tls=files.trusting())
            assert "Connection refused" in driver.cause(1).message
        finally:
            driver.close()

    def test_a_web_server_behind_tls(self, files: Files) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*files.server)

        def serve(peer: Peer) -> None:
            with context.wrap_socket(peer.accept(), server_side=True) as sock:
                sock.recv(100)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        with running() as (driver, peer):
            server = threading.Thread(target=serve, args=(peer,))
            server.start()
            driver.connect(1, peer.address, tls=files.trusting())
            driver.poll([(1, b"hello")])
            cause = driver.cause(1)
            server.join()
            assert type(cause) is NotKafkaError
            assert "speaks HTTP" in cause.message


@pytest.mark.parametrize("piece", [1, 7, 10**6])
def test_the_filter_alone_however_the_bytes_are_cut(files: Files, piece: int) -> None:
    """Two filters exchange byte strings, cut into pieces, without sockets."""
    client = TlsFilter(files.trusting().client_context(), is_server=False, host="127.0.0.1")
    server = TlsFilter(files.broker().server_context(), is_server=True)
    client.handshake()
    received: list[bytes] = []

    def carry() -> None:
        while True:
            up, down = client.sealed(), server.sealed()
            if not up and not down:
                return
            for start in range(0, len(up), piece):
                received.extend(server.decrypt(up[start : start + piece]))
            for start in range(0, len(down), piece):
                received.extend(client.decrypt(down[start : start + piece]))

    carry()
    assert client.is_established
    assert server.is_established
    assert client.encrypt(b"up") == 2
    carry()
    assert server.encrypt(b"down") == 4
    carry()
    assert received == [b"up", b"down"]


def _has(sock: socket.socket) -> bool:
    """Return whether there are bytes to read."""
    return bool(select.select([sock], [], [], 0)[0])


def test_the_encrypted_key_needs_its_password(files: Files, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    cert, key = files.server
    private = serialization.load_pem_private_key(Path(key).read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"open"),
        )
    )
    Tls(cert_file=cert, key_file=str(locked), key_password="open").server_context()
    for wrong, message in [
        (None, f"the private key in key_file '{locked}' is encrypted: give key_password"),
        ("shut", f"key_password does not open the private key in key_file '{locked}': check the password"),
        ("x" * 2_000, "key_password does not open"),
    ]:
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            Tls(cert_file=cert, key_file=str(locked), key_password=wrong).server_context()


def test_a_file_that_is_wrong_is_named(files: Files, tmp_path: Path) -> None:
    cert, key = files.server
    broken = tmp_path / "broken.key"
    broken.write_bytes(Path(key).read_bytes()[:100])
    for tls, message in [
        (Tls(cert_file=cert, key_file=str(broken)), f"key_file '{broken}' holds no private key in PEM form"),
        (Tls(cert_file=cert, key_file=cert), f"key_file '{cert}' holds no private key in PEM form"),
        (Tls(cert_file=cert), f"cert_file '{cert}' has no private key in it: give its key_file"),
        (Tls(cert_file=key, key_file=key), f"cert_file '{key}' holds no certificate in PEM form"),
        (Tls(cert_file=cert, key_file=files.client[1]),
         f"the private key in key_file '{files.client[1]}' is not that of the certificate in cert_file '{cert}'"),
    ]:  # fmt: skip
        for load in (tls.client_context, tls.server_context):
            with pytest.raises(ConfigurationError, match=re.escape(message)):
                load()


@pytest.mark.parametrize(
    "make",
    [
        lambda tls: kwire.Producer("localhost", tls=tls),
        lambda tls: kwire.Consumer("localhost", tls=tls),
        lambda tls: kwire.Admin("localhost", tls=tls),
        lambda tls: kwire.aio.Producer("localhost", tls=tls),
        lambda tls: KafkaSelector(tls=tls),
        lambda tls: kwire.broker.Cluster(1, tls=tls),
    ],
    ids=["producer", "consumer", "admin", "aio producer", "selector", "embedded broker"],
)
def test_every_constructor_refuses_a_file_that_is_not_there(make: Callable[[Tls], object]) -> None:
    with pytest.raises(ConfigurationError, match="cannot read cert_file '/nope': No such file or directory: check"):
        make(Tls(cert_file="/nope"))
