"""`kwire decode`: explain the bytes of frames, from hex, base64, a raw file or a capture of the network."""

from __future__ import annotations

import io
import json
from typing import Any, BinaryIO

import click

from kwire.capture import HEAD_BYTES, PrefixedFile, is_capture
from kwire.capture.decoded_frame import (
    DecodedFrame,
    Guess,
    Kind,
    RawFrame,
    decode_body,
    decode_request_frame,
    decode_response_frame,
    maybe_request_header,
    possible_messages,
    split_frames,
)
from kwire.capture.field_reader import FieldRow
from kwire.capture.frame_json import frame_to_json
from kwire.capture.secrets import Redaction
from kwire.cli.arguments import complete_api, find_api, find_version, redaction, redaction_options
from kwire.cli.decode.input_formats import InputFormat, parse_input
from kwire.cli.decode.pair_filter import PairFilter, filter_options
from kwire.cli.decode.render import heading, print_frame
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options
from kwire.errors import DecodeError, KwireError
from kwire.protocol import Api

_SUGGESTED_MAX = 5
# Trying every API takes milliseconds for a small frame, and seconds for a large one.
_GUESSED_MAX = 64 * 1024
_CAPTURE_BUFFER_BYTES = 256 * 1024


@click.command()
@click.argument("source", metavar="[FILE|-]", type=click.File("rb"), default="-")
@click.option("--hex", "form", flag_value="hex", help="The input is hex or a hex dump. Default: detect the format.")
@click.option("--base64", "form", flag_value="base64", help="The input is base64.")
@click.option("--raw", "form", flag_value="raw", help="The input is the bytes themselves.")
@click.option("--pcap", "form", flag_value="pcap", help="The input is a capture: pcap or pcapng, or either in gzip.")
@click.option(
    "--sized/--bare", "has_sizes", default=None, help="Whether frames begin with their 4-byte size. Default: detect."
)
@click.option(
    "--api",
    "api_text",
    metavar="API",
    shell_complete=complete_api,
    help="The API of a response: a name or number. In a capture: show only these APIs, A,B.",
)
@click.option("--version", "version_text", metavar="N", help="The version of --api. Default: try every version.")
@click.option("--request", "kind", flag_value="request", help="The frames are requests. Default: detect.")
@click.option("--response", "kind", flag_value="response", help="The frames are responses; the default with --api.")
@click.option("--body", "is_body", is_flag=True, help="The input is a message without a header.")
@click.option(
    "--try-versions", "tries_versions", is_flag=True, help="List every API and version that decodes all bytes."
)
@click.option(
    "--annotate/--no-annotate", default=None, help="Show the bytes of every field. Default: yes; for a capture no."
)
@click.option(
    "--bytes", "bytes_max", default=32, show_default=True, metavar="N", help="Show at most N bytes per field; 0: all."
)
@redaction_options[0]
@redaction_options[1]
@filter_options
@output_options
def command(
    source: BinaryIO, form: str | None, has_sizes: bool | None, api_text: str | None, version_text: str | None,
    kind: str | None, is_body: bool, tries_versions: bool, annotate: bool | None, bytes_max: int, show_secrets: bool,
    redacts: tuple[str, ...], filters: PairFilter, output: Output,
) -> ExitCode:  # fmt: skip
    """Explain the bytes of Kafka frames, and network captures.

    The header of a request says what it is. A response has no such header: give --api and --version of its request, or
    list the candidates with --try-versions. Hex may be plain, spaced, 0x00, \\x00, or as xxd, hexdump, od, tcpdump -X
    and Wireshark print it. Decoding stops at the first byte that makes no sense, and shows all fields before it (exit
    code 4).

    For a capture, each request is shown with its response as soon as both are complete. No --api is needed, since the
    requests say what the responses are.

    \b
        kwire decode frame.bin
        xxd frame.bin | kwire decode
        kwire decode --api Metadata --version 9 response.bin
        echo 0012 0000 00000001 ffff | kwire decode --try-versions
        kwire decode traffic.pcapng --errors-only
        tcpdump -i any -U -w - port 9092 | kwire decode --slower-than 100
    """
    if source.isatty():
        output.note("Reading bytes from this terminal: paste them, then press Ctrl-D.")
    head = source.read(HEAD_BYTES)
    if form == "pcap" or (form is None and is_capture(head)):
        if has_sizes is not None or kind or is_body or tries_versions:
            raise click.UsageError(
                "--sized, --bare, --request, --response, --body and --try-versions do not apply to a capture"
            )
        from kwire.cli.decode.capture_view import print_capture  # only a capture pays for it

        pair_filter = filters.for_api(api_text, version_text)
        file: Any = io.BufferedReader(PrefixedFile(head, source), _CAPTURE_BUFFER_BYTES)
        return print_capture(
            file,
            pair_filter,
            output,
            annotate=bool(annotate),
            bytes_max=bytes_max,
            redaction=redaction(show_secrets, redacts),
        )
    if filters != PairFilter():
        raise click.UsageError(
            "--connection, --port, --errors-only, --slower-than and --where need a capture; the input is not one"
        )
    options = FrameOptions.of(api_text, version_text, kind, is_body, redaction(show_secrets, redacts))
    data = head + source.read()
    return _print_frames(
        data, form, has_sizes, options, output, tries_versions, None if annotate is False else bytes_max
    )


def _print_frames(
    data: bytes, form: str | None, has_sizes: bool | None, options: FrameOptions, output: Output, tries_versions: bool,
    bytes_max: int | None,
) -> ExitCode:  # fmt: skip
    status = ExitCode.OK
    number = 0
    for data_part in parse_input(data, _form(form)):
        for frame in split_frames(data_part, has_sizes, options.makes_sense):
            number += 1
            if tries_versions:
                status = max(status, _print_guesses(number, options.masked(frame), options, output))
                continue
            decoded = options.read(frame)
            if output.is_table:
                size = len(frame.data) + frame.missing
                if number > 1:
                    output.text()
                print_frame(heading(f"frame {number}", size, f"at {frame.start}", decoded), decoded, output, bytes_max)
            else:
                output.json(_as_json(number, frame, decoded, bytes_max is not None))
            if decoded.problems:
                status = ExitCode.UNDECODABLE
            if decoded.body is None and not frame.missing:
                _print_suggestion(frame, options.is_body, output)
    return status


def _form(text: str | None) -> InputFormat:
    return "hex" if text == "hex" else "base64" if text == "base64" else "raw" if text == "raw" else "auto"


class FrameOptions:
    """What the options say of the frames, and so how each is decoded."""

    def __init__(
        self, api: Api | None, version: int | None, kind: Kind | None, is_body: bool, redaction: Redaction
    ) -> None:
        self.redaction = redaction
        self.api = api
        self.version = version
        self.kind: Kind | None = kind
        self.is_body = is_body

    @classmethod
    def of(
        cls, api_text: str | None, version_text: str | None, kind: str | None, is_body: bool, redaction: Redaction
    ) -> FrameOptions:
        if version_text is not None and api_text is None:
            raise click.UsageError("--version needs --api")
        api = find_api(api_text) if api_text is not None else None
        version = find_version(version_text, api) if version_text is not None and api else None
        if is_body and (api is None or version is None or kind is None):
            raise click.UsageError("--body needs --api, --version and --request or --response")
        return cls(
            api, version, "request" if kind == "request" else "response" if kind == "response" else None, is_body,
            redaction,
        )  # fmt: skip

    @property
    def kinds(self) -> list[Kind]:
        both: list[Kind] = ["request", "response"]
        return [self.kind] if self.kind else both

    def makes_sense(self, frame: bytes) -> bool:
        try:
            return self.read(RawFrame(0, frame, has_size=False)).is_whole
        except KwireError:
            return False

    def read(self, frame: RawFrame) -> DecodedFrame:
        """Return the decoded frame. Secrets are masked, unless --show-secrets is given."""
        decoded = self._read(self.masked(frame).data, frame.start)
        if frame.has_size:
            size = (len(frame.data) + frame.missing).to_bytes(4, "big")
            decoded.rows.insert(0, FieldRow(frame.start - 4, size, "size", "int32", len(frame.data) + frame.missing))
        if frame.missing:
            promised, here = len(frame.data) + frame.missing, len(frame.data)
            message = f"the frame's size is {promised}, but only {here} bytes follow, {frame.missing} too few"
            decoded.problems.insert(0, DecodeError(message, offset=frame.start - 4))
        return decoded

    def masked(self, frame: RawFrame) -> RawFrame:
        """Return the frame with its secrets masked, unless --show-secrets is given."""
        header = maybe_request_header(frame.data)
        if not any(self.redaction.concerns(api) for api in (self.api, header[0] if header else None)):
            return frame
        decoded = self._read(frame.data, frame.start)
        return frame._replace(data=self.redaction.mask_frame(frame.data, decoded, frame.start))

    def _read(self, data: bytes, base: int) -> DecodedFrame:
        if self.is_body:
            assert self.api is not None
            assert self.version is not None
            assert self.kind is not None
            decoded = decode_body(data, base, self.kind, self.api, self.version)
        elif self._is_request(data):
            decoded = decode_request_frame(data, base)
        elif self.api is None:
            decoded = decode_request_frame(data, base)
            if not decoded.problems:  # a valid request, but the options say that it is a response
                remedy = "leave out --response, or give --api and --version of its request"
                decoded.problems.append(DecodeError(f"these bytes are a request, {decoded.name}", remedy=remedy))
            else:
                decoded.problems[-1].remedy = _remedy(data)
        elif self.version is None:
            decoded = self._of_any_version(data, base)
        else:
            decoded = decode_response_frame(data, base, self.api, self.version)
        return decoded

    def _is_request(self, data: bytes) -> bool:
        if self.kind == "request":
            return True
        if self.kind == "response":
            return False
        header = maybe_request_header(data)
        if self.api is None:
            return header is not None
        # --api without a direction: a complete request of this API is hardly a response.
        return header in self._candidates() and decode_request_frame(data, 0).is_whole

    def _candidates(self) -> list[tuple[Api, int]]:
        assert self.api is not None
        return [(self.api, version) for version in self.api.versions if self.version in (None, version)]

    def _of_any_version(self, data: bytes, base: int) -> DecodedFrame:
        """Return the newest version whose message has exactly these bytes; else the one that gets furthest."""
        assert self.api is not None
        found = list(possible_messages(data, base, ["response"], self.api))
        if found:
            return max(found, key=lambda guess: (guess.round_trips, guess.decoded.version)).decoded
        candidates = [decode_response_frame(data, base, self.api, version) for version in self.api.versions]
        return max(candidates, key=lambda decoded: max((row.end for row in decoded.rows if row.type != "?"), default=0))


def _remedy(data: bytes) -> str:
    """Return advice for bytes that are not a request, by their first bytes."""
    if data[:5] in (b"HTTP/", b"GET /", b"POST "):
        return "these bytes are HTTP: the other side is a web server or client"
    if data[:2] == b"\x16\x03" or data[:2] == b"\x15\x03":
        return "these bytes are TLS: capture where the traffic is plaintext"
    return "if it is a response, give --api and --version of its request, or use --try-versions"


def _print_suggestion(frame: RawFrame, is_body: bool, output: Output) -> None:
    """Print which messages the frame could be, if it is not what it was decoded as."""
    if output.quiet or len(frame.data) > _GUESSED_MAX:
        return
    found = [
        f"{guess.decoded.name} ({guess.decoded.kind})"
        for guess in possible_messages(frame.data, frame.start, ["request", "response"], None, is_body)
        if guess.round_trips
    ]
    if found:
        listed = ", ".join(found[:_SUGGESTED_MAX]) + (", ..." if len(found) > _SUGGESTED_MAX else "")
        output.note(f"All of its bytes decode as {listed}: use --api and --version, or --try-versions.")


def _print_guesses(number: int, frame: RawFrame, options: FrameOptions, output: Output) -> ExitCode:
    found = list(possible_messages(frame.data, frame.start, options.kinds, options.api, options.is_body))
    if options.version is not None:
        found = [guess for guess in found if guess.decoded.version == options.version]
    if not output.is_table:
        for guess in found:
            output.json({"frame": number, **_guess_to_json(guess)})
    elif found:
        output.text(f"frame {number}: {len(frame.data)} bytes at {frame.start}, which could be")
        columns = ["kind", "api", "version", "same bytes again", "message"]
        output.table(columns, (_guess_row(guess) for guess in found), right=["version"], whole=["api"])
    if not found:
        output.note(f"frame {number} at {frame.start}: no API and version decodes all of its {len(frame.data)} bytes")
    return ExitCode.OK if found else ExitCode.UNDECODABLE


def _guess_to_json(guess: Guess) -> dict[str, Any]:
    decoded = guess.decoded
    assert decoded.api is not None
    return {
        "kind": decoded.kind, "api": decoded.api.name, "version": decoded.version,
        "same_bytes_again": guess.round_trips, "header": decoded.header, "message": decoded.message,
    }  # fmt: skip


def _guess_row(guess: Guess) -> list[object]:
    decoded = guess.decoded
    assert decoded.api is not None
    text = json.dumps(decoded.message, ensure_ascii=False)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return [decoded.kind, decoded.api.name, decoded.version, "yes" if guess.round_trips else "no", text]


def _as_json(number: int, frame: RawFrame, decoded: DecodedFrame, annotate: bool) -> dict[str, Any]:
    return {
        "frame": number,
        "offset": frame.start - 4 if frame.has_size else frame.start,
        "size": len(frame.data) + frame.missing,
        "kind": decoded.kind,
        "api": decoded.api.name if decoded.api else None,
        "api_key": int(decoded.api.key) if decoded.api else None,
        "version": decoded.version,
        **frame_to_json(decoded, annotate=annotate),
    }
