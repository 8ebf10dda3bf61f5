"""One client's connection to one broker, without the socket: frames in, frames out.

Like Kafka, a broker handles one request of a connection at a time and starts the next one when that one is complete. So
pipelined requests are applied in the order in which they were sent. `server`, or a simulation, moves the bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kwire.broker.authorizer import ANONYMOUS, Access
from kwire.broker.broker import Broker
from kwire.broker.diagnostics import ClientInfo, Oddity, log_broken, log_closing, maybe_header
from kwire.broker.faults import SESSION_APIS, Delay, Disconnect, HalfOpen, Mute, Reset
from kwire.broker.request_context import (
    CloseConnection,
    Completion,
    DamagedReply,
    ForgetConnection,
    NoReply,
    Reply,
    RequestContext,
    ResetConnection,
    SlowReply,
    TruncatedReply,
)
from kwire.broker.request_log import RequestRecord
from kwire.errors import DisconnectedError
from kwire.protocol import ApiKey
from kwire.protocol.messages.produce import ProduceResponse
from kwire.protocol.schema import Response
from kwire.session import ConnectionBroken, RequestReceived, SaslServer, Session, TrailingBytes
from kwire.wire.frame import BytesLike

FrameParts = list[BytesLike]  # of a frame, without its size


_SLOW_STEP_SECONDS = 0.05
_OUTCOMES: Mapping[type[Any], str] = {
    Reply: "response", NoReply: "no response", CloseConnection: "closed", ResetConnection: "closed",
    ForgetConnection: "closed", TruncatedReply: "cut", DamagedReply: "response", SlowReply: "response",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RawBytes:
    """Bytes to write unchanged, without a size in front: the start of a truncated response."""

    data: bytes


class Connection:
    """A connection. It calls `on_ready(connection)` when `turn` should be called."""

    def __init__(
        self,
        broker: Broker,
        *,
        apis: Mapping[int, range],
        sasl: SaslServer | None,
        client_host: str,
        listener: str = "PLAINTEXT",
        certificate_name: str | None = None,
        on_ready: Callable[[Connection], None],
    ) -> None:
        self.broker = broker
        self.is_closing = False  # close it once its frames are written
        self.is_reset = self.is_forgotten = False  # end it at once, by a TCP reset or without a word
        features = broker.cluster.features.shown()
        self._session = Session.broker(
            apis=apis, sasl=sasl, peer=client_host, features=features,
            identity=(broker.cluster.options.cluster_id, broker.id),
        )  # fmt: skip
        self._client_host = client_host
        self._listener = listener
        self._certificate_name = certificate_name  # who the client is by mutual TLS; SASL says it if there is both
        self.client = ClientInfo(next(broker.cluster.connection_numbers), broker.id, client_host, self._session)
        self._on_ready = on_ready
        self._queue: deque[tuple[RequestReceived, int]] = deque()  # with the size of the frame
        self._throttle_ms = 0  # of the current request
        self._muted_until = 0.0
        self._delayed_frames: deque[BytesLike] = deque()  # frames behind one that a fault delays or mutes
        self._current: RequestContext | None = None
        self._is_paused = False
        self._slow: tuple[bytes, int] = b"", 0  # what is left of a response that is written slowly, and its rate
        self._slow_until = 0.0  # when its next part is due
        self._ended: list[tuple[RequestRecord, str, float]] = []  # for the request log: how, and when it started
        self._output: list[FrameParts | RawBytes] = []

    @property
    def queued(self) -> int:
        """Return how many requests wait for the one before them."""
        return len(self._queue) + len(self._delayed_frames)

    def receive(self, frame: BytesLike, now: float) -> None:
        """Accept a request's frame, without its size."""
        if self.is_closing:
            return
        if self._is_paused:
            self._delayed_frames.append(frame)
        elif not self._apply_session_fault(frame, now):
            self._process(frame, now)
        self._on_ready(self)

    def turn(self, now: float) -> list[FrameParts | RawBytes]:
        """Start the requests that can start now. Return the frames to write."""
        while self._delayed_frames and not self._is_paused and not self.is_closing:
            self.receive(self._delayed_frames.popleft(), now)
        while self._can_start(now):
            self._start(*self._queue.popleft(), now)
        self._log_ended(now)
        if self._slow[0] and not self.is_closing:
            self._write_slowly(now)
        frames: list[FrameParts | RawBytes] = [*self._session.frames(), *self._output]
        self._output.clear()
        return frames

    def _can_start(self, now: float) -> bool:
        is_free = self._current is None and not self._slow[0]
        is_over = self.is_closing or self.is_reset or self.is_forgotten
        return bool(self._queue) and is_free and not is_over and now >= self._muted_until

    def closed(self, now: float) -> None:
        """Close the connection: the socket is gone. The current request continues, and its response is dropped."""
        self._log_ended(now)
        self.is_closing = True
        if self._current is not None:
            self._current.cancel()
        self._queue.clear()
        self._delayed_frames.clear()
        self.broker.cluster.share_partitions.connection_closed(self.client.number, now)
        self._session.closed(DisconnectedError("the client is gone", broker=self._client_host), now)

    def _process(self, frame: BytesLike, now: float) -> None:
        for event in self._session.receive(frame, now):
            if isinstance(event, RequestReceived):
                self._queue.append((event, len(frame)))
            elif isinstance(event, TrailingBytes):
                self._record_trailing_bytes(event)
            elif isinstance(event, ConnectionBroken):
                self.is_closing = True
                read = maybe_header(frame)
                if read is not None:
                    self.client.client_id = read[0].client_id
                log_broken(self.client, event.error, frame)

    def _record_trailing_bytes(self, event: TrailingBytes) -> None:
        size = len(event.data)
        bytes_ = "byte" if size == 1 else "bytes"
        what = f"{size} {bytes_} after the last field, ignored as Kafka does: {event.data[:16].hex(' ')}"
        key, version = ApiKey(event.header.api_key), event.header.api_version
        oddity = Oddity(self.client.library, event.header.client_id or "", key, version, what)
        self.broker.cluster.oddities.add(oddity)

    def _start(self, event: RequestReceived, size: int, now: float) -> None:
        self.client.client_id = event.header.client_id
        access = self._access()
        self._throttle(event, size, access.principal, now)

        record = self._log(event, size, access.principal, now)

        def on_complete(completion: Completion) -> None:
            self._ended.append((record, _OUTCOMES[type(completion)], now))
            self._complete(event, completion)

        self._current = RequestContext(
            event.request, event.header.api_version, client_id=event.header.client_id, client_host=self._client_host,
            connection=self.client.number, listener=self._listener, access=access,
            software=self._session.software, on_complete=on_complete,
        )  # fmt: skip
        self.broker.handle(self._current, now)

    def _log(self, event: RequestReceived, size: int, principal: str, now: float) -> RequestRecord:
        header, cluster = event.header, self.broker.cluster
        return cluster.request_log.begin(
            time_ms=cluster.wall_ms(now), api=ApiKey(header.api_key), version=header.api_version, node=self.broker.id,
            connection=self.client.number, listener=self._listener, client_id=header.client_id or "",
            software=self.client.library, host=self._client_host, principal=principal, size_bytes=size,
            correlation_id=header.correlation_id,
        )  # fmt: skip

    def _log_ended(self, now: float) -> None:
        for record, outcome, since in self._ended:
            self.broker.cluster.request_log.end(record, outcome, (now - since) * 1000)
        self._ended.clear()

    def _throttle(self, event: RequestReceived, size: int, principal: str, now: float) -> None:
        """Count a Produce against the quota of its client. Over it, the next request has to wait (KIP-219)."""
        self._throttle_ms = 0
        if event.header.api_key != ApiKey.PRODUCE or event.header.api_version == 0:
            return
        cluster = self.broker.cluster
        quota = cluster.quotas.producer(principal, event.header.client_id or "")
        if quota is None:
            return
        self._throttle_ms = quota.record_ms(size, now)
        if self._throttle_ms:
            self._mute(now + self._throttle_ms / 1000)

    def _mute(self, until: float) -> None:
        """Handle no other request before this time."""
        if until > self._muted_until:
            self._muted_until = until
            self.broker.cluster.timers.at(until, lambda now: self._on_ready(self))

    def _access(self) -> Access:
        user = self._session.username
        if user is None:
            user = self._certificate_name
        principal = ANONYMOUS if user is None else f"User:{user}"
        return Access(
            self.broker.cluster.authorizer, principal, self._client_host, is_by_token=self._session.is_by_token
        )

    def _complete(self, event: RequestReceived, completion: Completion) -> None:
        self._current = None
        match completion:
            case Reply(response, mute_until):
                self._mute(mute_until)
                if isinstance(response, ProduceResponse) and self._throttle_ms:
                    response.throttle_time_ms = self._throttle_ms
                self._session.respond(event.tag, response)
            case NoReply():
                self._session.respond(event.tag, None)
            case CloseConnection(reason):
                self.is_closing = True
                if reason is not None:
                    log_closing(self.client, reason)
            case ResetConnection():
                self.is_reset = True
            case ForgetConnection():
                self.is_forgotten = True
            case TruncatedReply(response, keep_bytes):
                self._output.append(RawBytes(self._frame(event, response)[:keep_bytes]))
                self.is_closing = True
            case DamagedReply(response, damage):
                self._output.append(RawBytes(damage(self._frame(event, response))))
            case SlowReply(response, bytes_per_second):
                self._slow = self._frame(event, response), bytes_per_second
                self._is_paused = True
        self._on_ready(self)

    def _frame(self, event: RequestReceived, response: Response) -> bytes:
        """Return the frame of a response with its size. Responses of this turn that come before it are sent whole."""
        self._session.respond(event.tag, response)
        *whole, last = self._session.frames()
        self._output += whole
        body = b"".join(last)
        return len(body).to_bytes(4, "big") + body

    def _write_slowly(self, now: float) -> None:
        """Write the part of a slow response that is due, 20 times a second at most."""
        left, rate = self._slow
        if not left or now < self._slow_until:
            return
        size = max(1, int(rate * _SLOW_STEP_SECONDS))
        self._output.append(RawBytes(left[:size]))
        self._slow = left[size:], rate
        self._slow_until = now + size / rate
        if self._slow[0]:
            self.broker.cluster.timers.at(self._slow_until, lambda now: self._on_ready(self))
        else:
            self._is_paused = False
            self._on_ready(self)

    def _apply_session_fault(self, frame: BytesLike, now: float) -> bool:
        """Apply a fault of an API that the session handles, before the session gets the frame. Return whether there was
        one."""
        faults = self.broker.cluster.faults
        key = int.from_bytes(frame[:2], "big", signed=True)
        if not faults or key not in SESSION_APIS:
            return False
        fault = faults.match(ApiKey(key), self.broker.id, "", ())
        if fault is None:
            return False
        match fault.effect:
            case Disconnect():
                self.is_closing = True
            case Reset():
                self.is_reset = True
            case HalfOpen():
                self.is_forgotten = True
            case Mute():
                self._is_paused = True
            case Delay():
                self._is_paused = True
                self.broker.cluster.timers.at(now + fault.delay_seconds(), lambda now: self._resume(frame, now))
        return True

    def _resume(self, frame: BytesLike, now: float) -> None:
        self._is_paused = False
        if not self.is_closing:
            self._process(frame, now)
            self._on_ready(self)
