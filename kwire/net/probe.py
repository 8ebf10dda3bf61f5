"""A connection taken step by step, for diagnosis: name, addresses, TLS, bytes. Each step has a limit.

`KafkaSelector` does the same steps for clients and reports only the last error. Here each step blocks, and returns what
it found and how long it took. A `Probe` belongs to one thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kwire.errors import ConnectError, DisconnectedError, NodeError, RequestTimeoutError
from kwire.net.clock import Clock
from kwire.net.dial import Address, Outcome, Resolver
from kwire.net.tls_filter import TlsFilter
from kwire.wire.frame import SIZE, BytesLike, FrameReader

_CHUNK_BYTES = 64 * 1024
_REFUSED = {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.ETIMEDOUT: "filtered"}
_TUNNELS = ("tun", "tap", "utun", "wg", "ppp", "ipsec", "tailscale", "zt")


@dataclass(frozen=True, slots=True)
class Resolved:
    """The addresses of a name in the system's order, or the reason why there are none."""

    host: str
    addresses: tuple[Address, ...]
    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to connect. `outcome`: "connected", "refused", "filtered" (no answer), "reset" or "error"."""

    address: Address
    outcome: str
    seconds: float
    reason: str = ""

    @property
    def is_ipv6(self) -> bool:
        return self.address.family == socket.AF_INET6


@dataclass(frozen=True, slots=True)
class TlsFacts:
    """What a TLS handshake agreed on. The fields of the certificate are empty where it was not verified."""

    version: str
    cipher: str
    subject: str = ""
    names: tuple[str, ...] = ()
    not_before_ms: int | None = None
    not_after_ms: int | None = None


def resolve(host: str, port: int, resolver: Resolver, clock: Clock, timeout: float) -> Resolved:
    """Resolve a name, for at most `timeout` seconds."""
    ended = threading.Event()
    outcomes: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        ended.set()

    began = clock.now()
    resolver.resolve(host, port, done)
    ended.wait(timeout)
    seconds = clock.now() - began
    if not outcomes:
        return Resolved(host, (), seconds, f"the name server did not respond in {timeout:g} s")
    outcome = outcomes[0]
    if isinstance(outcome, OSError):
        return Resolved(host, (), seconds, outcome.strerror or str(outcome))
    return Resolved(host, tuple(outcome), seconds)


def try_addresses(addresses: Sequence[Address], clock: Clock, timeout: float) -> list[Attempt]:
    """Connect to all addresses at the same time; return an attempt for each, in their order."""
    began = clock.now()
    found: dict[Address, Attempt] = {}
    pending: dict[int, tuple[socket.socket, Address]] = {}
    poller = select.poll()
    try:
        for address in addresses:
            try:
                sock = socket.socket(address.family, socket.SOCK_STREAM)
            except OSError as error:  # this machine has no IPv6
                found[address] = Attempt(address, "error", 0.0, error.strerror or str(error))
                continue
            pending[sock.fileno()] = sock, address
            sock.setblocking(False)
            code = sock.connect_ex(address.sockaddr)
            if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                found[address] = _attempt(address, code, clock.now() - began)
                pending.pop(sock.fileno())
                sock.close()
            else:
                poller.register(sock, select.POLLOUT)
        while pending and (left := began + timeout - clock.now()) > 0:
            for number, _ in poller.poll(left * 1000):
                sock, address = pending.pop(number)
                poller.unregister(number)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                found[address] = _attempt(address, code, clock.now() - began)
                sock.close()
        for _, address in pending.values():
            found[address] = _attempt(address, errno.ETIMEDOUT, clock.now() - began)
    finally:
        for sock, _ in pending.values():
            sock.close()
    return [found[address] for address in addresses]


def _attempt(address: Address, code: int, seconds: float) -> Attempt:
    if code == 0:
        return Attempt(address, "connected", seconds)
    reason = f"no answer in {seconds:.1f} s" if code == errno.ETIMEDOUT else os.strerror(code).lower()
    return Attempt(address, _REFUSED.get(code, "error"), seconds, reason)


def tunnel_interfaces() -> list[str]:
    """Return the names of this machine's network interfaces that look like a VPN's."""
    with contextlib.suppress(OSError):
        return [name for _, name in socket.if_nameindex() if name.startswith(_TUNNELS)]
    return []


class Probe:
    """One connection, plaintext or TLS, whose caller waits for each step.

    Every method raises a NodeError for what the peer or the network did, and RequestTimeoutError after `timeout`
    seconds; the connection is of no use afterwards.
    """

    def __init__(self, address: Address, broker: str, clock: Clock, timeout: float) -> None:
        self.broker = broker
        self._clock = clock
        self._timeout = timeout
        self._tls: TlsFilter | None = None
        self._reader = FrameReader()
        self._frames: deque[BytesLike] = deque()
        self.bytes_received = 0
        try:
            self._socket = socket.socket(address.family, socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectError(f"cannot open a socket: {error}", broker=broker) from error
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(address.sockaddr)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            self._socket.close()
            raise ConnectError(f"cannot connect to {address}: {error.strerror or error}", broker=broker) from error

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def start_tls(self, context: ssl.SSLContext, server_name: str) -> TlsFacts:
        """Run the TLS handshake, and return what was agreed."""
        deadline = self._clock.now() + self._timeout
        tls = TlsFilter(context, is_server=False, host=server_name)
        is_done = tls.handshake()
        self._write(tls.sealed(), deadline)
        while not is_done:
            try:
                data = self._read(deadline)
            except RequestTimeoutError:
                raise tls.timeout_error().at(broker=self.broker) from None
            except DisconnectedError as error:
                raise tls.cut().at(broker=self.broker) from error
            if not data:
                raise tls.cut().at(broker=self.broker)
            try:
                self._feed(tls.decrypt(data))
            except NodeError as error:
                with contextlib.suppress(NodeError, RequestTimeoutError):
                    self._write(tls.sealed(), deadline)  # the alert that says why
                raise error.at(broker=self.broker) from None
            self._write(tls.sealed(), deadline)
            is_done = tls.is_established
        self._tls = tls
        return _facts(tls)

    def send(self, parts: Sequence[BytesLike]) -> None:
        """Write a frame, given in parts, with its size before it."""
        body = b"".join(parts)
        self.write(SIZE.pack(len(body)) + body)

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        deadline = self._clock.now() + self._timeout
        if self._tls is None:
            self._write(data, deadline)
            return
        view = memoryview(data)
        while view:
            view = view[self._tls.encrypt(view) :]
            self._write(self._tls.sealed(), deadline)

    def receive(self) -> BytesLike:
        """Return the next frame, without its size."""
        deadline = self._clock.now() + self._timeout
        while not self._frames:
            data = self._read(deadline)
            if not data:
                raise (self._reader.ended() or DisconnectedError("the peer closed the connection")).at(
                    broker=self.broker
                )
            try:
                self._feed([data] if self._tls is None else self._tls.decrypt(data))
            except NodeError as error:
                raise error.at(broker=self.broker) from None
        return self._frames.popleft()

    def read(self) -> bytes:
        """Return the next bytes as they come; none at the end of the stream."""
        return self._read(self._clock.now() + self._timeout)

    def _feed(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self._frames.extend(self._reader.feed(piece))

    def _read(self, deadline: float) -> bytes:
        self._socket.settimeout(max(0.001, deadline - self._clock.now()))
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except TimeoutError:
            raise RequestTimeoutError(f"no answer in {self._timeout:g} s", broker=self.broker) from None
        except OSError as error:
            raise DisconnectedError(f"the connection broke: {error.strerror or error}", broker=self.broker) from error
        self.bytes_received += len(data)
        return data

    def _write(self, data: bytes, deadline: float) -> None:
        if not data:
            return
        self._socket.settimeout(max(0.001, deadline - self._clock.now()))
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise RequestTimeoutError(f"the peer read nothing for {self._timeout:g} s", broker=self.broker) from None
        except OSError as error:
            raise DisconnectedError(f"the connection broke: {error.strerror or error}", broker=self.broker) from error


def _facts(tls: TlsFilter) -> TlsFacts:
    found = tls.session()
    certificate: dict[str, Any] = found.certificate
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    subject = [f"{name}={value}" for part in certificate.get("subject", ()) for name, value in part]
    return TlsFacts(
        version=found.version,
        cipher=found.cipher,
        subject=", ".join(subject).replace("commonName=", "CN="),
        names=tuple(names),
        not_before_ms=_milliseconds(certificate.get("notBefore")),
        not_after_ms=_milliseconds(certificate.get("notAfter")),
    )


def _milliseconds(text: str | None) -> int | None:
    return None if text is None else round(ssl.cert_time_to_seconds(text)) * 1000
