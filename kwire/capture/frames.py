"""Kafka's frames out of a byte stream with gaps.

In step, each frame's size says where the next frame begins. A gap inside a frame of known size loses the end of that
frame only. After any other gap, or in a connection whose beginning was not captured, the next frame must be found.

A request is recognized by its header: an API key and version that exist, and a client id that fits and is text. A
response has only a correlation id, so it is recognized by the ids of requests in flight. At the start of a segment,
where most frames begin, that is enough. Elsewhere the frame must be complete and must decode to its last byte, because
four zeros or a small number are common in any data. A response with correlation id 4 begins like a Produce v4 request,
so what is there of a request must make sense, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple, TypeAlias

from kwire.capture.tcp import Event, Gap, StreamData
from kwire.errors import DecodeError, KwireError
from kwire.protocol import ApiKey, api
from kwire.protocol.diagnose import annotate
from kwire.protocol.headers import decode_request, request_header_version

SIZE_BYTES = 4
# The largest plausible size: twice Kafka's limit for requests, because responses may be larger.
FRAME_SIZE_MAX = 200 * 1024 * 1024
# How many bytes are kept while no frame is found.
SEARCHED_BYTES_MAX = 64 * 1024

# Where a frame begins in a buffer, given the positions at which segments began.
Search: TypeAlias = Callable[[bytes, Sequence[int]], int | None]


class StreamFrame(NamedTuple):
    """A frame without its size. `missing` bytes of its end are not in the capture, or beyond the limit.

    `is_unfinished`: nothing shows that they were ever sent.
    """

    data: bytes
    missing: int
    packet: int
    at_ns: int
    is_unfinished: bool = False


class Skipped(NamedTuple):
    """Bytes that belong to no frame; `lost` of them were not captured."""

    size: int
    lost: int


class FrameParser:
    """The frames of one direction. `frame_bytes_max` limits what is kept of one."""

    def __init__(self, search: Search, *, frame_bytes_max: int, in_step: bool) -> None:
        self._search = search
        self._frame_bytes_max = frame_bytes_max
        self._in_step = in_step
        self._buffer = bytearray()
        self._marks: list[int] = []  # while searching: positions in the buffer where segments begin
        self._skip_remaining = 0  # bytes still to come of a frame that was already returned
        self._skipped = self._lost = 0
        self._packet = self._at_ns = 0

    def feed(self, event: Event) -> Iterator[StreamFrame | Skipped]:
        yield from self._piece(event) if isinstance(event, StreamData) else self._gap(event)

    def finish(self, *, is_whole: bool) -> Iterator[StreamFrame | Skipped]:
        """Yield what is left at the end. `is_whole`: nothing after the last byte is known to be lost."""
        if self._in_step and len(self._buffer) >= SIZE_BYTES:
            yield self._take()._replace(is_unfinished=is_whole)
        self._skip(len(self._buffer))
        yield from self._report()

    def _piece(self, piece: StreamData) -> Iterator[StreamFrame | Skipped]:
        data = piece.data[self._pass(len(piece.data)) :]
        if not data:
            return
        self._packet, self._at_ns = piece.packet, piece.at_ns
        if not self._in_step and piece.is_start and len(data) == len(piece.data):
            self._marks.append(len(self._buffer))
        self._buffer += data
        while self._in_step or self._find():
            yield from self._report()
            if len(self._buffer) < SIZE_BYTES:
                return
            size = self._size()
            if not 0 <= size <= FRAME_SIZE_MAX:
                self._in_step = False  # not a size: search for one
                self._marks = []
                self._skip(1)
            elif len(self._buffer) - SIZE_BYTES < min(size, self._frame_bytes_max):
                return
            else:
                yield self._take()

    def _gap(self, gap: Gap) -> Iterator[StreamFrame | Skipped]:
        size = gap.size - self._pass(gap.size)
        if size and self._in_step and len(self._buffer) >= SIZE_BYTES:
            yield self._take()
            size -= self._pass(size)
        if size:
            self._in_step = False
            self._skip(len(self._buffer))
            self._lost += size

    def _pass(self, size: int) -> int:
        """Return how many of the next `size` bytes belong to a frame that was already returned."""
        passed = min(self._skip_remaining, size)
        self._skip_remaining -= passed
        return passed

    def _size(self) -> int:
        return int.from_bytes(self._buffer[:SIZE_BYTES], "big", signed=True)

    def _take(self) -> StreamFrame:
        """Return the frame at the front of the buffer, complete or not; skip the rest of it when it arrives."""
        size = self._size()
        data = bytes(self._buffer[SIZE_BYTES : SIZE_BYTES + min(size, self._frame_bytes_max)])
        end = min(SIZE_BYTES + size, len(self._buffer))
        self._skip_remaining = SIZE_BYTES + size - end
        del self._buffer[:end]
        return StreamFrame(data, size - len(data), self._packet, self._at_ns)

    def _find(self) -> bool:
        """Return whether a frame was found; it is then at the front of the buffer."""
        found = self._search(bytes(self._buffer), self._marks) if self._buffer else None
        if found is None:
            excess = len(self._buffer) - SEARCHED_BYTES_MAX
            if excess > 0:
                self._skip(excess)
            return False
        self._skip(found)
        self._in_step = True
        return True

    def _skip(self, size: int) -> None:
        self._skipped += size
        del self._buffer[:size]
        self._marks = [mark - size for mark in self._marks if mark >= size]

    def _report(self) -> Iterator[Skipped]:
        if self._skipped or self._lost:
            yield Skipped(self._skipped, self._lost)
            self._skipped = self._lost = 0


_KEYS = frozenset(ApiKey)
_KEY_VERSION_ID = Struct(">hhi")
_HEADER_BYTES_MIN = SIZE_BYTES + _KEY_VERSION_ID.size
_CLIENT_ID_BYTES_MAX = 255
# Size, key, version, correlation id (not negative), length of the client id.
_REQUEST_PATTERN = re.compile(
    rb"(?=[\x00-\x0c][\s\S]{3}\x00[\x00-%b]\x00[\x00-\x14][\x00-\x7f][\s\S]{3}(?:\xff\xff|\x00))"
    % re.escape(bytes([max(_KEYS)]))
)


def is_request(buffer: bytes, pos: int = 0) -> bool | None:
    """Return whether a request with its size seems to begin at a position; None if there are too few bytes."""
    if len(buffer) - pos < _HEADER_BYTES_MIN:
        return None
    size = int.from_bytes(buffer[pos : pos + SIZE_BYTES], "big", signed=True)
    key, version, correlation_id = _KEY_VERSION_ID.unpack_from(buffer, pos + SIZE_BYTES)
    if not _KEY_VERSION_ID.size <= size <= FRAME_SIZE_MAX or key not in _KEYS or correlation_id < 0:
        return False
    found = api(key)
    # A client may be newer than kwire, above all in its ApiVersions request.
    if version not in found.versions and not (key == ApiKey.API_VERSIONS and 0 <= version < found.versions.stop + 20):
        return False
    if request_header_version(key, found.request.FLEXIBLE, version) == 0:
        return True
    begin = pos + _HEADER_BYTES_MIN + 2
    if len(buffer) < begin:
        return None
    length = int.from_bytes(buffer[begin - 2 : begin], "big", signed=True)
    if length == -1:
        return True
    if not 0 <= length <= min(_CLIENT_ID_BYTES_MAX, size - _KEY_VERSION_ID.size - 2):
        return False
    if len(buffer) < begin + length:
        return None
    try:
        return buffer[begin : begin + length].decode().isprintable()
    except UnicodeDecodeError:
        return False


def find_request(buffer: bytes, marks: Sequence[int]) -> int | None:
    """Return where the first request begins."""
    for mark in marks:
        if is_request(buffer, mark) and _makes_sense(buffer, mark):
            return mark
    for match in _REQUEST_PATTERN.finditer(buffer):
        pos = match.start()
        if is_request(buffer, pos) and _whole(buffer, pos, _is_whole_request):
            return pos
    return None


# Zeros for the bytes of a request that have not arrived.
_PADDING = bytes(1 << 18)


def _makes_sense(buffer: bytes, pos: int) -> bool:
    """Return whether the available bytes of a request, with its size at `pos`, can be the beginning of one."""
    begin = pos + SIZE_BYTES
    size = int.from_bytes(buffer[pos:begin], "big")
    frame = buffer[begin : begin + size]
    if len(frame) == size:
        return _is_whole_request(frame)
    key, version, _ = _KEY_VERSION_ID.unpack_from(frame)
    cls = api(key).request
    form = request_header_version(key, cls.FLEXIBLE, version)
    body = _KEY_VERSION_ID.size
    if form >= 1:
        body += 2 + max(0, int.from_bytes(frame[body : body + 2], "big", signed=True))
    if form >= 2:
        body += 1  # no tagged fields: Kafka has defined none for headers
    if version not in cls.VERSIONS or body >= len(frame):
        return True
    padded = frame + _PADDING[: size - len(frame)]
    error = annotate(cls, padded, version, body)[-1].value
    return not isinstance(error, DecodeError) or int(str(error.where["offset"])) >= len(frame)


def find_response(
    buffer: bytes, marks: Sequence[int], correlation_ids: Iterable[int], decodes: Callable[[bytes], bool]
) -> int | None:
    """Return where the first response to a request in flight begins, or the first of frames that end with the bytes.

    `decodes` returns whether a frame is complete and valid.
    """
    expected_ids = {id_.to_bytes(4, "big", signed=True) for id_ in correlation_ids}
    for mark in marks:
        id_ = buffer[mark + SIZE_BYTES : mark + SIZE_BYTES + 4]
        if id_ in expected_ids and _plausible_size(buffer, mark):
            return mark
    for mark in marks:
        if _ends_with_the_bytes(buffer, mark):
            return mark
    found = [pos for id_ in expected_ids if (pos := _find_whole(buffer, id_, decodes)) is not None]
    return min(found, default=None)


def _find_whole(buffer: bytes, id_: bytes, decodes: Callable[[bytes], bool]) -> int | None:
    """Return where the first complete frame with a correlation id begins."""
    at = buffer.find(id_, SIZE_BYTES)
    while at >= 0:
        pos = at - SIZE_BYTES
        if _plausible_size(buffer, pos) and _whole(buffer, pos, decodes):
            return pos
        at = buffer.find(id_, at + 1)
    return None


def _plausible_size(buffer: bytes, pos: int) -> bool:
    return 4 <= int.from_bytes(buffer[pos : pos + SIZE_BYTES], "big", signed=True) <= FRAME_SIZE_MAX


def _whole(buffer: bytes, pos: int, decodes: Callable[[bytes], bool]) -> bool:
    begin = pos + SIZE_BYTES
    end = begin + int.from_bytes(buffer[pos:begin], "big")
    return end <= len(buffer) and decodes(buffer[begin:end])


def _is_whole_request(frame: bytes) -> bool:
    try:
        decode_request(frame)
    except KwireError:
        return False
    return True


def _ends_with_the_bytes(buffer: bytes, pos: int) -> bool:
    """Return whether consecutive frames from a position end exactly at the last byte."""
    while pos + SIZE_BYTES + 4 <= len(buffer):
        size = int.from_bytes(buffer[pos : pos + SIZE_BYTES], "big", signed=True)
        if size < 4:
            return False
        pos += SIZE_BYTES + size
        if pos == len(buffer):
            return True
    return False
