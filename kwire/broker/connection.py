"""One client's connection to one broker, without the socket: frames in, frames out.

Owns the order of requests. Like Kafka, a broker carries out one request of a connection at a time and takes up the
next when that one is answered, so that what a client pipelines is applied in the order in which it was sent. It refuses
to move bytes: `server`, or a simulation, does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kwire.broker.broker import Broker
from kwire.broker.diagnostics import ClientInfo, Oddity, log_broken, log_closing, maybe_header
from kwire.broker.faults import SESSION_APIS, Delay, Disconnect, Mute
from kwire.broker.options import TRANSACTION_VERSIONS
from kwire.broker.request_context import CloseConnection, Completion, NoReply, Reply, RequestContext, TruncatedReply
from kwire.errors import DisconnectedError
from kwire.protocol import ApiKey
from kwire.session import ConnectionBroken, RequestReceived, SaslServer, Session, TrailingBytes
from kwire.wire.frame import BytesLike

FrameParts = list[BytesLike]  # of a frame, its size left out


@dataclass(frozen=True, slots=True)
class RawBytes:
    """Bytes to be written as they are, without a size in front: what is left of an answer that is cut."""

    data: bytes


class Connection:
    """`wake` is called, with the connection, when it has something to be done outside of `receive`: see `turn`."""

    def __init__(
        self,
        broker: Broker,
        *,
        apis: Mapping[int, range],
        sasl: SaslServer | None,
        client_host: str,
        on_ready: Callable[[Connection], None],
    ) -> None:
        self.broker = broker
        self.is_closing = False  # to be closed once its frames are written
        features = {"transaction.version": (broker.cluster.options.transaction_version, TRANSACTION_VERSIONS[-1])}
        self._session = Session.broker(apis=apis, sasl=sasl, peer=client_host, features=features)
        self._client_host = client_host
        self.client = ClientInfo(next(broker.cluster.connection_numbers), broker.id, client_host, self._session)
        self._on_ready = on_ready
        self._queue: deque[RequestReceived] = deque()
        self._delayed_frames: deque[BytesLike] = deque()  # frames behind one that a fault delays or silences
        self._current: RequestContext | None = None
        self._is_paused = False
        self._output: list[FrameParts | RawBytes] = []

    @property
    def queued(self) -> int:
        """Requests that wait for the one before them."""
        return len(self._queue) + len(self._delayed_frames)

    def receive(self, frame: BytesLike, now: float) -> None:
        if self.is_closing:
            return
        if self._is_paused:
            self._delayed_frames.append(frame)
        elif not self._apply_session_fault(frame, now):
            self._process(frame, now)
        self._on_ready(self)

    def turn(self, now: float) -> list[FrameParts | RawBytes]:
        """Take up what can be taken up now; what is to be written."""
        while self._delayed_frames and not self._is_paused and not self.is_closing:
            self.receive(self._delayed_frames.popleft(), now)
        while self._queue and self._current is None and not self.is_closing:
            self._start(self._queue.popleft(), now)
        frames: list[FrameParts | RawBytes] = [*self._session.frames(), *self._output]
        self._output.clear()
        return frames

    def closed(self, now: float) -> None:
        """The socket is gone. A request that waits for its answer goes on, and is answered to nobody."""
        self.is_closing = True
        if self._current is not None:
            self._current.cancel()
        self._queue.clear()
        self._delayed_frames.clear()
        self._session.closed(DisconnectedError("the client is gone", broker=self._client_host), now)

    def _process(self, frame: BytesLike, now: float) -> None:
        for event in self._session.receive(frame, now):
            if isinstance(event, RequestReceived):
                self._queue.append(event)
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

    def _start(self, event: RequestReceived, now: float) -> None:
        self.client.client_id = event.header.client_id

        def on_complete(completion: Completion) -> None:
            self._complete(event, completion)

        self._current = RequestContext(
            event.request, event.header.api_version, client_id=event.header.client_id, client_host=self._client_host,
            on_complete=on_complete,
        )  # fmt: skip
        self.broker.handle(self._current, now)

    def _complete(self, event: RequestReceived, completion: Completion) -> None:
        self._current = None
        match completion:
            case Reply(response):
                self._session.respond(event.tag, response)
            case NoReply():
                self._session.respond(event.tag, None)
            case CloseConnection(reason):
                self.is_closing = True
                if reason is not None:
                    log_closing(self.client, reason)
            case TruncatedReply(response, keep_bytes):
                self._session.respond(event.tag, response)
                # Requests before it that were answered in this same turn have frames waiting, which go out whole.
                *whole, last = self._session.frames()
                self._output += whole
                body = b"".join(last)
                self._output.append(RawBytes((len(body).to_bytes(4, "big") + body)[:keep_bytes]))
                self.is_closing = True
        self._on_ready(self)

    def _apply_session_fault(self, frame: BytesLike, now: float) -> bool:
        """Faults of what the session answers must take it before the session sees it."""
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
            case Mute():
                self._is_paused = True
            case Delay(ms):
                self._is_paused = True
                self.broker.cluster.timers.at(now + ms / 1000, lambda now: self._resume(frame, now))
        return True

    def _resume(self, frame: BytesLike, now: float) -> None:
        self._is_paused = False
        if not self.is_closing:
            self._process(frame, now)
            self._on_ready(self)
