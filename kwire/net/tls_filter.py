"""TLS between frames and the socket.

The filter uses `ssl.MemoryBIO`, not `ssl.SSLSocket`. So the socket is read and written in one way, encrypted or not,
and one `recv_into` takes many records. All bytes read are decrypted at once, so none stay behind in the TLS layer. A
write never waits for a read, nor a read for a write. And the first bytes of the peer can be examined, so that the error
names a plaintext peer instead of WRONG_VERSION_NUMBER.
"""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from kwire.errors import NodeError, TlsError
from kwire.net.tls_errors import explain, not_tls
from kwire.wire.frame import BytesLike

# The bytes by which a TLS record differs from another protocol, and the bytes that name that protocol.
_RECORD_HEAD_BYTES = 5
_SAMPLE_BYTES = 44

# "internal_error", which Java's brokers send to a client without TLS: it learns so that the port has TLS.
_ALERT = b"\x15\x03\x03\x00\x02\x02\x50"

# What `Tls.client_context` loads, for rooms that only pass it on.
TlsContext: TypeAlias = ssl.SSLContext


@dataclass(frozen=True)
class TlsSession:
    """What a handshake agreed on. `certificate` is the peer's as `ssl` shows it; empty if it was not verified."""

    version: str
    cipher: str
    certificate: dict[str, Any]


class TlsFilter:
    """The TLS of one connection: bytes in, bytes out."""

    # One TLS record holds at most this much plaintext; a larger write is several records anyway.
    RECORD_BYTES: ClassVar[int] = 16 * 1024

    __slots__ = ("_host", "_incoming", "_is_server", "_object", "_outgoing", "_seen", "is_ended", "is_established")

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, host: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._host = host
        self._is_server = is_server
        self._seen = b""
        try:
            self._object = context.wrap_bio(
                self._incoming, self._outgoing, server_side=is_server, server_hostname=None if is_server else host
            )
        except (ValueError, TypeError, ssl.SSLError) as error:  # a leading dot, a label that IDNA refuses, a NUL
            raise TlsError(f"{host!r} is no valid TLS server name: {error}", remedy="set server_name") from error
        self.is_established = False
        self.is_ended = False  # the peer sent close_notify

    def handshake(self) -> bool:
        """Continue the handshake as far as the bytes received allow; return whether it is done."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise self._explain(error) from error
        self.is_established = True
        return True

    def session(self) -> TlsSession:
        """Return what the handshake, which must be done, agreed on."""
        cipher = self._object.cipher()
        return TlsSession(
            self._object.version() or "", cipher[0] if cipher else "", dict(self._object.getpeercert() or {})
        )

    def peer_certificate(self) -> bytes | None:
        """Return the peer's certificate in DER; None if it showed none."""
        return self._object.getpeercert(True)

    def decrypt(self, data: BytesLike) -> list[bytes]:
        """Decrypt `data`; return the plaintext of the records that it completes, which may be none."""
        if len(self._seen) < _RECORD_HEAD_BYTES:
            self._seen += bytes(data[:_SAMPLE_BYTES])
            foreign = not_tls(self._seen, is_server=self._is_server)
            if foreign is not None:
                if self._is_server:
                    self._outgoing.write(_ALERT)
                raise foreign
        self._incoming.write(data)
        if not self.is_established and not self.handshake():
            return []
        plain: list[bytes] = []
        try:
            while chunk := self._object.read(self.RECORD_BYTES):
                plain.append(chunk)
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass  # everything received is decrypted
        except ssl.SSLError as error:
            raise self._explain(error) from error
        return plain

    def encrypt(self, data: BytesLike) -> int:
        """Encrypt the first bytes of `data` and return their number; `sealed` returns the records."""
        try:
            return self._object.write(data)
        except ssl.SSLError as error:
            raise self._explain(error) from error

    def sealed(self) -> bytes:
        """Return the bytes to write to the socket, handshake and alerts included; each once."""
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        """Return the bytes of the alert that ends the stream properly, after those that wait."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError, ValueError):
                self._object.unwrap()
        return self._outgoing.read()

    def cut(self) -> NodeError:
        """Return the error for a peer that closed the socket before the end of the handshake."""
        if self._is_server:
            return TlsError("the client closed the connection during the TLS handshake", remedy="see the client's log")
        return TlsError(
            "the broker closed the connection during the TLS handshake",
            remedy="check that this port is a TLS listener; if it is, it may want a client certificate (cert_file, "
            "key_file) or a newer TLS version: its log says which",
        )

    def timeout_error(self) -> NodeError:
        """Return the error for a peer that did not finish the handshake in time."""
        if not self._seen and not self._is_server:
            return TlsError(
                "the broker accepted the connection, but did not respond to the TLS handshake",
                remedy="check that this port is a TLS listener: a plaintext listener may wait for more bytes",
            )
        return TlsError("the TLS handshake was not finished in time", remedy="check the peer's load and the network")

    def _explain(self, error: ssl.SSLError) -> TlsError:
        return explain(error, host=self._host, is_server=self._is_server)
