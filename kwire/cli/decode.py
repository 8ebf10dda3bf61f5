"""`kwire decode`: the bytes of frames explained, from hex, base64, a raw file or a capture of the network."""

from __future__ import annotations

import io
import json
from typing import Any, BinaryIO

import click

from kwire.cli.apis import find_api, find_version
from kwire.cli.capture import HEAD_BYTES, Joined, is_capture
from kwire.cli.completion import complete_api
from kwire.cli.failures import ExitCode
from kwire.cli.frames import Frame, split
from kwire.cli.output import Output, output_options
from kwire.cli.pasted import Form, read_pieces
from kwire.cli.reading import (
    Guess,
    Kind,
    Reading,
    guesses,
    maybe_request_header,
    read_body,
    read_request,
    read_response,
)
from kwire.cli.secrets import mask_frame, may_be_secret
from kwire.cli.shown import heading, print_reading, reading_to_json
from kwire.cli.traffic import Filters, filter_options, show_capture
from kwire.cli.walk import FieldRow
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
    filters: Filters, output: Output,
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
        file: Any = io.BufferedReader(Joined(head, source), _CAPTURE_BUFFER_BYTES)
        return show_capture(
            file, of_api, output, annotate=bool(annotate), bytes_max=bytes_max, show_secrets=show_secrets
        )
    if filters != Filters():
        raise click.UsageError("--connection, --port, --errors-only and --slower-than are for captures; this is none")
    what = Wanted.of(api_text, version_text, kind, is_body, show_secrets)
    data = head + source.read()
    return _show_frames(data, form, has_sizes, what, output, is_guessing, None if annotate is False else bytes_max)


def _show_frames(
    data: bytes, form: str | None, has_sizes: bool | None, what: Wanted, output: Output, is_guessing: bool,
    bytes_max: int | None,
) -> ExitCode:  # fmt: skip
    status = ExitCode.OK
    number = 0
    for piece in read_pieces(data, _form(form)):
        for frame in split(piece, has_sizes, what.makes_sense):
            number += 1
            if is_guessing:
                status = max(status, _show_guesses(number, what.masked(frame), what, output))
                continue
            reading = what.read(frame)
            if output.is_table:
                size = len(frame.data) + frame.missing
                if number > 1:
                    output.text()
                print_reading(
                    heading(f"frame {number}", size, f"at {frame.start}", reading), reading, output, bytes_max
                )
            else:
                output.json(_as_json(number, frame, reading, bytes_max is not None))
            if reading.problems:
                status = ExitCode.UNDECODABLE
            if reading.message is None and not frame.missing:
                _suggest(frame, what.is_body, output)
    return status


def _form(text: str | None) -> Form:
    return "hex" if text == "hex" else "base64" if text == "base64" else "raw" if text == "raw" else "auto"


class Wanted:
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
    ) -> Wanted:
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
            return self.read(Frame(0, frame, has_size=False)).message is not None
        except KwireError:
            return False

    def read(self, frame: Frame) -> Reading:
        """Return the frame, read as far as it goes, its secrets masked unless they are wanted."""
        reading = self._read(self.masked(frame).data, frame.start)
        if frame.has_size:
            size = (len(frame.data) + frame.missing).to_bytes(4, "big")
            reading.rows.insert(0, FieldRow(frame.start - 4, size, "size", "int32", len(frame.data) + frame.missing))
        if frame.missing:
            promised, here = len(frame.data) + frame.missing, len(frame.data)
            message = f"the frame's size is {promised} and {here} bytes are here, {frame.missing} too few"
            reading.problems.insert(0, DecodeError(message, offset=frame.start - 4))
        return reading

    def masked(self, frame: Frame) -> Frame:
        """The frame with its secrets masked, unless they are wanted."""
        header = maybe_request_header(frame.data)
        if self.show_secrets or not (may_be_secret(self.api) or (header is not None and may_be_secret(header[0]))):
            return frame
        reading = self._read(frame.data, frame.start)
        if reading.api is None or not may_be_secret(reading.api):
            return frame
        return frame._replace(data=mask_frame(frame.data, reading.api, reading.rows, frame.start))

    def _read(self, data: bytes, base: int) -> Reading:
        if self.is_body:
            assert self.api is not None
            assert self.version is not None
            assert self.kind is not None
            reading = read_body(data, base, self.kind, self.api, self.version)
        elif self._is_request(data):
            reading = read_request(data, base)
        elif self.api is None:
            reading = read_request(data, base)
            if not reading.problems:  # the bytes are a sound request, and the options say that they are a response
                remedy = "leave out --response, or say with --api and --version what it answers"
                reading.problems.append(DecodeError(f"these bytes are a request, {reading.name}", remedy=remedy))
            else:
                reading.problems[-1].remedy = _remedy(data)
        elif self.version is None:
            reading = self._of_any_version(data, base)
        else:
            reading = read_response(data, base, self.api, self.version)
        return reading

    def _is_request(self, data: bytes) -> bool:
        if self.kind == "request":
            return True
        if self.kind == "response":
            return False
        header = maybe_request_header(data)
        if self.api is None:
            return header is not None
        # --api without a direction: a request of just this API that is whole in itself is hardly a response.
        return header in self._asked() and read_request(data, 0).is_whole

    def _asked(self) -> list[tuple[Api, int]]:
        assert self.api is not None
        return [(self.api, version) for version in self.api.versions if self.version in (None, version)]

    def _of_any_version(self, data: bytes, base: int) -> Reading:
        """The newest version that takes all the bytes and gives them again; else the one that gets furthest."""
        assert self.api is not None
        found = list(guesses(data, base, ["response"], self.api))
        if found:
            return max(found, key=lambda guess: (guess.is_same_again, guess.reading.version)).reading
        readings = [read_response(data, base, self.api, version) for version in self.api.versions]
        return max(readings, key=lambda reading: max((row.end for row in reading.rows if row.type != "?"), default=0))


def _remedy(data: bytes) -> str:
    """What to do with bytes that are no request, by how they begin."""
    if data[:5] in (b"HTTP/", b"GET /", b"POST "):
        return "these bytes are HTTP: a web server or client is at the other end"
    if data[:2] == b"\x16\x03" or data[:2] == b"\x15\x03":
        return "these bytes are TLS: capture behind it, or record the plaintext"
    return "if it is a response, say of what with --api and --version, or use --try-versions"


def _suggest(frame: Frame, is_body: bool, output: Output) -> None:
    """Say as what the frame would make sense, when it did not as what it was taken for."""
    if output.quiet or len(frame.data) > _GUESSED_MAX:
        return
    found = [
        f"{guess.reading.name} ({guess.reading.kind})"
        for guess in guesses(frame.data, frame.start, ["request", "response"], None, is_body)
        if guess.is_same_again
    ]
    if found:
        shown = ", ".join(found[:_SUGGESTED_MAX]) + (", ..." if len(found) > _SUGGESTED_MAX else "")
        output.note(f"All of its bytes make sense as {shown}: see --api and --version, or --try-versions.")


def _show_guesses(number: int, frame: Frame, what: Wanted, output: Output) -> ExitCode:
    found = list(guesses(frame.data, frame.start, what.kinds, what.api, what.is_body))
    if what.version is not None:
        found = [guess for guess in found if guess.reading.version == what.version]
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
    reading = guess.reading
    assert reading.api is not None
    return {
        "kind": reading.kind, "api": reading.api.name, "version": reading.version,
        "same_bytes_again": guess.is_same_again, "header": reading.header, "message": reading.message,
    }  # fmt: skip


def _guess_row(guess: Guess) -> list[object]:
    reading = guess.reading
    assert reading.api is not None
    text = json.dumps(reading.message, ensure_ascii=False)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return [reading.kind, reading.api.name, reading.version, "yes" if guess.is_same_again else "no", text]


def _as_json(number: int, frame: Frame, reading: Reading, annotate: bool) -> dict[str, Any]:
    return {
        "frame": number,
        "offset": frame.start - 4 if frame.has_size else frame.start,
        "size": len(frame.data) + frame.missing,
        "kind": reading.kind,
        "api": reading.api.name if reading.api else None,
        "api_key": int(reading.api.key) if reading.api else None,
        "version": reading.version,
        **reading_to_json(reading, annotate=annotate),
    }
