"""`kwire encode Metadata@9 < json`: make the bytes of a frame from Kafka's JSON."""

from __future__ import annotations

import base64
import sys
from typing import Any, BinaryIO

import click

from kwire.capture.apis import message_classes
from kwire.cli.arguments import complete_api, find_api_at
from kwire.cli.error_report import ExitCode
from kwire.cli.message_json import message_from_json, parse_json_object
from kwire.protocol.headers import encode_request, encode_response


@click.command()
@click.argument("api_text", metavar="API@VERSION", shell_complete=complete_api)
@click.argument("source", metavar="[FILE|-]", type=click.File("rb"), default="-")
@click.option("--response", "is_response", is_flag=True, help="The JSON is a response. Default: a request.")
@click.option("--body", "is_body", is_flag=True, help="Write the message alone, without size and header.")
@click.option("--bare", is_flag=True, help="Write the frame without its 4-byte size.")
@click.option(
    "--correlation-id",
    type=click.IntRange(-(2**31), 2**31 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="The correlation id in the header.",
)
@click.option(
    "--client-id", default="kwire", show_default=True, metavar="TEXT", help="The client id in the header of a request."
)
@click.option("--hex", "form", flag_value="hex", help="Write hex; the default on a terminal.")
@click.option("--base64", "form", flag_value="base64", help="Write base64.")
@click.option("--raw", "form", flag_value="raw", help="Write the bytes themselves; the default in a pipe.")
def command(
    api_text: str, source: BinaryIO, is_response: bool, is_body: bool, bare: bool, correlation_id: int, client_id: str,
    form: str | None,
) -> ExitCode:  # fmt: skip
    """Make a frame's bytes from JSON.

    The JSON is Kafka's own form, as `kwire decode` prints it. `kwire schema` lists the fields; those with a default may
    be left out.

    \b
        echo '{"topics": null}' | kwire encode Metadata@1 --hex
        kwire encode Heartbeat@0 --response response.json | kwire decode --api Heartbeat --version 0
    """
    found, version = find_api_at(api_text)
    if version is None:
        raise click.UsageError(f"the version is missing: give {found.name}@{found.versions[-1]}")
    cls: Any = dict(message_classes(found))["response" if is_response else "request"]
    message = message_from_json(cls, parse_json_object(source.read()), version)
    if is_body:
        data = message.encode(version)
    elif is_response:
        data = b"".join(encode_response(message, version, correlation_id))
    else:
        data = b"".join(encode_request(message, version, correlation_id, client_id))
    if not (bare or is_body):
        data = len(data).to_bytes(4, "big") + data
    _write(data, form or ("hex" if sys.stdout.isatty() else "raw"))
    return ExitCode.OK


def _write(data: bytes, form: str) -> None:
    if form == "raw":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        click.echo(data.hex() if form == "hex" else base64.b64encode(data).decode())
