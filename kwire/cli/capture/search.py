"""Where a frame begins in a stream that was joined midway or lost bytes.

A request is known by its header: a key and version that exist, a client id that fits and is text. A response has only a
correlation id, so it is known by the ids that requests wait for. Both are believed where a segment begins, as most
frames do; elsewhere only if the frame is there whole and decodes from its first byte to its last, since four zeros or a
small number are common in any data. A response whose correlation id is 4 begins as a Produce v4 does: so what is there
of a request has to make sense, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from struct import Struct

from kwire.cli.capture.framing import FRAME_SIZE_MAX, SIZE_BYTES
from kwire.errors import DecodeError, KwireError
from kwire.protocol import ApiKey, api
from kwire.protocol.diagnose import annotate
from kwire.protocol.headers import decode_request, request_header_version

_KEYS = frozenset(ApiKey)
_KEY_VERSION_ID = Struct(">hhi")
_HEADER_BYTES_MIN = SIZE_BYTES + _KEY_VERSION_ID.size
_CLIENT_ID_BYTES_MAX = 255
# Size, key, version, correlation id (not negative), length of the client id.
_LIKE_A_REQUEST = re.compile(
    rb"(?=[\x00-\x0c][\s\S]{3}\x00[\x00-%b]\x00[\x00-\x14][\x00-\x7f][\s\S]{3}(?:\xff\xff|\x00))"
    % re.escape(bytes([max(_KEYS)]))
)


def is_request(buffer: bytes, pos: int = 0) -> bool | None:
    """Whether a request with its size seems to begin at a position. None: too few bytes to tell."""
    if len(buffer) - pos < _HEADER_BYTES_MIN:
        return None
    size = int.from_bytes(buffer[pos : pos + SIZE_BYTES], "big", signed=True)
    key, version, correlation_id = _KEY_VERSION_ID.unpack_from(buffer, pos + SIZE_BYTES)
    if not _KEY_VERSION_ID.size <= size <= FRAME_SIZE_MAX or key not in _KEYS or correlation_id < 0:
        return False
    found = api(key)
    # A client may be newer than we are, above all when it asks for the versions.
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
    """Where the first request begins."""
    for mark in marks:
        if is_request(buffer, mark) and _makes_sense(buffer, mark):
            return mark
    for match in _LIKE_A_REQUEST.finditer(buffer):
        pos = match.start()
        if is_request(buffer, pos) and _whole(buffer, pos, _is_whole_request):
            return pos
    return None


# As much of a request that is not there yet is taken for zeros.
_PADDING = bytes(1 << 18)


def _makes_sense(buffer: bytes, pos: int) -> bool:
    """Whether what is there of a request, with its size at `pos`, can be the beginning of one."""
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
    """Where the first response begins to one of the requests that wait, or a row of frames that ends as the bytes do.

    `decodes` tells of a frame whether it is whole.
    """
    awaited = {id_.to_bytes(4, "big", signed=True) for id_ in correlation_ids}
    for mark in marks:
        id_ = buffer[mark + SIZE_BYTES : mark + SIZE_BYTES + 4]
        if id_ in awaited and _plausible_size(buffer, mark):
            return mark
    for mark in marks:
        if _ends_with_the_bytes(buffer, mark):
            return mark
    found = [pos for id_ in awaited if (pos := _find_whole(buffer, id_, decodes)) is not None]
    return min(found, default=None)


def _find_whole(buffer: bytes, id_: bytes, decodes: Callable[[bytes], bool]) -> int | None:
    """Where the first whole frame with a correlation id begins."""
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
    """Whether frames, one after the other from a position, end exactly where the bytes do."""
    while pos + SIZE_BYTES + 4 <= len(buffer):
        size = int.from_bytes(buffer[pos : pos + SIZE_BYTES], "big", signed=True)
        if size < 4:
            return False
        pos += SIZE_BYTES + size
        if pos == len(buffer):
            return True
    return False
