"""TLS: the configuration of the user, and a filter between frames and the socket.

The filter uses `ssl.MemoryBIO`, not `ssl.SSLSocket`. So the socket is read and written in one way, encrypted or not,
and one `recv_into` takes many records. All bytes read are decrypted at once, so none stay behind in the TLS layer. A
write never waits for a read, nor a read for a write. And the first bytes of the peer can be examined, so that the error
names a plaintext peer instead of WRONG_VERSION_NUMBER.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from kwire.errors import ConfigurationError, NodeError, TlsError
from kwire.net.tls_errors import explain, not_tls
from kwire.wire.frame import BytesLike

_log = logging.getLogger("kwire.net")

# One TLS record holds at most this much plaintext; a larger write is several records anyway.
RECORD_BYTES = 16 * 1024
# The bytes by which a TLS record differs from another protocol, and the bytes that name that protocol.
_RECORD_HEAD_BYTES = 5
_SAMPLE_BYTES = 44
_FILES = ("ca_file", "cert_file", "key_file", "crl_file")


@dataclass(frozen=True)
class Tls:
    """TLS for a connection or a listener. Files are PEM.

    For a client, `ca_file` has the certificate authorities to trust (None: those of the system), and `cert_file` and
    `key_file` are the client's certificate and key, for mutual TLS. For a listener, `cert_file` is required, and a
    `ca_file` makes client certificates mandatory. `server_name` replaces the host name in SNI and in the check of the
    certificate. `verify=False` accepts any certificate; use it for experiments only. A client may have its files
    replaced while it runs: new connections use the new ones. `crl_file` has revocation lists (CRL): a peer whose
    certificate is in one is refused, and so is one whose authority has no list there. Without it nothing is revoked.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    verify: bool = True
    server_name: str | None = None
    crl_file: str | None = None

    def __post_init__(self) -> None:
        for option in (*_FILES, "key_password", "server_name"):
            value = getattr(self, option)
            if option in _FILES and isinstance(value, os.PathLike):
                object.__setattr__(self, option, os.fspath(value))
            elif value is not None and not isinstance(value, str):
                raise ConfigurationError(f"{option} is {type(value).__name__}", remedy="give a str")
        if self.key_file is not None and self.cert_file is None:
            raise ConfigurationError("key_file without cert_file", remedy="give both")
        if self.crl_file is not None and not self.verify:
            raise ConfigurationError(
                "crl_file with verify=False, which accepts any certificate", remedy="leave one out"
            )

    def client_context(self) -> ssl.SSLContext:
        """Load the files for a client. Raises ConfigurationError that names the option and the file at fault."""
        context = self._context(ssl.Purpose.SERVER_AUTH)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif not self.check_hostname:
            context.check_hostname = False
        return context

    def server_context(self) -> ssl.SSLContext:
        """Load the files for a listener. Raises ConfigurationError that names the option and the file at fault."""
        if self.cert_file is None:
            raise ConfigurationError("a TLS listener needs a certificate", remedy="give cert_file and key_file")
        context = self._context(ssl.Purpose.CLIENT_AUTH)
        if self.ca_file is not None and self.verify:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        for option in _FILES:
            _check_readable(option, getattr(self, option))
        try:
            context = ssl.create_default_context(purpose, cafile=self.ca_file)
        except ssl.SSLError as error:
            raise _not_pem("ca_file", self.ca_file, "certificate") from error
        if self.crl_file is not None:
            try:
                context.load_verify_locations(cafile=self.crl_file)
            except ssl.SSLError as error:
                raise _not_pem("crl_file", self.crl_file, "X509 CRL") from error
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if self.cert_file is not None:
            # Without a password OpenSSL would prompt on the terminal; a function that returns "" makes it fail.
            password = self.key_password or ""
            try:
                context.load_cert_chain(self.cert_file, self.key_file, password=lambda: password)
            except (ssl.SSLError, ValueError) as error:  # ValueError: a password of more than 1024 bytes
                raise self._wrong_certificate(error) from error
        context.options |= ssl.OP_NO_RENEGOTIATION  # of TLS 1.2, where a write might wait for a read
        return context

    def _wrong_certificate(self, error: Exception) -> ConfigurationError:
        """Return an error that says whether certificate, key or password is wrong; OpenSSL mostly says "PEM lib"."""
        assert self.cert_file is not None
        option, path = ("key_file", self.key_file) if self.key_file is not None else ("cert_file", self.cert_file)
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            return ConfigurationError(
                f"the private key in {option} {path!r} is not that of the certificate in cert_file {self.cert_file!r}",
                remedy="give the key that the certificate was made for; in a chain, our own certificate comes first",
            )
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=self.cert_file)
        except ssl.SSLError:
            return _not_pem("cert_file", self.cert_file, "certificate")
        text = Path(path).read_bytes()
        if b"ENCRYPTED" in text:
            if self.key_password is None:
                what, remedy = f"the private key in {option} {path!r} is encrypted", "give key_password"
            else:
                what, remedy = f"key_password does not open the private key in {option} {path!r}", "check the password"
            return ConfigurationError(what, remedy=remedy)
        if self.key_file is None and b"PRIVATE KEY" not in text:
            return ConfigurationError(f"cert_file {path!r} has no private key in it", remedy="give its key_file")
        return _not_pem(option, path, "private key")


def _check_readable(option: str, path: str | None) -> None:
    if path is None:
        return
    try:
        with open(path, "rb"):
            pass
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"cannot read {option} {path!r}: {reason}", remedy="check the path") from error


def _not_pem(option: str, path: str | None, content: str) -> ConfigurationError:
    return ConfigurationError(
        f"{option} {path!r} holds no {content} in PEM form",
        remedy=f'a PEM file has "-----BEGIN {content.upper()}-----"; convert DER or PKCS #12 with openssl',
    )


# What `Tls.client_context` loads, for rooms that only pass it on.
TlsContext: TypeAlias = ssl.SSLContext


@dataclass(frozen=True)
class TlsSession:
    """What a handshake agreed on. `certificate` is the peer's as `ssl` shows it; empty if it was not verified."""

    version: str
    cipher: str
    certificate: dict[str, Any]


class ClientContexts:
    """The contexts of a client's connections. Files that were replaced on disk are loaded for the next connection.

    Open connections keep what they have. While the new files cannot be loaded, because one of them is not written yet
    or is broken, the old context is used, with one warning for each state of the files.
    """

    def __init__(self) -> None:
        self._loaded: dict[Tls, tuple[ssl.SSLContext, Hashable]] = {}

    def of(self, tls: Tls) -> ssl.SSLContext:
        """Return the context for a new connection. Raises ConfigurationError if the first files cannot be loaded."""
        state = tuple(_file_state(getattr(tls, option)) for option in _FILES)
        known = self._loaded.get(tls)
        if known is not None and known[1] == state:
            return known[0]
        try:
            context = tls.client_context()
        except ConfigurationError as error:
            if known is None:
                raise
            _log.warning("the TLS files changed, but the old ones are used on: %s", error)
            context = known[0]
        self._loaded[tls] = context, state
        return context


def _file_state(path: str | None) -> Hashable:
    """Return what changes when a file is replaced or written."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return "missing"
    return status.st_mtime_ns, status.st_size, status.st_ino


class TlsFilter:
    """The TLS of one connection: bytes in, bytes out."""

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
        except (ValueError, ssl.SSLError) as error:  # empty, a leading dot, a label that IDNA refuses
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
                raise foreign
        self._incoming.write(data)
        if not self.is_established and not self.handshake():
            return []
        plain: list[bytes] = []
        try:
            while chunk := self._object.read(RECORD_BYTES):
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
