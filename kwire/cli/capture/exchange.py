"""Which response belongs to which request of a connection.

A response does not say what it is, so the parser keeps the API and version of each request in flight. The request of an
early response may not be in the capture. Such a response waits for a few requests, which show the APIs and versions of
this client, and is then decoded as the most frequent one that fits (`is_guess`). What waits is bounded.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kwire.cli.capture.frames import FrameParser, Skipped, StreamFrame, find_request, find_response, is_request
from kwire.cli.capture.tcp import Event
from kwire.errors import KwireError
from kwire.protocol import Api, ApiKey, api
from kwire.protocol.headers import decode_request, decode_response
from kwire.protocol.messages.produce import ProduceRequest

Kind: TypeAlias = Literal["request", "response"]

_AWAITED_MAX = 10_000
_HELD_MAX = 32
_HELD_BYTES_MAX = 1024 * 1024
_HELD_REQUESTS = 8  # a response is held while so many requests come
_SEARCHED_IDS = 8

_SASL_HANDSHAKE_OF_RAW_TOKENS = 0
_UNSUPPORTED_VERSION = (35).to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class CapturedConnection:
    """Who talks to whom; `number` counts the connections of Kafka from 1."""

    number: int
    client: str
    broker: str

    def __str__(self) -> str:
        return f"{self.client} > {self.broker}"


@dataclass(frozen=True, slots=True)
class CapturedFrame:
    """A request or a response. `data` is the frame without its size, `missing` bytes of its end are not there.

    `api` and `version` are what a request says and what it promises of its response; None and -1 where that is unknown
    or the frame is a bare SASL token (`is_token`). `packet` and `at_ns` are those of its last byte, `latency_ns` is a
    response's since its request. `is_guess`: the request was not seen, and this is what the bytes make sense as.
    `request` counts the requests of the connection from 1; a response has the number of the one that it answers, 0 if
    that was not seen. A request that is not `expects_response` gets none by the protocol (Produce with acks 0).
    """

    connection: CapturedConnection
    kind: Kind
    api: Api | None
    version: int
    data: bytes
    missing: int
    packet: int
    at_ns: int
    latency_ns: int | None = None
    is_guess: bool = False
    is_token: bool = False
    request: int = 0
    expects_response: bool = True


@dataclass(frozen=True, slots=True)
class ResponseMissing:
    """No answer to this request of the connection is in the capture, or will be."""

    connection: CapturedConnection
    request: int


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a person should know of a capture. `is_problem`: bytes were lost on the way."""

    text: str
    connection: CapturedConnection | None = None
    is_problem: bool = False


CaptureEvent: TypeAlias = CapturedFrame | ResponseMissing | Remark


@dataclass(slots=True)
class _InFlightRequest:
    """What a request says of its response."""

    correlation_id: int
    api: Api | None
    version: int
    at_ns: int
    request: int
    is_token: bool = False


@dataclass(slots=True)
class _UnmatchedResponse:
    """A response whose request was not seen, and how many requests are still waited for."""

    frame: StreamFrame
    patience: int


class ResponseMatcher:
    """The requests and responses of a connection whose client is known."""

    def __init__(self, connection: CapturedConnection, client: int, frame_bytes_max: int, *, in_step: bool) -> None:
        self.connection = connection
        self._client = client
        requests = FrameParser(find_request, frame_bytes_max=frame_bytes_max, in_step=in_step)
        responses = FrameParser(self._find_response, frame_bytes_max=frame_bytes_max, in_step=in_step)
        self._cutters = (requests, responses) if client == 0 else (responses, requests)
        self._requests = 0
        self._awaited: deque[_InFlightRequest] = deque()
        self._held: deque[_UnmatchedResponse] = deque()
        self._spoken: Counter[tuple[Api, int]] = Counter()
        self._has_raw_tokens = False

    def take(self, side: int, event: Event) -> Iterator[CaptureEvent]:
        for cut in self._cutters[side].feed(event):
            yield from self._cut(side, cut)

    def finish(self) -> Iterator[CaptureEvent]:
        for side, cutter in enumerate(self._cutters):
            for cut in cutter.finish():
                yield from self._cut(side, cut)
        while self._held:
            yield self._guessed(self._held.popleft().frame)
        if self._awaited:
            names = Counter(awaited.api.name if awaited.api else "unknown" for awaited in self._awaited)
            listed = ", ".join(f"{count} {name}" for name, count in names.most_common())
            yield from self._unanswered(len(self._awaited))
            yield Remark(f"no answer was captured to {listed}", self.connection)

    def _cut(self, side: int, cut: StreamFrame | Skipped) -> Iterator[CaptureEvent]:
        is_request_side = side == self._client
        if isinstance(cut, Skipped):
            whose = "requests" if is_request_side else "responses"
            lost = f"{cut.lost} bytes that were not captured" if cut.lost else ""
            left = f"{cut.size} bytes that belong to no frame" if cut.size else ""
            text = f"among the {whose}: {' and '.join(filter(None, (lost, left)))}"
            yield Remark(text, self.connection, is_problem=bool(cut.lost))
        elif is_request_side:
            yield from self._request(cut)
        else:
            yield from self._response(cut)

    def _request(self, frame: StreamFrame) -> Iterator[CaptureEvent]:
        sized = (len(frame.data) + frame.missing).to_bytes(4, "big") + frame.data
        is_token = self._has_raw_tokens and not is_request(sized)
        found, version, correlation_id = (None, -1, 0) if is_token else _promise(frame.data)
        if not is_token:
            self._has_raw_tokens = False
        self._requests += 1
        awaits_answer = len(frame.data) >= 8 and _expects_response(frame.data, found)
        yield CapturedFrame(
            self.connection, "request", found, version, frame.data, frame.missing, frame.packet, frame.at_ns,
            is_token=is_token, request=self._requests, expects_response=awaits_answer,
        )  # fmt: skip
        if found is not None:
            self._spoken[found, version] += 1
            if found.key == ApiKey.SASL_HANDSHAKE and version == _SASL_HANDSHAKE_OF_RAW_TOKENS:
                self._has_raw_tokens = True
        if awaits_answer:
            awaited = _InFlightRequest(correlation_id, found, version, frame.at_ns, self._requests, is_token)
            held = next((one for one in self._held if not is_token and _id_of(one.frame) == correlation_id), None)
            if held is None:
                self._awaited.append(awaited)
                yield from self._unanswered(len(self._awaited) - _AWAITED_MAX)
            else:
                # It came before its request, which had to wait behind a gap.
                self._held.remove(held)
                yield self._answer(held.frame, awaited)
        yield from self._lose_patience()

    def _response(self, frame: StreamFrame) -> Iterator[CaptureEvent]:
        correlation_id = _id_of(frame)
        for index, awaited in enumerate(self._awaited):
            if awaited.is_token or awaited.correlation_id == correlation_id:
                # Brokers answer in order: what was asked before this has no answer in the capture.
                yield from self._unanswered(index)
                yield self._answer(frame, self._awaited.popleft())
                return
        self._held.append(_UnmatchedResponse(frame, _HELD_REQUESTS))
        while len(self._held) > _HELD_MAX or sum(len(held.frame.data) for held in self._held) > _HELD_BYTES_MAX:
            yield self._guessed(self._held.popleft().frame)

    def _unanswered(self, requests: int) -> Iterator[ResponseMissing]:
        """Wait no longer for the answers to the eldest requests."""
        for _ in range(requests):
            yield ResponseMissing(self.connection, self._awaited.popleft().request)

    def _lose_patience(self) -> Iterator[CaptureEvent]:
        for held in self._held:
            held.patience -= 1
        while self._held and self._held[0].patience <= 0:
            yield self._guessed(self._held.popleft().frame)

    def _answer(self, frame: StreamFrame, awaited: _InFlightRequest) -> CapturedFrame:
        version = awaited.version
        if awaited.api and awaited.api.key == ApiKey.API_VERSIONS and frame.data[4:6] == _UNSUPPORTED_VERSION:
            version = 0  # in which a broker answers a version that it does not know
        return CapturedFrame(
            self.connection, "response", awaited.api, version, frame.data, frame.missing, frame.packet, frame.at_ns,
            latency_ns=frame.at_ns - awaited.at_ns, is_token=awaited.is_token, request=awaited.request,
        )  # fmt: skip

    def _guessed(self, frame: StreamFrame) -> CapturedFrame:
        """A response whose request was not seen, as the most frequent of what this client speaks that it fits."""
        for (found, version), _ in self._spoken.most_common():
            if not frame.missing and _decodes(frame.data, found, version):
                break
        else:
            return CapturedFrame(
                self.connection, "response", None, -1, frame.data, frame.missing, frame.packet, frame.at_ns
            )
        return CapturedFrame(
            self.connection, "response", found, version, frame.data, frame.missing, frame.packet, frame.at_ns,
            is_guess=True,
        )  # fmt: skip

    def _find_response(self, buffer: bytes, marks: Iterable[int]) -> int | None:
        awaited = [one for one in self._awaited if not one.is_token][:_SEARCHED_IDS]
        by_id = {one.correlation_id: one for one in awaited}

        def decodes(frame: bytes) -> bool:
            one = by_id[int.from_bytes(frame[:4], "big", signed=True)]
            return one.api is not None and _decodes(frame, one.api, one.version)

        return find_response(buffer, list(marks), by_id, decodes)


def _promise(frame: bytes) -> tuple[Api | None, int, int]:
    """(API, version, correlation id) as a request's header says."""
    if len(frame) < 8:
        return None, -1, 0
    key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
    correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
    try:
        return api(key), version, correlation_id
    except KwireError:
        return None, -1, correlation_id


def _expects_response(frame: bytes, found: Api | None) -> bool:
    """Every request does, but for Produce with acks=0."""
    if found is None or found.key != ApiKey.PRODUCE:
        return True
    try:
        _, request = decode_request(frame)
    except KwireError:
        return True
    assert isinstance(request, ProduceRequest)
    return request.acks != 0


def _id_of(frame: StreamFrame) -> int | None:
    return int.from_bytes(frame.data[:4], "big", signed=True) if len(frame.data) >= 4 else None


def _decodes(frame: bytes, found: Api, version: int) -> bool:
    try:
        decode_response(frame, found.request, version)
    except KwireError:
        return False
    return True


PENDING_BYTES_MAX = 16 * 1024 * 1024
PENDING_MAX = 20_000


@dataclass(frozen=True, slots=True)
class RequestPair:
    """A request and the response to it; one of them may not be in the capture."""

    connection: CapturedConnection
    request: CapturedFrame | None
    response: CapturedFrame | None

    @property
    def frame(self) -> CapturedFrame:
        """The one that says more: of which API and version, and when it began."""
        frame = self.request or self.response
        assert frame is not None
        return frame

    @property
    def latency_ms(self) -> float | None:
        """From the request's last byte to the response's."""
        if self.response is None or self.response.latency_ns is None:
            return None
        return self.response.latency_ns / 1_000_000


def pair_frames(found: Iterable[CaptureEvent]) -> Iterator[RequestPair | Remark]:
    """Pairs, in the order in which they became whole, with the remarks where they were made."""
    held: OrderedDict[tuple[int, int], CapturedFrame] = OrderedDict()
    held_bytes = 0
    for one in found:
        if isinstance(one, Remark):
            yield one
            continue
        key = (one.connection.number, one.request)
        if isinstance(one, CapturedFrame) and one.kind == "request" and one.expects_response:
            held[key] = one
            held_bytes += len(one.data)
            while held_bytes > PENDING_BYTES_MAX or len(held) > PENDING_MAX:
                _, eldest = held.popitem(last=False)
                held_bytes -= len(eldest.data)
                yield RequestPair(eldest.connection, eldest, None)
            continue
        request = held.pop(key, None)
        held_bytes -= len(request.data) if request else 0
        if isinstance(one, ResponseMissing):
            if request is not None:
                yield RequestPair(one.connection, request, None)
        elif one.kind == "request":
            yield RequestPair(one.connection, one, None)
        else:
            yield RequestPair(one.connection, request, one)
    for request in held.values():
        yield RequestPair(request.connection, request, None)
