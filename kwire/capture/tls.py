"""TLS connections of a capture, decrypted by a key log: the file that programs write if SSLKEYLOGFILE is set.

TLS 1.3 and 1.2, with AES-GCM and ChaCha20-Poly1305. A connection can be read if its handshake is in the capture, and
its secrets are in the key log (the NSS format, which OpenSSL, Java's agents, Go, Python and curl write). Where the
capture lacks bytes, the next record is found by its header and by its authentication tag.

What is done: RFC 8446 (5.2 records, 7.1 and 7.2 keys, 7.3 traffic keys), RFC 5246 (5, 6.3), RFC 5288, RFC 7905. The
ciphers are those of the package cryptography, the extra `tls`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kwire.capture.tcp import Event, Gap, StreamData
from kwire.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

_HEADER = Struct(">BHH")
_CHANGE_CIPHER_SPEC, _ALERT, _HANDSHAKE, _APPLICATION_DATA = 20, 21, 22, 23
_CLIENT_HELLO, _SERVER_HELLO, _FINISHED, _KEY_UPDATE = 1, 2, 20, 24
_TLS12, _TLS13 = 0x0303, 0x0304
_SUPPORTED_VERSIONS = 43
# 2^14 bytes of data, and what a cipher may add.
_RECORD_BYTES_MAX = (1 << 14) + 2048
_DATA_HEADER = b"\x17\x03\x03"  # of application data, in both versions
# How many records a hole of the capture may have, when the next one is searched.
_LOST_RECORDS_MAX = 4096
_TAG_BYTES = 16
# SHA-256 of "HelloRetryRequest": such a ServerHello decides nothing yet (RFC 8446, 4.1.3).
_HELLO_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")

NO_SECRETS = "encrypted with TLS, and the key log has no secrets of it"
NO_HANDSHAKE = "encrypted with TLS, and its handshake is not in the capture"


class _Suite(NamedTuple):
    """A cipher suite: `key_bytes` of its key, the hash of its key derivation, and whether it is AES-GCM."""

    key_bytes: int
    hash_name: str
    is_gcm: bool


_AES_128, _AES_256, _CHACHA = _Suite(16, "sha256", True), _Suite(32, "sha384", True), _Suite(32, "sha256", False)
# By the numbers that IANA gave them; those of TLS 1.2 with RSA, DHE and ECDHE.
_SUITES = {
    0x1301: _AES_128, 0x1302: _AES_256, 0x1303: _CHACHA,
    0x009C: _AES_128, 0x009D: _AES_256, 0x009E: _AES_128, 0x009F: _AES_256,
    0xC02B: _AES_128, 0xC02C: _AES_256, 0xC02F: _AES_128, 0xC030: _AES_256,
    0xCCA8: _CHACHA, 0xCCA9: _CHACHA, 0xCCAA: _CHACHA,
}  # fmt: skip


_HASH_BYTES = {"sha256": 32, "sha384": 48}


class KeyLog:
    """The secrets of a key log file. What is appended later is read when a secret is missing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file. Raises ConfigurationError if it is no key log, or without the package cryptography."""
        if find_spec("cryptography") is None:
            raise ConfigurationError(
                "reading TLS needs the package cryptography",
                remedy="pip install 'kwire[tls]', or leave out the key log",
            )
        self._path = path
        self._read_bytes = 0
        self._secrets: dict[tuple[str, bytes], bytes] = {}
        self._read()
        if self._read_bytes and not self._secrets:
            raise ConfigurationError(
                f"{os.fspath(path)} is not a key log: no line is LABEL, client random and secret",
                remedy="give the file that the program wrote because SSLKEYLOGFILE named it",
            )

    def find(self, label: str, client_random: bytes) -> bytes | None:
        """Return the secret under a label, such as CLIENT_RANDOM, or None."""
        if (label, client_random) not in self._secrets:
            self._read()
        return self._secrets.get((label, client_random))

    def _read(self) -> None:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read_bytes)
                text = file.read()
        except OSError as error:
            raise ConfigurationError(
                f"the key log {os.fspath(self._path)} cannot be read: {error.strerror}", remedy="check its name"
            ) from None
        whole = text.rfind(b"\n") + 1  # the last line may be half written
        self._read_bytes += whole
        for line in text[:whole].splitlines():
            words = line.decode("ascii", "replace").split()
            if len(words) == 3 and not words[0].startswith("#"):
                try:
                    self._secrets[words[0], bytes.fromhex(words[1])] = bytes.fromhex(words[2])
                except ValueError:
                    continue  # the file may have other lines


class _RecordKeys:
    """The key of one direction, and the number of its next record."""

    def __init__(self, suite: _Suite, key: bytes, iv: bytes, version: int) -> None:
        from cryptography.hazmat.primitives.ciphers import aead

        self._cipher: AESGCM | ChaCha20Poly1305 = aead.AESGCM(key) if suite.is_gcm else aead.ChaCha20Poly1305(key)
        self._iv = iv
        self._is_tls13 = version == _TLS13
        self._is_explicit = suite.is_gcm and not self._is_tls13  # RFC 5288: 8 bytes of the nonce are in the record
        self.overhead_bytes = _HEADER.size + _TAG_BYTES + (1 if self._is_tls13 else 8 if self._is_explicit else 0)
        self.sequence = 0

    def opened(self, header: bytes, body: bytes, sequence: int) -> bytes | None:
        """Return the content of a record with this number, or None if its tag says that it is another."""
        from cryptography.exceptions import InvalidTag

        if self._is_explicit:
            nonce, sealed = self._iv + body[:8], body[8:]
        else:
            nonce, sealed = _xored(self._iv, sequence), body
        if len(sealed) < _TAG_BYTES:
            return None
        if self._is_tls13:
            extra = header
        else:
            extra = sequence.to_bytes(8, "big") + header[:3] + (len(sealed) - _TAG_BYTES).to_bytes(2, "big")
        try:
            return self._cipher.decrypt(nonce, sealed, extra)
        except InvalidTag:
            return None


def _xored(iv: bytes, sequence: int) -> bytes:
    return (int.from_bytes(iv, "big") ^ sequence).to_bytes(len(iv), "big")


class _Side:
    """One direction: the bytes of its incomplete record and handshake message, its keys and its secret."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.handshake = bytearray()
        self.keys: _RecordKeys | None = None
        self.secret = b""
        self.has_finished = False
        self.is_lost = False  # a hole was met, and no record since
        self.lost_bytes = 0  # since the last record that could be read

    def skip(self, size: int) -> None:
        """Leave out bytes that no record begins with."""
        self.is_lost = True
        self.lost_bytes += size
        del self.buffer[:size]

    def is_aligned(self) -> bool:
        """Return whether the buffer begins where a record may. After a hole, skip to what looks like a header."""
        if self.is_lost:
            found = self.buffer.find(_DATA_HEADER)
            if found < 0:
                self.skip(max(0, len(self.buffer) - len(_DATA_HEADER) + 1))
                return False
            self.skip(found)
        return True


class TlsConnection:
    """Decrypts one connection. `failure` says why it cannot, once that is known. `client` is the side of the client."""

    def __init__(self, key_log: KeyLog, client: int) -> None:
        self.failure: str | None = None
        self._key_log = key_log
        self._client = client
        self._sides = (_Side(), _Side())
        self._client_random = b""
        self._server_random = b""
        self._version = 0
        self._suite: _Suite | None = None

    def feed(self, side: int, event: Event) -> Iterator[Event]:
        """Yield what an event of the TCP stream decrypts to."""
        if self.failure is not None:
            return
        one = self._sides[side]
        if isinstance(event, Gap):
            if one.keys is None or not one.has_finished:
                self.failure = NO_HANDSHAKE
                return
            one.is_lost = True
            one.lost_bytes += len(one.buffer) + event.size
            one.buffer.clear()
            return
        one.buffer += event.data
        while self.failure is None and one.is_aligned() and len(one.buffer) >= _HEADER.size:
            size = _HEADER.size + int.from_bytes(one.buffer[3:5], "big")
            if one.buffer[1] != 3 or size > _RECORD_BYTES_MAX or not _CHANGE_CIPHER_SPEC <= one.buffer[0] <= 24:
                one.skip(1)
                continue
            if len(one.buffer) < size:
                return
            header, body = bytes(one.buffer[: _HEADER.size]), bytes(one.buffer[_HEADER.size : size])
            gap = self._lost_content(one)
            contents = list(self._record(side, header, body))
            if one.is_lost:
                one.skip(1)  # no record begins here
                continue
            del one.buffer[:size]
            if gap is not None and (missing := gap()) > 0:
                yield Gap(missing)
            for data in contents:
                yield StreamData(data, event.packet, event.at_ns, is_start=True)

    def _lost_content(self, one: _Side) -> Callable[[], int] | None:
        """Return what computes how much content was lost, once the number of the next record is known."""
        if not one.is_lost or one.keys is None:
            return None
        keys, before = one.keys, one.keys.sequence

        def count() -> int:
            lost, one.lost_bytes = one.lost_bytes, 0
            return lost - (keys.sequence - 1 - before) * keys.overhead_bytes

        return count

    def _record(self, side: int, header: bytes, body: bytes) -> Iterator[bytes]:
        one, type_ = self._sides[side], header[0]
        if type_ == _CHANGE_CIPHER_SPEC:
            if self._version == _TLS12 and one.keys is None:
                self._begin_tls12(side)
            return  # TLS 1.3 sends one for the sake of middleboxes
        if one.keys is not None and not (self._version == _TLS13 and type_ != _APPLICATION_DATA):
            plain = self._opened(one, header, body)
            if plain is None:
                return
            if self._version == _TLS13:
                plain = plain.rstrip(b"\0")
                if not plain:
                    return
                plain, type_ = plain[:-1], plain[-1]
            body = plain
        if type_ == _HANDSHAKE:
            self._handshake(side, body)
        elif type_ == _APPLICATION_DATA and body and one.keys is not None:
            yield body

    def _opened(self, one: _Side, header: bytes, body: bytes) -> bytes | None:
        """Return the content of a record; None, and the side is lost, if it is none of those that may come now."""
        assert one.keys is not None
        tries = 1 + min(_LOST_RECORDS_MAX, one.lost_bytes // one.keys.overhead_bytes) if one.is_lost else 1
        for sequence in range(one.keys.sequence, one.keys.sequence + tries):
            plain = one.keys.opened(header, body, sequence)
            if plain is not None:
                one.keys.sequence = sequence + 1
                one.is_lost = False
                return plain
        one.is_lost = True
        return None

    # -- handshake messages

    def _handshake(self, side: int, data: bytes) -> None:
        one = self._sides[side]
        if self._version == _TLS12 and one.keys is not None:
            one.has_finished = True  # Finished is the first encrypted message
            return
        one.handshake += data
        while len(one.handshake) >= 4:
            end = 4 + int.from_bytes(one.handshake[1:4], "big")
            if len(one.handshake) < end:
                return
            kind, message = one.handshake[0], bytes(one.handshake[4:end])
            del one.handshake[:end]
            if kind == _CLIENT_HELLO and side == self._client:
                self._client_random = message[2:34]
            elif kind == _SERVER_HELLO and side != self._client:
                self._server_hello(message)
            elif kind == _FINISHED and self._version == _TLS13:
                one.has_finished = True
                self._use_secret(side, "TRAFFIC_SECRET_0")
            elif kind == _KEY_UPDATE and self._version == _TLS13:
                assert self._suite is not None
                size = _HASH_BYTES[self._suite.hash_name]
                one.secret = expand_label(self._suite.hash_name, one.secret, "traffic upd", size)
                one.keys = self._traffic_keys(one.secret)

    def _server_hello(self, message: bytes) -> None:
        random = message[2:34]
        if random == _HELLO_RETRY:
            return
        self._server_random = random
        at = 35 + message[34]
        number = int.from_bytes(message[at : at + 2], "big")
        self._version = _negotiated_version(message, at + 3)
        if self._version not in (_TLS12, _TLS13):
            self.failure = (
                f"encrypted with TLS {self._version >> 8}.{(self._version & 0xFF) - 1}: kwire reads 1.2 and 1.3"
            )
        elif number not in _SUITES:
            self.failure = f"encrypted with TLS and the cipher suite 0x{number:04x}: kwire reads AES-GCM and ChaCha20"
        else:
            self._suite = _SUITES[number]
            if self._version == _TLS13:
                for side in (0, 1):
                    self._use_secret(side, "HANDSHAKE_TRAFFIC_SECRET")

    def _use_secret(self, side: int, label: str) -> None:
        """Take the keys of a secret of TLS 1.3."""
        name = f"{'CLIENT' if side == self._client else 'SERVER'}_{label}"
        secret = self._key_log.find(name, self._client_random)
        if secret is None:
            self.failure = NO_SECRETS
            return
        one = self._sides[side]
        one.secret = secret
        one.keys = self._traffic_keys(secret)

    def _traffic_keys(self, secret: bytes) -> _RecordKeys:
        suite = self._suite
        assert suite is not None
        key = expand_label(suite.hash_name, secret, "key", suite.key_bytes)
        return _RecordKeys(suite, key, expand_label(suite.hash_name, secret, "iv", 12), _TLS13)

    def _begin_tls12(self, side: int) -> None:
        master, suite = self._key_log.find("CLIENT_RANDOM", self._client_random), self._suite
        if master is None or suite is None:
            self.failure = NO_SECRETS if suite is not None else NO_HANDSHAKE
            return
        iv_bytes = 4 if suite.is_gcm else 12
        seed = b"key expansion" + self._server_random + self._client_random
        block = prf(suite.hash_name, master, seed, 2 * (suite.key_bytes + iv_bytes))
        place = 0 if side == self._client else 1
        key = block[place * suite.key_bytes :][: suite.key_bytes]
        iv = block[2 * suite.key_bytes + place * iv_bytes :][:iv_bytes]
        self._sides[side].keys = _RecordKeys(suite, key, iv, _TLS12)


def is_client_hello(data: bytes) -> bool:
    """Return whether a stream begins with a ClientHello."""
    return len(data) >= 6 and data[0] == _HANDSHAKE and data[1] == 3 and data[5] == _CLIENT_HELLO


def _negotiated_version(message: bytes, at: int) -> int:
    """Return the version of a ServerHello, whose extensions begin at a position."""
    end = at + 2 + int.from_bytes(message[at : at + 2], "big")
    at += 2
    while at + 4 <= min(end, len(message)):
        kind, size = int.from_bytes(message[at : at + 2], "big"), int.from_bytes(message[at + 2 : at + 4], "big")
        if kind == _SUPPORTED_VERSIONS and size == 2:
            return int.from_bytes(message[at + 4 : at + 6], "big")
        at += 4 + size
    return int.from_bytes(message[:2], "big")


def expand_label(hash_name: str, secret: bytes, label: str, size: int) -> bytes:
    """Return HKDF-Expand-Label of RFC 8446, 7.1, with an empty context."""
    import hmac  # with hashlib a tenth of the start of `kwire decode`, which seldom reads TLS

    name = b"tls13 " + label.encode()
    info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
    found = block = b""
    number = 1
    while len(found) < size:
        block = hmac.digest(secret, block + info + bytes([number]), hash_name)
        found += block
        number += 1
    return found[:size]


def prf(hash_name: str, secret: bytes, seed: bytes, size: int) -> bytes:
    """Return the PRF of RFC 5246, 5; `seed` begins with the label."""
    import hmac

    found, a = b"", seed
    while len(found) < size:
        a = hmac.digest(secret, a, hash_name)
        found += hmac.digest(secret, a + seed, hash_name)
    return found[:size]
