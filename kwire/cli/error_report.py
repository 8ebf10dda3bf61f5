"""Exit codes, and exceptions as text on stderr: what happened, where, why, what to do."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import TextIO

import click

from kwire.errors import (
    ConfigurationError,
    ConnectError,
    DecodeError,
    DeliveryError,
    EncodeError,
    KwireError,
    NodeError,
    NotKafkaError,
    RequestTimeoutError,
    ResolveError,
    TlsError,
)


class ExitCode(IntEnum):
    """What the shell sees. Scripts rely on these: they never change meaning."""

    OK = 0
    KAFKA = 1  # a broker said no, or some items failed
    USAGE = 2  # options, or input that this program was given to send
    CONNECTION = 3  # no broker reached: name, port, TLS, authentication
    UNDECODABLE = 4  # bytes that are not what they claim to be
    UNWRITABLE = 74  # our output cannot be written, such as on a full disk; EX_IOERR of sysexits.h
    INTERRUPTED = 130  # Ctrl-C, as shells report it
    BROKEN_PIPE = 141  # the reader of our output went away, as shells report it


def exit_code(error: BaseException) -> ExitCode:
    """The code for an error; for one that stands for another failure (a time-out, a delivery), that failure's."""
    match error:
        case ConfigurationError() | EncodeError():
            return ExitCode.USAGE
        case DecodeError():
            return ExitCode.UNDECODABLE
        case NodeError():
            return ExitCode.CONNECTION
        case RequestTimeoutError() if isinstance(error.__cause__, NodeError | RequestTimeoutError):
            # A time-out because of a time-out: the peer took the connection and did not even greet.
            return ExitCode.CONNECTION
        case DeliveryError() if error.__cause__ is not None:
            return exit_code(error.__cause__)
    return ExitCode.KAFKA


def error_lines(error: KwireError) -> list[str]:
    """The lines for stderr; the first stands alone, the others are labelled.

    >>> explain(KwireError("connection refused", broker="1 at db:9092", remedy="is it running?"))
    ['connection refused', '  at:  broker 1 at db:9092', '  do:  is it running?']
    """
    causes = list(_causes(error))
    lines = [_without(error.message, causes)]
    if isinstance(error, RequestTimeoutError) and any(isinstance(cause, _UNREACHED) for cause in causes):
        lines = ["no broker could be reached in time"]
    if place := _place(error):
        lines.append(f"  at:  {place}")
    said = lines[0]
    for cause in causes:
        text = _without(cause.message, causes)
        if text not in said:
            place = _place(cause)
            lines.append(f"  why: {text} [{place}]" if place else f"  why: {text}")
            said += text
    # The innermost remedy is about what really went wrong: not "check the brokers" but "nothing listens there".
    remedies = [one.remedy for one in (error, *causes) if one.remedy]
    if remedies:
        lines.append(f"  do:  {_PYTHON_NAME.sub(lambda name: _OPTIONS[name[0]], remedies[-1])}")
    return lines


# What kept a request from being sent at all.
_UNREACHED = (ResolveError, ConnectError, TlsError, NotKafkaError)

# Remedies speak of the Python client's options; here they have other names.
_OPTIONS = {
    "ca_file": "--cafile",
    "cert_file": "--cert",
    "key_file": "--key",
    "key_password": "KWIRE_KEY_PASSWORD",
    "max_request_bytes": "-X max_request_bytes",
    "on_out_of_range": "-X on_out_of_range",
    "delivery_timeout_ms": "--delivery-timeout",
}
_PYTHON_NAME = re.compile(rf"\b({'|'.join(_OPTIONS)})\b")


def _without(message: str, causes: list[KwireError]) -> str:
    """The message without a cause that it repeats in its last clause: causes have lines of their own."""
    for cause in causes:
        if (text := str(cause)) and text in message:
            return message[: message.index(text)].rpartition(";")[0].strip() or message
    return message


def _place(error: KwireError) -> str:
    # errors.py words the places, in brackets after the message; with no message they stand alone.
    return str(KwireError("").at(**error.where))[2:-1] if error.where else ""


def _causes(error: KwireError) -> Iterator[KwireError]:
    """Ours only: what the operating system or OpenSSL said is in our own messages, in words."""
    seen = {id(error)}
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, KwireError):
            yield cause
        cause = cause.__cause__


def takes_colour(stream: TextIO) -> bool:
    """Whether to colour what goes there: a terminal that knows colours, unless NO_COLOR asks not to."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def report_error(error: KwireError) -> None:
    """Write an error to stderr, the program's name first, so that the mixed stderr of a pipeline stays readable."""
    print_error(*error_lines(error))


def print_error(*lines: str) -> None:
    """What went wrong, which -q does not silence."""
    is_coloured = takes_colour(sys.stderr)
    name = click.style("kwire: ", fg="red", bold=True) if is_coloured else "kwire: "
    sys.stdout.flush()
    click.echo(name + "\n".join(lines), err=True)
