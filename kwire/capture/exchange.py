"""A request with its response, decoded: `read_exchanges`, and what is learned from one exchange for the next ones.

Topic ids get the names that Metadata and CreateTopics responses gave them. A connection's client is what its headers
and its ApiVersions request say. Secrets are masked unless the caller asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, BinaryIO

from kwire.capture.apis import range_text
from kwire.capture.decoded_frame import DecodedFrame, decode_compiled, decode_request_frame, decode_response_frame
from kwire.capture.field_reader import FieldRow
from kwire.capture.json import ResponseError, response_errors
from kwire.capture.names import NO_ID, topic_ids
from kwire.capture.pairing import CapturedConnection, CapturedFrame, Remark, RequestPair, pair_frames
from kwire.capture.secrets import MASKED, Redaction, mask_token
from kwire.capture.streams import read_capture
from kwire.capture.tls import KeyLog
from kwire.errors import DecodeError, KwireError
from kwire.protocol import Api, ApiKey

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Exchange:
    """A request and its response; `request` or `response` is None if it is not in the capture.

    `client_id` and `software` are those of the connection, as far as the capture has shown them by then. `topic_names`
    are the names of the topic ids in the messages, {id: name}, where they are known.
    """

    pair: RequestPair
    request: DecodedFrame | None
    response: DecodedFrame | None
    client_id: str | None = None
    software: str = ""  # "librdkafka 2.16.0"; empty if the client did not say
    topic_names: dict[str, str] = field(default_factory=dict)

    @property
    def connection(self) -> CapturedConnection:
        return self.pair.connection

    @property
    def at_ns(self) -> int:
        """Nanoseconds since 1970 of the request's last byte; of the response's if there is no request."""
        return self.pair.frame.at_ns

    @property
    def time(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.at_ns // 1000)

    @property
    def api(self) -> Api | None:
        return self.pair.frame.api

    @property
    def api_name(self) -> str:
        """Return the API's name; a token of SASL without a header, and what is not known, are in brackets."""
        frame = self.pair.frame
        return frame.api.name if frame.api else "(SASL token)" if frame.is_token else "(unknown)"

    @property
    def version(self) -> int:
        return self.pair.frame.version

    @property
    def correlation_id(self) -> int | None:
        found: int | None = self.header.get("correlationId")
        return found

    @property
    def header(self) -> dict[str, Any]:
        decoded = self.request or self.response
        return decoded.header if decoded else {}

    @property
    def latency_ms(self) -> float | None:
        return self.pair.latency_ms

    @property
    def request_bytes(self) -> int:
        return _size(self.pair.request)

    @property
    def response_bytes(self) -> int:
        return _size(self.pair.response)

    @property
    def packets(self) -> tuple[int, ...]:
        """Return the numbers of the packets with the last byte of the request and of the response."""
        return tuple(frame.packet for frame in (self.pair.request, self.pair.response) if frame is not None)

    @property
    def is_guess(self) -> bool:
        """Return whether the request is missing, and the response is decoded as the API that fits."""
        return self.pair.response is not None and self.pair.response.is_guess

    @cached_property
    def errors(self) -> list[ResponseError]:
        """Return the error codes in the response that are not 0."""
        return list(response_errors(self.response.message)) if self.response else []

    @property
    def problems(self) -> list[KwireError]:
        """Return what could not be decoded."""
        return [problem for decoded in (self.request, self.response) if decoded for problem in decoded.problems]


def read_exchanges(
    source: str | os.PathLike[str] | BinaryIO, *, ports: Collection[int] = (), redaction: Redaction = MASKED,
    on_remark: Callable[[Remark], object] | None = None, key_log: KeyLog | None = None,
) -> Iterator[Exchange]:  # fmt: skip
    """Yield the exchanges of a capture, each as soon as it is complete.

    `source` is a file or its path: pcap or pcapng, also in gzip. With `ports`, only connections to brokers on these
    ports are read. `on_remark` gets what could not be read; `redaction` says what is masked. `key_log` has the secrets
    of TLS connections: `kwire.capture.KeyLog(path)`.
    """
    decoder = ExchangeDecoder(redaction=redaction)
    with open(source, "rb") if isinstance(source, str | os.PathLike) else nullcontext(source) as file:
        for found in pair_frames(read_capture(file, ports=ports, key_log=key_log)):
            if not isinstance(found, Remark):
                yield decoder.decode(found)
            elif on_remark is not None:
                on_remark(found)


class ExchangeDecoder:
    """Decodes pairs in their order. With `annotate`, also which bytes are which field."""

    def __init__(self, *, annotate: bool = False, redaction: Redaction = MASKED) -> None:
        self._annotate = annotate
        self._redaction = redaction
        self._topic_names: dict[str, str] = {}
        self._clients: dict[int, tuple[str | None, str]] = {}  # connection -> client id, software

    @staticmethod
    def must_see(pair: RequestPair) -> bool:
        """Return whether later exchanges can only be explained with this one."""
        api = pair.frame.api
        return api is not None and api.key in _TEACHERS

    def decode(self, pair: RequestPair) -> Exchange:
        """Decode both messages of a pair, and learn from them."""
        request, response = (self._decode(frame) if frame else None for frame in (pair.request, pair.response))
        exchange = Exchange(pair, request, response)
        self._learn_client(exchange)
        self._learn_topic_names(exchange)
        self._look_up_topic_names(exchange)
        return exchange

    def _decode(self, frame: CapturedFrame) -> DecodedFrame:
        return _read(mask_captured(frame, self._redaction), self._annotate)

    def _learn_client(self, exchange: Exchange) -> None:
        number = exchange.connection.number
        client_id, software = self._clients.get(number, (None, ""))
        if exchange.request is not None:
            client_id = exchange.request.header.get("clientId", client_id)
            body = exchange.request.body
            if exchange.api is not None and exchange.api.key == ApiKey.API_VERSIONS and body is not None:
                name, version = (getattr(body, "client_software_" + part, "") for part in ("name", "version"))
                software = f"{name} {version}".strip() or software
        exchange.client_id, exchange.software = self._clients[number] = (client_id, software)

    def _learn_topic_names(self, exchange: Exchange) -> None:
        if exchange.api is None or exchange.api.key not in _TOPIC_TEACHERS or exchange.response is None:
            return
        for topic in (exchange.response.message or {}).get("topics") or ():
            if topic.get("name") and topic.get("topicId", NO_ID) != NO_ID:
                self._topic_names[topic["topicId"]] = topic["name"]

    def _look_up_topic_names(self, exchange: Exchange) -> None:
        if not self._topic_names:
            return
        for decoded in (exchange.request, exchange.response):
            if decoded is not None and decoded.body is not None and _has_topic_ids(type(decoded.body)):
                for id in topic_ids(decoded.message):
                    if id in self._topic_names:
                        exchange.topic_names[id] = self._topic_names[id]


_TOPIC_TEACHERS = frozenset({ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_TOPIC_PARTITIONS})
_TEACHERS = _TOPIC_TEACHERS | {ApiKey.API_VERSIONS}


def _has_topic_ids(cls: Any) -> bool:
    return any(
        one.name == "topic_id" or _has_topic_ids(getattr(one.type, "element", one.type))
        for one in getattr(cls, "FIELDS", ())
    )


def mask_captured(frame: CapturedFrame, redaction: Redaction) -> CapturedFrame:
    """Return the frame with its secrets masked."""
    if frame.is_token and redaction.secrets:
        return replace(frame, data=mask_token(frame.data))
    if redaction.concerns(frame.api):
        return replace(frame, data=redaction.mask_frame(frame.data, _read(frame, annotate=True), 0))
    return frame


def _read(frame: CapturedFrame, annotate: bool) -> DecodedFrame:
    found = frame.api
    if frame.is_token or (found is None and frame.kind == "response"):
        what = "a SASL token without a header" if frame.is_token else "a response whose request is not in the capture"
        decoded = DecodedFrame(frame.kind)
        decoded.rows.append(FieldRow(0, frame.data, "token" if frame.is_token else "frame", "bytes", frame.data, what))
    elif found is not None and frame.version not in found.versions:
        decoded = _decode_unknown_version(frame, found)
    elif frame.kind == "request":
        if annotate or found is None or frame.missing:
            decoded = decode_request_frame(frame.data, 0)
        else:
            decoded = decode_compiled(frame.data, "request", found, frame.version)
    else:
        assert found is not None
        if annotate or frame.missing:
            decoded = decode_response_frame(frame.data, 0, found, frame.version)
        else:
            decoded = decode_compiled(frame.data, "response", found, frame.version)
    if frame.missing:
        whole = len(frame.data) + frame.missing
        message = f"{frame.missing} bytes of the frame's {whole} were not captured"
        # This says more than the decoder's error at the missing end.
        decoded.problems[:] = [DecodeError(message, api=frame.api.name if frame.api else None, offset=len(frame.data))]
    return decoded


def _decode_unknown_version(frame: CapturedFrame, found: Api) -> DecodedFrame:
    if frame.kind == "request":
        return decode_request_frame(frame.data, 0)
    decoded = DecodedFrame("response", found, frame.version)
    decoded.rows.append(FieldRow(0, frame.data, "frame", "?", None, "not read"))
    message = f"kwire knows {found.name} in versions {range_text(found.versions)}, not {frame.version}"
    decoded.problems.append(DecodeError(message, api=found.name, version=frame.version))
    return decoded


def _size(frame: CapturedFrame | None) -> int:
    return 0 if frame is None else len(frame.data) + frame.missing
