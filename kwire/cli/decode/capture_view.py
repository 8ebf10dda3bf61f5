"""`kwire decode traffic.pcapng`: the requests of a capture with their responses and latencies.

A terminal gets a line for each pair, a pipe gets a JSON object. Each appears as soon as the pair is complete, so
`tcpdump -U -w - port 9092 | kwire decode` is a live view.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any, BinaryIO, TypeVar

import click

from kwire.cli.arguments import find_api, find_version, range_text
from kwire.cli.capture import CapturedConnection, CapturedFrame, Remark, RequestPair, pair_frames, read_capture
from kwire.cli.decode.field_reader import FieldRow
from kwire.cli.decode.frame import DecodedFrame, decode_compiled, decode_request_frame, decode_response_frame
from kwire.cli.decode.render import frame_to_json, heading, print_frame, print_problem
from kwire.cli.decode.secrets import mask_frame, mask_token, may_be_secret
from kwire.cli.error_report import ExitCode, print_error
from kwire.cli.message_json import ResponseError, response_errors
from kwire.cli.output import Output, counted, has_colour, json_line, printable
from kwire.errors import DecodeError
from kwire.protocol import Api, ApiKey

_NAMES_SHOWN_MAX = 3
_ERRORS_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class PairFilter:
    """Which pairs are printed. Pairs of unknown APIs pass only without --api."""

    apis: frozenset[ApiKey] = frozenset()
    version: int | None = None
    connections: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    errors_only: bool = False
    slower_than_ms: float | None = None

    def for_api(self, api_text: str | None, version_text: str | None) -> PairFilter:
        """Return the filter for one API, or several separated by commas. Raises UsageError."""
        apis = [find_api(text.strip()) for text in api_text.split(",")] if api_text is not None else []
        if version_text is not None and len(apis) != 1:
            raise click.UsageError("--version needs --api with one API")
        version = find_version(version_text, apis[0]) if version_text is not None else None
        return replace(self, apis=frozenset(api.key for api in apis), version=version)

    def accepts(self, pair: RequestPair) -> bool:
        """Return whether a pair passes, as far as that is known before decoding."""
        frame = pair.frame
        if self.apis and (frame.api is None or frame.api.key not in self.apis):
            return False
        if self.version is not None and frame.version != self.version:
            return False
        if self.slower_than_ms is not None and (pair.latency_ms is None or pair.latency_ms <= self.slower_than_ms):
            return False
        return not self.connections or any(_is_of(pair.connection, text) for text in self.connections)


Command = TypeVar("Command", bound=Callable[..., Any])
_OPTIONS = [
    click.option(
        "--connection", "connections", multiple=True, metavar="N|HOST:PORT|:PORT",
        help="In a capture: show only this connection, or those of this side.",
    ),
    click.option(
        "--port", "ports", multiple=True, type=click.IntRange(1, 65535), metavar="PORT",
        help="In a capture: read only brokers on this port. Default: detect brokers by their requests.",
    ),
    click.option(
        "--errors-only", is_flag=True, help="In a capture: show only error responses and undecodable frames."
    ),
    click.option(
        "--slower-than", "slower_than_ms", type=click.FloatRange(min=0), metavar="MS",
        help="In a capture: show only requests whose response took longer, in milliseconds.",
    ),
]  # fmt: skip


def filter_options(command: Command) -> Command:
    """Add --connection, --port, --errors-only and --slower-than; the command gets `filters=PairFilter`."""

    @functools.wraps(command)
    def wrapped(
        *args: Any, connections: tuple[str, ...], ports: tuple[int, ...], errors_only: bool,
        slower_than_ms: float | None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        filters = PairFilter(
            connections=connections, ports=ports, errors_only=errors_only, slower_than_ms=slower_than_ms
        )
        return command(*args, filters=filters, **kwargs)

    decorated: Any = wrapped
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _is_of(connection: CapturedConnection, text: str) -> bool:
    """Return whether the text names the connection: its number, HOST:PORT of one side, HOST or :PORT."""
    if text == str(connection.number):
        return True
    for end in (connection.client, connection.broker):
        address, _, port = end.rpartition(":")
        if text in (end, address, address.strip("[]"), f":{port}"):
            return True
    return False


@dataclass(slots=True)
class DecodedPair:
    """A request and its response, decoded."""

    pair: RequestPair
    request: DecodedFrame | None
    response: DecodedFrame | None
    errors: list[ResponseError]
    topic_names: dict[str, str] = field(default_factory=dict)  # {topic id: name}, where known

    @property
    def has_problem(self) -> bool:
        return any(decoded.problems for decoded in (self.request, self.response) if decoded)

    @property
    def header(self) -> dict[str, Any]:
        decoded = self.request or self.response
        return decoded.header if decoded else {}


def print_capture(
    file: BinaryIO, filters: PairFilter, output: Output, *, annotate: bool, bytes_max: int, show_secrets: bool = False
) -> ExitCode:
    """Print a capture to its end. UNDECODABLE if bytes made no sense or were lost, or none were Kafka's."""
    table = _PairTable(output, bytes_max if annotate else None)
    summary = _Summary()
    names = TopicNames()
    has_problem = False
    for found in pair_frames(read_capture(file, ports=filters.ports)):
        if isinstance(found, Remark):
            has_problem |= found.is_problem
            _print_remark(found, filters, output)
            continue
        summary.pairs += 1
        is_accepted = filters.accepts(found)
        if not is_accepted and not names.has_names(found):
            continue
        one = decode_pair(found, annotate=annotate, show_secrets=show_secrets)
        names.learn(one)
        if not is_accepted:
            continue
        names.look_up(one)
        if filters.errors_only and not one.errors and not one.has_problem:
            continue
        has_problem |= one.has_problem
        summary.add(one)
        if output.is_table:
            table.show(one)
        else:
            output.json(pair_to_json(one, annotate=annotate))
    if output.is_table or not summary.pairs:
        output.note(summary.text())
    if summary.unknown_responses:
        text = counted(summary.unknown_responses, "response")
        output.note(
            f"{text} ({counted(summary.unknown_bytes, 'byte')}) not decoded: the requests are not in the capture"
        )
    return ExitCode.UNDECODABLE if has_problem or not summary.pairs else ExitCode.OK


def _print_remark(remark: Remark, filters: PairFilter, output: Output) -> None:
    wanted, connection = filters.connections, remark.connection
    if wanted and connection is not None and not any(_is_of(connection, text) for text in wanted):
        return
    text = remark.text
    if remark.connection is not None:
        text = f"connection {remark.connection.number} ({remark.connection}): {text}"
    if remark.is_problem:
        print_error(text)
    else:
        output.note(text)


class TopicNames:
    """The names of topic ids, from Metadata and CreateTopics responses in the capture."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    @staticmethod
    def has_names(pair: RequestPair) -> bool:
        api = pair.frame.api
        return api is not None and api.key in _APIS_WITH_TOPIC_NAMES

    def learn(self, one: DecodedPair) -> None:
        """Store the names in a response."""
        if not self.has_names(one.pair) or one.response is None or one.response.message is None:
            return
        for topic in one.response.message.get("topics") or ():
            if topic.get("name") and topic.get("topicId", _NO_ID) != _NO_ID:
                self._names[topic["topicId"]] = topic["name"]

    def look_up(self, one: DecodedPair) -> None:
        """Set `topic_names` for the ids in a pair."""
        for decoded in (one.request, one.response):
            found: dict[str, dict[str, None]] = {}
            _collect(decoded.message if decoded else None, "", found)
            for id in found.get(_TOPIC_ID, ()):
                if id in self._names:
                    one.topic_names[id] = self._names[id]


def decode_pair(pair: RequestPair, *, annotate: bool, show_secrets: bool = False) -> DecodedPair:
    """Decode both messages of a pair; with `annotate` field by field. Secrets are masked by default."""
    request, response = (
        _decode_masked(frame, annotate, show_secrets) if frame else None for frame in (pair.request, pair.response)
    )
    found = list(response_errors(response.message)) if response else []
    return DecodedPair(pair, request, response, found)


def _decode_masked(frame: CapturedFrame, annotate: bool, show_secrets: bool) -> DecodedFrame:
    if show_secrets:
        return _read(frame, annotate)
    if frame.is_token:
        return _read(replace(frame, data=mask_token(frame.data)), annotate)
    if may_be_secret(frame.api):
        assert frame.api is not None
        rows = _read(frame, annotate=True).rows
        return _read(replace(frame, data=mask_frame(frame.data, frame.api, rows, 0)), annotate)
    return _read(frame, annotate)


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


@dataclass(slots=True)
class _Summary:
    """Counts for the last line."""

    pairs: int = 0
    printed: int = 0
    connections: set[int] = field(default_factory=set)
    error_names: Counter[str] = field(default_factory=Counter)
    unknown_responses: int = 0
    unknown_bytes: int = 0
    slowest: tuple[float, str] = (-1.0, "")

    def add(self, one: DecodedPair) -> None:
        pair = one.pair
        self.printed += 1
        self.connections.add(pair.connection.number)
        self.error_names.update({error.name for error in one.errors})
        frame = pair.frame
        if frame.kind == "response" and frame.api is None and not frame.is_token:
            self.unknown_responses += 1
            self.unknown_bytes += len(frame.data)
        if pair.latency_ms is not None and frame.api is not None:
            self.slowest = max(self.slowest, (pair.latency_ms, frame.api.name))

    def text(self) -> str:
        if not self.pairs:
            return "the capture has no Kafka requests"
        parts = [f"{counted(self.printed, 'exchange')} of {counted(len(self.connections), 'connection')}"]
        if self.printed < self.pairs:
            parts[0] += f", {self.pairs - self.printed} filtered out"
        latency, name = self.slowest
        if latency >= 0:
            parts.append(f"slowest {name} {latency:.1f} ms")
        parts += [f"{count} with {name}" for name, count in self.error_names.most_common(_ERRORS_SHOWN_MAX)]
        return "; ".join(parts)


def pair_to_json(one: DecodedPair, *, annotate: bool) -> dict[str, Any]:
    """Return one object; `request` or `response` is null if it is not in the capture."""
    pair = one.pair
    frame = pair.frame
    return {
        "connection": pair.connection.number,
        "client": pair.connection.client,
        "broker": pair.connection.broker,
        "api": frame.api.name if frame.api else None,
        "api_key": int(frame.api.key) if frame.api else None,
        "version": frame.version if frame.api else None,
        "correlation_id": one.header.get("correlationId"),
        "client_id": one.header.get("clientId"),
        "latency_ms": pair.latency_ms,
        "errors": [{"path": error.path, "code": error.code, "name": error.name} for error in one.errors],
        **({"topic_names": one.topic_names} if one.topic_names else {}),
        "request": _frame_to_json(pair.request, one.request, annotate),
        "response": _frame_to_json(pair.response, one.response, annotate),
    }


def _frame_to_json(frame: CapturedFrame | None, decoded: DecodedFrame | None, annotate: bool) -> dict[str, Any] | None:
    if frame is None or decoded is None:
        return None
    json_frame: dict[str, Any] = {
        "packet": frame.packet,
        "time": utc_text_of_ns(frame.at_ns),
        "size": len(frame.data) + frame.missing,
    }
    if frame.is_guess:
        json_frame["is_guess"] = True
    if frame.is_token:
        json_frame["is_sasl_token"] = True
    if frame.kind == "response":
        json_frame["version"] = decoded.version if decoded.api else None
    return {**json_frame, **frame_to_json(decoded, annotate=annotate)}


def utc_text_of_ns(at_ns: int) -> str:
    """Return a packet's time in UTC, to the microsecond, as captures have it."""
    seconds, rest = divmod(at_ns, 1_000_000_000)
    try:
        whole = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ns)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


_COLUMNS = ("time", "conn", "api", "v", "request", "response", "ms", "details")
_WIDTHS = (12, 4, 24, 3, 8, 9, 9)


class _PairTable:
    """Pairs as lines with fixed widths, since later pairs are unknown."""

    def __init__(self, output: Output, bytes_max: int | None) -> None:
        self._output = output
        self._bytes_max = bytes_max
        self._is_coloured = has_colour()
        self._width = output.console().width
        self._known: set[int] = set()
        self._has_header = False

    def show(self, one: DecodedPair) -> None:
        pair = one.pair
        if not self._has_header and self._bytes_max is None:
            self._has_header = True
            self._line(_COLUMNS, bold=True)
        if pair.connection.number not in self._known:
            self._known.add(pair.connection.number)
            client = one.header.get("clientId")
            text = f"connection {pair.connection.number}: {pair.connection}"
            self._text(text if client is None else f"{text} client {printable(json_line(client))}", dim=True)
        if self._bytes_max is None:
            self._line(self._cells(one), fg="yellow" if one.errors else "red" if one.has_problem else None)
            for decoded in (one.request, one.response):
                for problem in decoded.problems if decoded else ():
                    print_problem(problem, self._output)
            return
        for frame, decoded in ((pair.request, one.request), (pair.response, one.response)):
            if frame is not None and decoded is not None:
                print_frame(self._heading(pair, frame, decoded), decoded, self._output, self._bytes_max)
                self._output.text()

    def _heading(self, pair: RequestPair, frame: CapturedFrame, decoded: DecodedFrame) -> str:
        position = f"connection {pair.connection.number}, packet {frame.packet} at {utc_text_of_ns(frame.at_ns)}"
        line = heading(position, len(frame.data) + frame.missing, "", decoded)
        if frame is pair.response and pair.latency_ms is not None:
            line += f", after {pair.latency_ms:.3f} ms"
        return f"{line}, a guess: its request is not in the capture" if frame.is_guess else line

    def _cells(self, one: DecodedPair) -> tuple[str, ...]:
        pair = one.pair
        frame = pair.frame
        latency = "" if pair.latency_ms is None else f"{pair.latency_ms:.3f}"
        name = frame.api.name if frame.api else "(SASL token)" if frame.is_token else "(unknown)"
        return (
            utc_text_of_ns(frame.at_ns)[11:23], str(pair.connection.number), name,
            str(frame.version) if frame.api else "",
            _size(pair.request), _size(pair.response) or ("-" if frame.expects_response else "none"), latency,
            printable("  ".join(_facts(one))),
        )  # fmt: skip

    def _line(self, cells: tuple[str, ...], **style: Any) -> None:
        aligned = [
            cell.ljust(width) if name in ("time", "api") else cell.rjust(width)
            for cell, width, name in zip(cells, _WIDTHS, _COLUMNS, strict=False)
        ]
        before = " ".join(aligned)
        width = self._width - len(before) - 2
        if width >= 20:
            first, *others = wrap(cells[-1], width, break_on_hyphens=False) or [""]
            lines = [f"{before}  {first}".rstrip(), *(" " * (len(before) + 2) + other for other in others)]
        else:
            lines = [before.rstrip(), *("    " + line for line in wrap(cells[-1], max(20, self._width - 4)))]
        for line in lines:
            self._text(line, **style)

    def _text(self, text: str, **style: Any) -> None:
        self._output.text(click.style(text, **style) if self._is_coloured else text)


def _size(frame: CapturedFrame | None) -> str:
    return "" if frame is None else str(len(frame.data) + frame.missing)


def _facts(one: DecodedPair) -> Iterator[str]:
    """Yield what matters first: errors, then topics, groups and transactions."""
    for error in one.errors[:_ERRORS_SHOWN_MAX]:
        yield f"{error.name} at {error.path.rpartition('.')[0] or 'the top'}"
    if len(one.errors) > _ERRORS_SHOWN_MAX:
        yield f"and {len(one.errors) - _ERRORS_SHOWN_MAX} more errors"
    if one.pair.response is not None and one.pair.response.is_guess:
        yield "(a guess: its request is not in the capture)"
    message = one.request.message if one.request else None
    names: dict[str, dict[str, None]] = {}
    _collect(message, "", names)
    _replace_topic_ids(names, one.topic_names)
    for kind, values in names.items():
        listed = list(values)
        more = f",... ({len(listed)})" if len(listed) > _NAMES_SHOWN_MAX else ""
        yield f"{kind} {','.join(listed[:_NAMES_SHOWN_MAX])}{more}"


def _replace_topic_ids(found: dict[str, dict[str, None]], names: dict[str, str]) -> None:
    """Replace topic ids by names where they are known."""
    unknown: dict[str, None] = {}
    for id in found.pop(_TOPIC_ID, {}):
        if id in names:
            found.setdefault("topic", {})[names[id]] = None
        else:
            unknown[id] = None
    if unknown:
        found[_TOPIC_ID] = unknown


_TOPIC_ID = "topic id"
_APIS_WITH_TOPIC_NAMES = frozenset({ApiKey.METADATA, ApiKey.CREATE_TOPICS})
# Fields that name something in a request, and their label in the last column.
_NAME_LABELS = {
    "groupId": "group", "transactionalId": "transaction", "topic": "topic", "topicId": _TOPIC_ID,
    "coordinatorKeys": "key", "key": "key", "mechanism": "mechanism", "groups": "group", "groupsNames": "group",
    "clientSoftwareName": "client", "memberId": "member",
}  # fmt: skip
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def _collect(value: Any, within: str, names: dict[str, dict[str, None]]) -> None:
    if isinstance(value, list):
        for item in value:
            if isinstance(item, str) and within in _NAME_LABELS:
                names.setdefault(_NAME_LABELS[within], {})[item] = None
            else:
                _collect(item, within, names)
    elif isinstance(value, dict):
        for name, inner in value.items():
            kind = "topic" if name == "name" and within.lower().startswith("topic") else _NAME_LABELS.get(name)
            if isinstance(inner, str) and kind is not None:
                if inner and inner != _NO_ID:
                    names.setdefault(kind, {})[inner] = None
            else:
                _collect(inner, name, names)
