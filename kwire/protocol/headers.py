"""Request and response headers, and frames: a header and its message.

Frames here exclude the four bytes of their size, which belong to the connection.

Request header v1 has API key, API version, correlation id and client id. v2, for flexible versions, adds tagged fields;
its client id is still an inflexible string, so that a broker can read the header of any request. v0, without a client
id, is that of ControlledShutdown v0 only. Response header v0 is the correlation id; v1, for flexible versions, adds
tagged fields. ApiVersions responses always have v0, because the client does not yet know the broker's versions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from struct import error as _struct_error
from typing import Any, TypeVar

from kwire.errors import DecodeError, EncodeError
from kwire.protocol.api import ApiKey, api
from kwire.protocol.codegen import DECODE_FAILURES
from kwire.protocol.primitives import read_tagged, write_tagged
from kwire.protocol.schema import BytesLike, Message, Request, Response

R = TypeVar("R", bound=Response)

_KEY_VERSION = Struct(">hh")
_KEY_VERSION_ID = Struct(">hhi")
_KEY_VERSION_ID_LENGTH = Struct(">hhih")
_ID = Struct(">i")
_LENGTH = Struct(">h")


@dataclass(slots=True)
class RequestHeader:
    """A request header of any version."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None
    unknown_tagged_fields: Mapping[int, bytes] | None = None

    def encode(self, header_version: int) -> bytes:
        """Encode the header. Raises EncodeError for a number or string that does not fit."""
        if self.unknown_tagged_fields and header_version != 2:
            raise EncodeError(f"a header of version {header_version} has no tagged fields", path="header")
        try:
            if header_version == 0:
                return _KEY_VERSION_ID.pack(self.api_key, self.api_version, self.correlation_id)
            client_id = b"" if self.client_id is None else self.client_id.encode()
            length = -1 if self.client_id is None else len(client_id)
            start = _KEY_VERSION_ID_LENGTH.pack(self.api_key, self.api_version, self.correlation_id, length)
            tags = write_tagged(self.unknown_tagged_fields or {}) if header_version == 2 else b""
        except (AttributeError, TypeError, ValueError, _struct_error) as error:
            raise EncodeError(f"cannot encode the request header: {error}", path="header") from error
        return start + client_id + tags


def request_header_version(key: int, flexible: int | None, version: int) -> int:
    """Return the header version of a request. `flexible` is the first flexible version of its API."""
    if flexible is not None and version >= flexible:
        return 2
    return 0 if key == ApiKey.CONTROLLED_SHUTDOWN and version == 0 else 1


@lru_cache(maxsize=256)
def response_header_version(key: int, flexible: int | None, version: int) -> int:
    """Return the header version of a response. `flexible` is the first flexible version of its API."""
    return 1 if flexible is not None and version >= flexible and key != ApiKey.API_VERSIONS else 0


def encode_request(
    request: Request[Any], version: int, correlation_id: int, client_id: str | None = None
) -> list[BytesLike]:
    """Encode a request frame as a list of buffers; large records are not copied. Raises EncodeError."""
    start, end = _around_id(request.API_KEY, request.FLEXIBLE, version, client_id)
    try:
        header = start + _ID.pack(correlation_id) + end
    except _struct_error as error:
        raise EncodeError(f"cannot encode the request header: {error}", path="header") from error
    return request.encode_after(header, version)


@lru_cache(maxsize=256)
def _around_id(key: int, flexible: int | None, version: int, client_id: str | None) -> tuple[bytes, bytes]:
    """Return the bytes before and after the correlation id in a client's request headers of one version."""
    header = RequestHeader(key, version, 0, client_id).encode(request_header_version(key, flexible, version))
    return header[: _KEY_VERSION.size], header[_KEY_VERSION_ID.size :]


def encode_response(response: Response, version: int, correlation_id: int) -> list[BytesLike]:
    """Encode a response frame as a list of buffers, as `encode_request` does. Raises EncodeError."""
    header = _ID.pack(correlation_id)
    if response_header_version(response.API_KEY, response.FLEXIBLE, version) == 1:
        header += b"\x00"
    return response.encode_after(header, version)


def decode_request_header(frame: BytesLike) -> tuple[RequestHeader, int]:
    """Return the header of a request frame and the position of the request.

    Raises DecodeError, and UnsupportedVersionError for an unknown API.
    """
    if len(frame) < _KEY_VERSION_ID.size:
        raise _header_error(f"{len(frame)} bytes are not a request", len(frame))
    key, version, correlation_id = _KEY_VERSION_ID.unpack_from(frame)
    return _decode_header_fields(frame, RequestHeader(key, version, correlation_id))


def _decode_header_fields(frame: BytesLike, header: RequestHeader) -> tuple[RequestHeader, int]:
    header_version = request_header_version(header.api_key, api(header.api_key).request.FLEXIBLE, header.api_version)
    pos = _KEY_VERSION_ID.size
    if header_version == 0:
        return header, pos
    try:
        (length,) = _LENGTH.unpack_from(frame, pos)
        pos += 2
        if length < -1 or pos + length > len(frame):
            raise ValueError(f"a client id of {length} bytes")
        if length >= 0:
            header.client_id = bytes(frame[pos : pos + length]).decode()
            pos += length
        if header_version == 2:
            header.unknown_tagged_fields, pos = _decode_tagged(frame, pos)
    except DECODE_FAILURES as error:
        raise _header_error(f"a bad request header: {error}", pos) from None
    return header, pos


def _decode_tagged(frame: BytesLike, pos: int) -> tuple[Mapping[int, bytes] | None, int]:
    count = frame[pos]
    return read_tagged(bytes(frame), pos + 1, len(frame), count) if count else (None, pos + 1)


def decode_request(frame: BytesLike) -> tuple[RequestHeader, Request[Any]]:
    """Decode a request frame. Raises DecodeError, and UnsupportedVersionError for an unknown API or version."""
    header, start = decode_request_header(frame)
    return header, api(header.api_key).request.decode(frame, header.api_version, start)


def decode_response(frame: BytesLike, request_class: type[Request[R]], version: int) -> tuple[int, R]:
    """Return the correlation id and the response in a frame. Raises DecodeError."""
    return peek_correlation_id(frame), decode_response_body(frame, request_class, version)


def decode_response_body(frame: BytesLike, request_class: type[Request[R]], version: int) -> R:
    """Return the response in a frame whose correlation id the caller has already checked. Raises DecodeError."""
    response: type[Message] = request_class.RESPONSE
    pos = _ID.size
    if response_header_version(request_class.API_KEY, response.FLEXIBLE, version) == 1:
        if frame[pos : pos + 1] == b"\x00":
            pos += 1
        else:
            try:
                _, pos = _decode_tagged(frame, pos)
            except DECODE_FAILURES as error:
                raise _header_error(f"a bad response header: {error}", pos) from None
    return response.decode(frame, version, pos)  # type: ignore[return-value]


def peek_correlation_id(frame: BytesLike) -> int:
    """Return the correlation id of a response frame. Raises DecodeError."""
    if len(frame) < _ID.size:
        raise _header_error(f"{len(frame)} bytes are not a response", len(frame))
    correlation_id: int = _ID.unpack_from(frame)[0]
    return correlation_id


def _header_error(reason: str, offset: int) -> DecodeError:
    return DecodeError(reason, path="header", offset=offset)
