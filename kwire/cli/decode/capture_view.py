"""`kwire decode traffic.pcapng`: the requests of a capture with their responses and latencies.

A terminal gets a line for each pair, a pipe gets a JSON object. Each appears as soon as the pair is complete, so
`tcpdump -U -w - port 9092 | kwire decode` is a live view.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, BinaryIO

import click

from kwire.capture import (
    CapturedFrame,
    Exchange,
    ExchangeDecoder,
    Remark,
    RequestPair,
    pair_frames,
    read_capture,
)
from kwire.capture.decoded_frame import DecodedFrame
from kwire.capture.exchange_json import exchange_to_json
from kwire.capture.secrets import Redaction
from kwire.capture.summary import is_routine, summary
from kwire.capture.times import utc_text_of_ns
from kwire.cli.capture_input import print_remark
from kwire.cli.decode.pair_filter import PairFilter, is_of
from kwire.cli.decode.render import heading, print_frame, print_problem
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, counted, has_colour, json_line, printable

_ERRORS_SHOWN_MAX = 3


def print_capture(
    file: BinaryIO, filters: PairFilter, output: Output, *, annotate: bool, bytes_max: int, redaction: Redaction
) -> ExitCode:
    """Print a capture to its end. UNDECODABLE if bytes made no sense or were lost, or none were Kafka's."""
    table = PairTable(output, bytes_max if annotate else None)
    counts = _Summary()
    decoder = ExchangeDecoder(annotate=annotate, redaction=redaction)
    has_problem = False
    for found in pair_frames(read_capture(file, ports=filters.ports, key_log=filters.key_log)):
        if isinstance(found, Remark):
            has_problem |= found.is_problem
            _print_remark(found, filters, output)
            continue
        counts.pairs += 1
        is_accepted = filters.accepts(found)
        if not is_accepted and not decoder.must_see(found):
            continue
        one = decoder.decode(found)
        if not is_accepted:
            continue
        if not filters.accepts_decoded(one):
            continue
        has_problem |= any(
            decoded.problems
            for frame, decoded in ((found.request, one.request), (found.response, one.response))
            if decoded is not None and not (frame and frame.missing)  # a remark counts those that lost bytes
        )
        counts.add(one)
        if output.is_table:
            table.show(one)
        else:
            output.json(exchange_to_json(one, annotate=annotate))
        sys.stdout.flush()  # the capture may be a live one, and the reader a filter
    if output.is_table or not counts.pairs:
        output.note(counts.text())
    if counts.unknown_responses:
        text = counted(counts.unknown_responses, "response")
        output.note(
            f"{text} ({counted(counts.unknown_bytes, 'byte')}) not decoded: the requests are not in the capture"
        )
    return ExitCode.UNDECODABLE if has_problem or not counts.pairs else ExitCode.OK


def _print_remark(remark: Remark, filters: PairFilter, output: Output) -> None:
    wanted, connection = filters.connections, remark.connection
    if wanted and connection is not None and not any(is_of(connection, text) for text in wanted):
        return
    print_remark(remark, output)


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

    def add(self, one: Exchange) -> None:
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


_COLUMNS = ("time", "conn", "api", "v", "request", "response", "ms", "details")
_WIDTHS = (12, 4, 24, 3, 8, 9, 9)


class PairTable:
    """Pairs as lines with fixed widths, since later pairs are unknown."""

    def __init__(self, output: Output, bytes_max: int | None) -> None:
        self._output = output
        self._bytes_max = bytes_max
        self._is_coloured = has_colour()
        self._width = output.console().width
        self._known: set[int] = set()
        self._has_header = False

    def show(self, one: Exchange) -> None:
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
            self._line(self._cells(one), **_style(one))
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

    def _cells(self, one: Exchange) -> tuple[str, ...]:
        pair = one.pair
        frame = pair.frame
        latency = "" if pair.latency_ms is None else f"{pair.latency_ms:.3f}"
        return (
            utc_text_of_ns(frame.at_ns)[11:23], str(pair.connection.number), one.api_name,
            str(frame.version) if frame.api else "",
            _size(pair.request), _size(pair.response) or ("-" if frame.expects_response else "none"), latency,
            printable(summary(one)),
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


def _style(one: Exchange) -> dict[str, Any]:
    if one.problems:
        return {"fg": "red"}
    return {"dim": True} if is_routine(one) else {"fg": "yellow"} if one.errors else {}


def _size(frame: CapturedFrame | None) -> str:
    return "" if frame is None else str(len(frame.data) + frame.missing)
