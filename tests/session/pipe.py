"""A client's session and a broker's, connected by a byte stream that may be cut anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kwire.protocol import Request, Response
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.session import ConnectionBroken, Event, RequestReceived, Session
from kwire.wire.frame import SIZE, BytesLike, FrameReader

Cut = Callable[[bytes], list[bytes]]


def whole(stream: bytes) -> list[bytes]:
    return [stream]


def byte_by_byte(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


def cut_at(position: int) -> Cut:
    return lambda stream: [stream[:position], stream[position:]]


def metadata(node: int = 1) -> MetadataResponse:
    broker = MetadataResponse.Broker(node_id=node, host="h", port=1)
    return MetadataResponse(brokers=[broker], topics=[])


def empty_metadata(request: Request[Any]) -> Response:
    assert isinstance(request, MetadataRequest)
    return metadata()


class Pipe:
    """`run` carries bytes both ways until there are none. `respond` makes the responses (None: no response)."""

    def __init__(
        self,
        client: Session,
        broker: Session,
        *,
        cut: Cut = whole,
        respond: Callable[[Request[Any]], Response | None] = empty_metadata,
    ) -> None:
        self.client, self.broker = client, broker
        self.cut, self.respond = cut, respond
        self.client_events: list[Event] = []
        self.broker_events: list[Event] = []
        self.requests: list[RequestReceived] = []
        self._readers = {client: FrameReader(), broker: FrameReader()}

    def run(self, now: float = 0.0) -> list[Event]:
        """Return the events of the client."""
        before = len(self.client_events)
        while self.client.has_frames or self.broker.has_frames:
            for frame in self._carry(self.client, self.broker):
                for event in self.broker.receive(frame, now):
                    self._on_broker(event)
            for frame in self._carry(self.broker, self.client):
                self.client_events += self.client.receive(frame, now)
        return self.client_events[before:]

    def _carry(self, source: Session, sink: Session) -> list[BytesLike]:
        frames: list[BytesLike] = []
        for parts in source.frames():
            frame = b"".join(parts)
            for piece in self.cut(SIZE.pack(len(frame)) + frame):
                frames += self._readers[sink].feed(piece)
        return frames

    def _on_broker(self, event: Event) -> None:
        self.broker_events.append(event)
        if isinstance(event, RequestReceived):
            self.requests.append(event)
            response = self.respond(event.request)
            if response is not None:
                self.broker.respond(event.tag, response)


def broken(events: list[Event]) -> Any:
    """Return the error of the ConnectionBroken that ends these events."""
    assert events
    event = events[-1]
    assert isinstance(event, ConnectionBroken), events
    return event.error
