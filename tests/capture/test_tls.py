"""TLS connections of a capture, decrypted by the key log that Python's own TLS wrote."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from kwire.capture import KeyLog, Remark, read_exchanges
from kwire.capture.tls import NO_HANDSHAKE, NO_SECRETS, expand_label, prf
from kwire.errors import ConfigurationError
from kwire.lint import lint_file
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.capture.captures import BROKER, CLIENT, Talk, pcap, timed
from tests.capture.samples import request, response, sized
from tests.cli.running import run

TLS13, TLS12 = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2
TOPICS = [f"topic-{number}" for number in range(3000)]  # more than a record of TLS has room for


class Wire:
    """A TLS connection without sockets: Python's ssl on both sides, and the packets between them."""

    def __init__(self, folder: Path, version: ssl.TLSVersion, ciphers: str | None, *, keeps_keys: bool = True) -> None:
        authority = trustme.CA()
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.issue_cert("broker").configure_cert(server)
        authority.configure_trust(client)
        self.key_log = folder / "keys.log"
        self.key_log.touch()
        if keeps_keys:
            client.keylog_filename = str(self.key_log)
        for context in (server, client):
            context.minimum_version = context.maximum_version = version
            if ciphers is not None:
                context.set_ciphers(ciphers)
        self.talk = Talk(segment_bytes=1400).opened()
        self._incoming = [ssl.MemoryBIO(), ssl.MemoryBIO()]
        self._outgoing = [ssl.MemoryBIO(), ssl.MemoryBIO()]
        self.sides = [
            client.wrap_bio(self._incoming[CLIENT], self._outgoing[CLIENT], server_hostname="broker"),
            server.wrap_bio(self._incoming[BROKER], self._outgoing[BROKER], server_side=True),
        ]
        done = {CLIENT: False, BROKER: False}
        while not all(done.values()):
            for side in (CLIENT, BROKER):
                try:
                    self.sides[side].do_handshake()
                    done[side] = True
                except ssl.SSLWantReadError:
                    pass
                self._carry(side)

    def send(self, side: int, data: bytes) -> None:
        self.sides[side].write(data)
        self._carry(side)
        left = len(data)
        while left:
            left -= len(self.sides[1 - side].read(left))

    def _carry(self, side: int) -> None:
        if data := self._outgoing[side].read():
            self.talk.send(side, data)
            self._incoming[1 - side].write(data)

    def written(self, folder: Path, packets: list[bytes] | None = None) -> str:
        path = folder / "tls.pcap"
        path.write_bytes(pcap(timed(self.talk.packets if packets is None else packets)))
        return str(path)


def converse(wire: Wire) -> None:
    """Ask for the versions, then for topics whose response has several records of TLS."""
    wire.send(CLIENT, sized(request(ApiVersionsRequest(), 0, 1)))
    wire.send(BROKER, sized(response(ApiVersionsResponse(error_code=0, api_keys=[]), 0, 1)))
    topics = [MetadataResponse.Topic(error_code=0, name=name, partitions=[]) for name in TOPICS]
    wire.send(CLIENT, sized(request(MetadataRequest(topics=None), 1, 2)))
    wire.send(BROKER, sized(response(MetadataResponse(brokers=[], controller_id=1, topics=topics), 1, 2)))


@pytest.mark.parametrize(
    ("version", "ciphers", "used"),
    [
        (TLS13, None, "TLS_AES_256_GCM_SHA384"),
        (TLS12, "ECDHE+AESGCM+AES256", None),
        (TLS12, "ECDHE+AESGCM+AES128", None),
        (TLS12, "ECDHE+CHACHA20", None),
    ],
)
def test_a_conversation_is_read(tmp_path: Path, version: ssl.TLSVersion, ciphers: str | None, used: str | None) -> None:
    wire = Wire(tmp_path, version, ciphers)
    found = wire.sides[CLIENT].cipher()
    assert found is not None
    assert used in (None, found[0])
    converse(wire)
    remarks: list[Remark] = []
    capture = wire.written(tmp_path)
    exchanges = list(read_exchanges(capture, key_log=KeyLog(wire.key_log), on_remark=remarks.append))
    assert [one.api_name for one in exchanges] == ["ApiVersions", "Metadata"]
    assert [topic["name"] for topic in exchanges[1].response.message["topics"]] == TOPICS  # type: ignore[union-attr,index]
    assert all(one.connection.is_tls for one in exchanges)
    assert remarks == []


@pytest.mark.parametrize("version", [TLS13, TLS12])
def test_a_packet_that_the_capture_lacks(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """The records after it are found by their headers, and numbered by their authentication tags."""
    wire = Wire(tmp_path, version, None)
    converse(wire)
    lost = len(wire.talk.packets) - 20  # within the response about topics
    for correlation_id in range(3, 8):
        wire.send(CLIENT, sized(request(ApiVersionsRequest(), 0, correlation_id)))
        wire.send(BROKER, sized(response(ApiVersionsResponse(error_code=0, api_keys=[]), 0, correlation_id)))
    packets = wire.talk.packets[:lost] + wire.talk.packets[lost + 1 :]
    exchanges = list(read_exchanges(wire.written(tmp_path, packets), key_log=KeyLog(wire.key_log)))
    assert [one.api_name for one in exchanges if one.response is not None and not one.problems][-5:] == (
        ["ApiVersions"] * 5
    )


def test_why_a_connection_is_not_read(tmp_path: Path) -> None:
    def remarks_on(capture: str, key_log: KeyLog | None) -> str:
        remarks: list[Remark] = []
        assert not list(read_exchanges(capture, key_log=key_log, on_remark=remarks.append))
        return " ".join(one.text for one in remarks)

    wire = Wire(tmp_path, TLS13, None)
    converse(wire)
    capture = wire.written(tmp_path)
    others = tmp_path / "others.log"
    others.write_text(f"# made by another program\nCLIENT_RANDOM {'00' * 32} {'11' * 48}\n")
    assert "give the key log of a side (--keylog)" in remarks_on(capture, None)
    assert NO_SECRETS in remarks_on(capture, KeyLog(others))
    asked = len(wire.talk.packets)
    wire.send(CLIENT, sized(request(ApiVersionsRequest(), 0, 3)))
    late = wire.written(tmp_path, wire.talk.packets[asked:])
    assert NO_HANDSHAKE in remarks_on(late, KeyLog(wire.key_log))
    cbc = Wire(tmp_path, TLS12, "ECDHE-ECDSA-AES128-SHA256")
    converse(cbc)
    assert "the cipher suite 0xc023" in remarks_on(cbc.written(tmp_path), KeyLog(cbc.key_log))


def test_a_key_log_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "keys.log"
    path.write_text("")
    keys = KeyLog(path)
    assert keys.find("CLIENT_RANDOM", b"\1" * 32) is None
    with path.open("a") as file:
        file.write(f"CLIENT_RANDOM {'01' * 32} {'02' * 48}\nCLIENT_RANDOM {'03' * 32} 04")
    assert keys.find("CLIENT_RANDOM", b"\1" * 32) == b"\2" * 48
    assert keys.find("CLIENT_RANDOM", b"\3" * 32) is None  # half a line


def test_what_is_no_key_log(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are three\nwords and more words\n")
    with pytest.raises(ConfigurationError, match=r"notes\.txt is not a key log"):
        KeyLog(path)
    with pytest.raises(ConfigurationError, match=r"nowhere\.log cannot be read: No such file"):
        KeyLog(tmp_path / "nowhere.log")


def test_known_answers() -> None:
    """RFC 8448, 3: the server's handshake keys. The PRF's vector is the one that its designers published."""
    secret = bytes.fromhex("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38")
    assert expand_label("sha256", secret, "key", 16).hex() == "3fce516009c21727d0f2e4e86ee403bc"
    assert expand_label("sha256", secret, "iv", 12).hex() == "5d313eb2671276ee13000b30"
    seed = b"test label" + bytes.fromhex("a0ba9f936cda311827a6f796ffd5198c")
    found = prf("sha256", bytes.fromhex("9bbe436ba940f017b17652849a71db35"), seed, 100)
    assert found.hex().startswith("e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a")


def test_the_commands_take_a_key_log(tmp_path: Path) -> None:
    wire = Wire(tmp_path, TLS13, None)
    converse(wire)
    capture, keys = wire.written(tmp_path), ("--keylog", str(wire.key_log))
    assert [line["api"] for line in run("decode", capture, *keys).lines()] == ["ApiVersions", "Metadata"]
    assert {line["api"] for line in run("stats", capture, *keys, "--json").lines()} == {"ApiVersions", "Metadata"}
    assert run("diff", capture, capture, *keys).code == 0
    assert "2 exchanges" in run("lint", capture, *keys, "-f", "table").stdout
    assert "2 exchanges of 1 connection," in run("timeline", capture, *keys, "--ascii").stdout
    missing = run("decode", capture, "--keylog", str(tmp_path / "nowhere"))
    assert (missing.code, "cannot be read" in missing.stderr) == (2, True)


def test_a_password_within_tls_is_not_in_clear(tmp_path: Path) -> None:
    wire = Wire(tmp_path, TLS13, None)
    wire.send(CLIENT, sized(request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1)))
    wire.send(BROKER, sized(response(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 1, 1)))
    report = lint_file(wire.written(tmp_path), key_log=KeyLog(wire.key_log))
    assert report.exchanges == 1
    assert "S02" not in {one.rule.id for one in report.findings}
