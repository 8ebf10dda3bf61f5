"""Which response belongs to which request of a connection.

A response does not say what it is, so the parser keeps the API and version of each request in flight. The request of an
early response may not be in the capture. Such a response waits for a few requests, which show the APIs and versions of
this client, and is then decoded as the most frequent one that fits (`is_guess`). What waits is bounded.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kwire.capture.frames import FrameParser, Skipped, StreamFrame, find_request, find_response, is_request
from kwire.capture.tcp import Event
from kwire.errors import KwireError
from kwire.protocol import Api, ApiKey, api
from kwire.protocol.headers import decode_request, decode_response
from kwire.protocol.messages.produce import ProduceRequest

Kind: TypeAlias = Literal["request", "response"]

_IN_FLIGHT_MAX = 10_000
_UNMATCHED_MAX = 32
_UNMATCHED_BYTES_MAX = 1024 * 1024
_UNMATCHED_REQUESTS = 8  # how many requests a response without a request waits for
_SEARCHED_IDS = 8

_SASL_HANDSHAKE_WITHOUT_AUTHENTICATE = 0
_UNSUPPORTED_VERSION = (35).to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class CapturedConnection:
    """The two sides of a connection; `number` counts Kafka connections from 1. `is_tls`: it was decrypted."""

    number: int
    client: str
    broker: str
    is_tls: bool = False

    def __str__(self) -> str:
        return f"{self.client} > {self.broker}"


@dataclass(frozen=True, slots=True)
class CapturedFrame:
    """A request or response. `data` excludes the size; `missing` bytes of its end are not there.

    `api` and `version` are those of the request; None and -1 if unknown, or for a SASL token without a header
    (`is_token`). `packet` and `at_ns` are those of the last byte; `latency_ns` counts from the request to its response.
    `is_guess`: the request was not captured, and the bytes decode as this API. `request` counts the requests of the
    connection from 1; a response has the number of its request, 0 if unknown. A Produce with acks 0 is a request
    without `expects_response`. `is_unfinished`: nothing shows that the missing bytes were ever sent.
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
    is_unfinished: bool = False


@dataclass(frozen=True, slots=True)
class ResponseMissing:
    """The response to this request of the connection is not in the capture."""

    connection: CapturedConnection
    request: int


@dataclass(frozen=True, slots=True)
class Remark:
    """Information on a capture for the user. `is_problem`: bytes were lost."""

    text: str
    connection: CapturedConnection | None = None
    is_problem: bool = False

    def __str__(self) -> str:
        """Return the text, with the connection that it is about."""
        return (
            self.text
            if self.connection is None
            else f"connection {self.connection.number} ({self.connection}): {self.text}"
        )


def is_unreadable(exchanges: int, remarks: Sequence[Remark]) -> bool:
    """Return whether a file is no capture, or one with traffic of which no exchange came out."""
    return not exchanges and bool(remarks)


def is_incomplete(exchanges: int, remarks: Sequence[Remark]) -> bool:
    """Return whether a capture is unreadable, or bytes of it were lost: what was read of it is not all."""
    return is_unreadable(exchanges, remarks) or any(remark.is_problem for remark in remarks)


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
    """A response without a captured request; `requests_left` is how many more requests to wait for."""

    frame: StreamFrame
    requests_left: int


class ResponseMatcher:
    """Matches requests and responses of a connection whose client is known."""

    def __init__(self, connection: CapturedConnection, client: int, frame_bytes_max: int, *, in_step: bool) -> None:
        self.connection = connection
        self._client = client
        requests = FrameParser(find_request, frame_bytes_max=frame_bytes_max, in_step=in_step)
        responses = FrameParser(self._find_response, frame_bytes_max=frame_bytes_max, in_step=in_step)
        self._parsers = (requests, responses) if client == 0 else (responses, requests)
        self._requests = 0
        self._in_flight: deque[_InFlightRequest] = deque()
        self._unmatched: deque[_UnmatchedResponse] = deque()
        self._versions_used: Counter[tuple[Api, int]] = Counter()
        self._sends_tokens = False

    def feed(self, side: int, event: Event) -> Iterator[CaptureEvent]:
        for found in self._parsers[side].feed(event):
            yield from self._match(side, found)

    def finish(self, whole_sides: Collection[int]) -> Iterator[CaptureEvent]:
        """Yield what is left. Of the end of `whole_sides` nothing is known to be lost."""
        for side, parser in enumerate(self._parsers):
            for found in parser.finish(is_whole=side in whole_sides):
                yield from self._match(side, found)
        while self._unmatched:
            yield self._guess(self._unmatched.popleft().frame)
        if self._in_flight:
            names = Counter(request.api.name if request.api else "unknown" for request in self._in_flight)
            listed = ", ".join(f"{count} {name}" for name, count in names.most_common())
            yield from self._stop_waiting(len(self._in_flight))
            yield Remark(f"no response was captured to {listed}", self.connection)

    def _match(self, side: int, found: StreamFrame | Skipped) -> Iterator[CaptureEvent]:
        is_request_side = side == self._client
        if isinstance(found, Skipped):
            whose = "requests" if is_request_side else "responses"
            lost = f"{found.lost} bytes that were not captured" if found.lost else ""
            left = f"{found.size} bytes that belong to no frame" if found.size else ""
            text = f"among the {whose}: {' and '.join(filter(None, (lost, left)))}"
            yield Remark(text, self.connection, is_problem=bool(found.lost))
        elif is_request_side:
            yield from self._request(found)
        else:
            yield from self._response(found)

    def _request(self, frame: StreamFrame) -> Iterator[CaptureEvent]:
        sized = (len(frame.data) + frame.missing).to_bytes(4, "big") + frame.data
        is_token = self._sends_tokens and not is_request(sized)
        found, version, correlation_id = (None, -1, 0) if is_token else _parse_request_header(frame.data)
        if not is_token:
            self._sends_tokens = False
        self._requests += 1
        expects_response = len(frame.data) >= 8 and _expects_response(frame.data, found)
        yield CapturedFrame(
            self.connection, "request", found, version, frame.data, frame.missing, frame.packet, frame.at_ns,
            is_token=is_token, request=self._requests, expects_response=expects_response,
            is_unfinished=frame.is_unfinished,
        )  # fmt: skip
        if found is not None:
            self._versions_used[found, version] += 1
            if found.key == ApiKey.SASL_HANDSHAKE and version == _SASL_HANDSHAKE_WITHOUT_AUTHENTICATE:
                self._sends_tokens = True
        if expects_response:
            request = _InFlightRequest(correlation_id, found, version, frame.at_ns, self._requests, is_token)
            response = next(
                (one for one in self._unmatched if not is_token and _id_of(one.frame) == correlation_id), None
            )
            if response is None:
                self._in_flight.append(request)
                yield from self._stop_waiting(len(self._in_flight) - _IN_FLIGHT_MAX)
            else:
                # The response was complete first: the request waited behind a gap.
                self._unmatched.remove(response)
                yield self._response_to(response.frame, request)
        yield from self._expire_unmatched()

    def _response(self, frame: StreamFrame) -> Iterator[CaptureEvent]:
        correlation_id = _id_of(frame)
        for index, request in enumerate(self._in_flight):
            if request.is_token or request.correlation_id == correlation_id:
                # Brokers respond in order: the responses to earlier requests are not in the capture.
                yield from self._stop_waiting(index)
                yield self._response_to(frame, self._in_flight.popleft())
                return
        self._unmatched.append(_UnmatchedResponse(frame, _UNMATCHED_REQUESTS))
        while (
            len(self._unmatched) > _UNMATCHED_MAX
            or sum(len(response.frame.data) for response in self._unmatched) > _UNMATCHED_BYTES_MAX
        ):
            yield self._guess(self._unmatched.popleft().frame)

    def _stop_waiting(self, requests: int) -> Iterator[ResponseMissing]:
        """Stop waiting for the responses to the oldest requests."""
        for _ in range(requests):
            yield ResponseMissing(self.connection, self._in_flight.popleft().request)

    def _expire_unmatched(self) -> Iterator[CaptureEvent]:
        for response in self._unmatched:
            response.requests_left -= 1
        while self._unmatched and self._unmatched[0].requests_left <= 0:
            yield self._guess(self._unmatched.popleft().frame)

    def _response_to(self, frame: StreamFrame, request: _InFlightRequest) -> CapturedFrame:
        version = request.version
        if request.api and request.api.key == ApiKey.API_VERSIONS and frame.data[4:6] == _UNSUPPORTED_VERSION:
            version = 0  # the version of a broker's response to an unknown version
        return CapturedFrame(
            self.connection, "response", request.api, version, frame.data, frame.missing, frame.packet, frame.at_ns,
            latency_ns=frame.at_ns - request.at_ns, is_token=request.is_token, request=request.request,
            is_unfinished=frame.is_unfinished,
        )  # fmt: skip

    def _guess(self, frame: StreamFrame) -> CapturedFrame:
        """Return a response without a captured request as the client's most frequent API and version that decode it."""
        for (found, version), _ in self._versions_used.most_common():
            if not frame.missing and _decodes(frame.data, found, version):
                break
        else:
            return CapturedFrame(
                self.connection, "response", None, -1, frame.data, frame.missing, frame.packet, frame.at_ns,
                is_unfinished=frame.is_unfinished,
            )  # fmt: skip
        return CapturedFrame(
            self.connection, "response", found, version, frame.data, frame.missing, frame.packet, frame.at_ns,
            is_guess=True,
        )  # fmt: skip

    def _find_response(self, buffer: bytes, marks: Iterable[int]) -> int | None:
        requests = [one for one in self._in_flight if not one.is_token][:_SEARCHED_IDS]
        by_id = {one.correlation_id: one for one in requests}

        def decodes(frame: bytes) -> bool:
            one = by_id[int.from_bytes(frame[:4], "big", signed=True)]
            return one.api is not None and _decodes(frame, one.api, one.version)

        return find_response(buffer, list(marks), by_id, decodes)


def _parse_request_header(frame: bytes) -> tuple[Api | None, int, int]:
    """Return (API, version, correlation id) from a request's header."""
    if len(frame) < 8:
        return None, -1, 0
    key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
    correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
    try:
        return api(key), version, correlation_id
    except KwireError:
        return None, -1, correlation_id


def _expects_response(frame: bytes, found: Api | None) -> bool:
    """Return False for a Produce with acks=0; every other request expects a response."""
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
    """A request and its response; either may be missing from the capture."""

    connection: CapturedConnection
    request: CapturedFrame | None
    response: CapturedFrame | None

    @property
    def frame(self) -> CapturedFrame:
        """Return the request, or else the response: it has the API, the version and the time."""
        frame = self.request or self.response
        assert frame is not None
        return frame

    @property
    def latency_ms(self) -> float | None:
        """Milliseconds from the last byte of the request to the last byte of the response."""
        if self.response is None or self.response.latency_ns is None:
            return None
        return self.response.latency_ns / 1_000_000


def pair_frames(found: Iterable[CaptureEvent]) -> Iterator[RequestPair | Remark]:
    """Yield pairs as soon as they are complete, and remarks as they come; one at the end is about frames cut off.

    At most PENDING_MAX requests of PENDING_BYTES_MAX bytes wait; beyond, the oldest request is a pair of its own, and
    later its response.
    """
    pending: OrderedDict[tuple[int, int], CapturedFrame] = OrderedDict()
    pending_bytes = 0
    cut = _CutFrames()
    for one in found:
        if isinstance(one, Remark):
            yield one
            continue
        if isinstance(one, CapturedFrame):
            cut.add(one)
        key = (one.connection.number, one.request)
        if isinstance(one, CapturedFrame) and one.kind == "request" and one.expects_response:
            pending[key] = one
            pending_bytes += len(one.data)
            while pending_bytes > PENDING_BYTES_MAX or len(pending) > PENDING_MAX:
                _, oldest = pending.popitem(last=False)
                pending_bytes -= len(oldest.data)
                yield RequestPair(oldest.connection, oldest, None)
            continue
        request = pending.pop(key, None)
        pending_bytes -= len(request.data) if request else 0
        if isinstance(one, ResponseMissing):
            if request is not None:
                yield RequestPair(one.connection, request, None)
        elif one.kind == "request":
            yield RequestPair(one.connection, one, None)
        else:
            yield RequestPair(one.connection, request, one)
    for request in pending.values():
        yield RequestPair(request.connection, request, None)
    yield from cut.remarks()


class _CutFrames:
    """Counts frames with missing bytes. One that was unfinished when its connection or the capture ended lost none."""

    def __init__(self) -> None:
        self._frames = self._bytes = 0

    def add(self, frame: CapturedFrame) -> None:
        if frame.missing and not frame.is_unfinished:
            self._frames += 1
            self._bytes += frame.missing

    def remarks(self) -> Iterator[Remark]:
        if self._frames:
            frames = "a frame is" if self._frames == 1 else f"{self._frames} frames are"
            yield Remark(f"{frames} cut off: {self._bytes} bytes were not captured", is_problem=True)
