"""`kwire decode`: explain the bytes of frames, from hex, base64, a raw file or a capture of the network."""

from __future__ import annotations

import io
import json
from typing import Any, BinaryIO

import click

from kwire.cli.arguments import complete_api, find_api, find_version
from kwire.cli.capture import HEAD_BYTES, PrefixedFile, is_capture
from kwire.cli.decode.capture_view import PairFilter, filter_options, print_capture
from kwire.cli.decode.field_reader import FieldRow
from kwire.cli.decode.frame import (
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
from kwire.cli.decode.input_formats import InputFormat, parse_input
from kwire.cli.decode.render import frame_to_json, heading, print_frame
from kwire.cli.decode.secrets import mask_frame, may_be_secret
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options
from kwire.errors import DecodeError, KwireError
from kwire.protocol import Api

_SUGGESTED_MAX = 5
# Trying everything takes milliseconds for a frame that a person would paste, and seconds for a large one.
_GUESSED_MAX = 64 * 1024
_CAPTURE_BUFFER_BYTES = 256 * 1024


@click.command()
@click.argument("source", metavar="[FILE|-]", type=click.File("rb"), default="-")
@click.option("--hex", "form", flag_value="hex", help="The input is hex, in any usual spelling.")
@click.option("--base64", "form", flag_value="base64", help="The input is base64.")
@click.option("--raw", "form", flag_value="raw", help="The input is the bytes themselves.")
@click.option("--pcap", "form", flag_value="pcap", help="The input is a capture: pcap or pcapng, or either in gzip.")
@click.option(
    "--sized/--bare", "has_sizes", default=None, help="Whether frames have their 4-byte size. Default: guess."
)
@click.option(
    "--api",
    "api_text",
    metavar="API",
    shell_complete=complete_api,
    help="Whose response this is: a name or a number. Of a capture: only these, A,B.",
)
@click.option("--version", "version_text", metavar="N", help="Its version. Without it, every version is tried.")
@click.option("--request", "kind", flag_value="request", help="The frames are requests.")
@click.option(
    "--response", "kind", flag_value="response", help="The frames are responses; default where --api is given."
)
@click.option("--body", "is_body", is_flag=True, help="The bytes are the message alone, without a header.")
@click.option(
    "--try-versions", "is_guessing", is_flag=True, help="List every API and version that takes all the bytes."
)
@click.option(
    "--annotate/--no-annotate", default=None, help="Show the bytes of every field. Default: yes, of a capture no."
)
@click.option("--bytes", "bytes_max", default=32, show_default=True, metavar="N", help="Show N bytes a field; 0: all.")
@click.option("--show-secrets", is_flag=True, help="Show passwords, SCRAM proofs and tokens instead of asterisks.")
@filter_options
@output_options
def command(
    source: BinaryIO, form: str | None, has_sizes: bool | None, api_text: str | None, version_text: str | None,
    kind: str | None, is_body: bool, is_guessing: bool, annotate: bool | None, bytes_max: int, show_secrets: bool,
    filters: PairFilter, output: Output,
) -> ExitCode:  # fmt: skip
    """Explain the bytes of Kafka frames, and captures of the network.

    A request says itself what it is. A response does not: give --api and --version of the request that it answers, or
    see what it could be with --try-versions. Hex may be plain, spaced, 0x00, \\x00, or as xxd, hexdump, od,
    tcpdump -X and Wireshark print it. Stops at the first byte that makes no sense, showing all before it (exit code 4).

    Of a capture, every connection of Kafka's is put together and each request shown with its response, as soon as it is
    answered: nothing is asked for, since the requests say what the responses are.

    \b
        kwire decode frame.bin
        xxd frame.bin | kwire decode
        kwire decode --api Metadata --version 9 answer.bin
        echo 0012 0000 00000001 ffff | kwire decode --try-versions
        kwire decode traffic.pcapng --errors-only
        tcpdump -i any -U -w - port 9092 | kwire decode --slower-than 100
    """
    if source.isatty():
        output.note("Paste the bytes, then press Ctrl-D.")
    head = source.read(HEAD_BYTES)
    if form == "pcap" or (form is None and is_capture(head)):
        if has_sizes is not None or kind or is_body or is_guessing:
            raise click.UsageError(
                "--sized, --bare, --request, --response, --body and --try-versions: not for a capture, which tells"
            )
        of_api = filters.of_api(api_text, version_text)
        file: Any = io.BufferedReader(PrefixedFile(head, source), _CAPTURE_BUFFER_BYTES)
        return print_capture(
            file, of_api, output, annotate=bool(annotate), bytes_max=bytes_max, show_secrets=show_secrets
        )
    if filters != PairFilter():
        raise click.UsageError("--connection, --port, --errors-only and --slower-than are for captures; this is none")
    what = FrameOptions.of(api_text, version_text, kind, is_body, show_secrets)
    data = head + source.read()
    return _print_frames(data, form, has_sizes, what, output, is_guessing, None if annotate is False else bytes_max)


def _print_frames(
    data: bytes, form: str | None, has_sizes: bool | None, what: FrameOptions, output: Output, is_guessing: bool,
    bytes_max: int | None,
) -> ExitCode:  # fmt: skip
    status = ExitCode.OK
    number = 0
    for piece in parse_input(data, _form(form)):
        for frame in split_frames(piece, has_sizes, what.makes_sense):
            number += 1
            if is_guessing:
                status = max(status, _print_guesses(number, what.masked(frame), what, output))
                continue
            decoded = what.read(frame)
            if output.is_table:
                size = len(frame.data) + frame.missing
                if number > 1:
                    output.text()
                print_frame(heading(f"frame {number}", size, f"at {frame.start}", decoded), decoded, output, bytes_max)
            else:
                output.json(_as_json(number, frame, decoded, bytes_max is not None))
            if decoded.problems:
                status = ExitCode.UNDECODABLE
            if decoded.message is None and not frame.missing:
                _print_suggestion(frame, what.is_body, output)
    return status


def _form(text: str | None) -> InputFormat:
    return "hex" if text == "hex" else "base64" if text == "base64" else "raw" if text == "raw" else "auto"


class FrameOptions:
    """What the options say the frames are, and so how each is read."""

    def __init__(
        self, api: Api | None, version: int | None, kind: Kind | None, is_body: bool, show_secrets: bool
    ) -> None:
        self.show_secrets = show_secrets
        self.api = api
        self.version = version
        self.kind: Kind | None = kind
        self.is_body = is_body

    @classmethod
    def of(
        cls, api_text: str | None, version_text: str | None, kind: str | None, is_body: bool, show_secrets: bool
    ) -> FrameOptions:
        if version_text is not None and api_text is None:
            raise click.UsageError("--version needs --api: a version of what?")
        api = find_api(api_text) if api_text is not None else None
        version = find_version(version_text, api) if version_text is not None and api else None
        if is_body and (api is None or version is None or kind is None):
            raise click.UsageError("--body needs --api, --version and --request or --response")
        return cls(
            api, version, "request" if kind == "request" else "response" if kind == "response" else None, is_body,
            show_secrets,
        )  # fmt: skip

    @property
    def kinds(self) -> list[Kind]:
        both: list[Kind] = ["request", "response"]
        return [self.kind] if self.kind else both

    def makes_sense(self, frame: bytes) -> bool:
        try:
            return self.read(RawFrame(0, frame, has_size=False)).message is not None
        except KwireError:
            return False

    def read(self, frame: RawFrame) -> DecodedFrame:
        """Return the frame, read as far as it goes, its secrets masked unless they are wanted."""
        decoded = self._read(self.masked(frame).data, frame.start)
        if frame.has_size:
            size = (len(frame.data) + frame.missing).to_bytes(4, "big")
            decoded.rows.insert(0, FieldRow(frame.start - 4, size, "size", "int32", len(frame.data) + frame.missing))
        if frame.missing:
            promised, here = len(frame.data) + frame.missing, len(frame.data)
            message = f"the frame's size is {promised} and {here} bytes are here, {frame.missing} too few"
            decoded.problems.insert(0, DecodeError(message, offset=frame.start - 4))
        return decoded

    def masked(self, frame: RawFrame) -> RawFrame:
        """The frame with its secrets masked, unless they are wanted."""
        header = maybe_request_header(frame.data)
        if self.show_secrets or not (may_be_secret(self.api) or (header is not None and may_be_secret(header[0]))):
            return frame
        decoded = self._read(frame.data, frame.start)
        if decoded.api is None or not may_be_secret(decoded.api):
            return frame
        return frame._replace(data=mask_frame(frame.data, decoded.api, decoded.rows, frame.start))

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
            if not decoded.problems:  # the bytes are a sound request, and the options say that they are a response
                remedy = "leave out --response, or say with --api and --version what it answers"
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
        # --api without a direction: a request of just this API that is whole in itself is hardly a response.
        return header in self._asked() and decode_request_frame(data, 0).is_whole

    def _asked(self) -> list[tuple[Api, int]]:
        assert self.api is not None
        return [(self.api, version) for version in self.api.versions if self.version in (None, version)]

    def _of_any_version(self, data: bytes, base: int) -> DecodedFrame:
        """The newest version that takes all the bytes and gives them again; else the one that gets furthest."""
        assert self.api is not None
        found = list(possible_messages(data, base, ["response"], self.api))
        if found:
            return max(found, key=lambda guess: (guess.round_trips, guess.decoded.version)).decoded
        candidates = [decode_response_frame(data, base, self.api, version) for version in self.api.versions]
        return max(candidates, key=lambda decoded: max((row.end for row in decoded.rows if row.type != "?"), default=0))


def _remedy(data: bytes) -> str:
    """What to do with bytes that are no request, by how they begin."""
    if data[:5] in (b"HTTP/", b"GET /", b"POST "):
        return "these bytes are HTTP: a web server or client is at the other end"
    if data[:2] == b"\x16\x03" or data[:2] == b"\x15\x03":
        return "these bytes are TLS: capture behind it, or record the plaintext"
    return "if it is a response, say of what with --api and --version, or use --try-versions"


def _print_suggestion(frame: RawFrame, is_body: bool, output: Output) -> None:
    """Say as what the frame would make sense, when it did not as what it was taken for."""
    if output.quiet or len(frame.data) > _GUESSED_MAX:
        return
    found = [
        f"{guess.decoded.name} ({guess.decoded.kind})"
        for guess in possible_messages(frame.data, frame.start, ["request", "response"], None, is_body)
        if guess.round_trips
    ]
    if found:
        shown = ", ".join(found[:_SUGGESTED_MAX]) + (", ..." if len(found) > _SUGGESTED_MAX else "")
        output.note(f"All of its bytes make sense as {shown}: see --api and --version, or --try-versions.")


def _print_guesses(number: int, frame: RawFrame, what: FrameOptions, output: Output) -> ExitCode:
    found = list(possible_messages(frame.data, frame.start, what.kinds, what.api, what.is_body))
    if what.version is not None:
        found = [guess for guess in found if guess.decoded.version == what.version]
    if not output.is_table:
        for guess in found:
            output.json({"frame": number, **_guess_to_json(guess)})
    elif found:
        output.text(f"frame {number}: {len(frame.data)} bytes at {frame.start}, which could be")
        columns = ["kind", "api", "version", "same bytes again", "message"]
        output.table(columns, (_guess_row(guess) for guess in found), right=["version"], whole=["api"])
    if not found:
        output.note(f"frame {number} at {frame.start}: no API and version takes all of its {len(frame.data)} bytes")
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
