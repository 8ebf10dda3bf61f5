"""Exit codes, and exceptions as text on stderr: what happened, where, why, what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Collection, Iterator
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
    """What the shell sees. Scripts rely on the codes: they never change."""

    OK = 0
    KAFKA = 1  # an error from a broker, or some items failed
    USAGE = 2  # wrong options, or wrong input
    CONNECTION = 3  # no broker reached: name, port, TLS, authentication
    UNDECODABLE = 4  # bytes that cannot be decoded, or that a capture has lost; goes before KAFKA
    UNWRITABLE = 74  # the output cannot be written, as on a full disk; EX_IOERR of sysexits.h
    INTERRUPTED = 130  # Ctrl-C, as shells report it; SIGTERM, too
    BROKEN_PIPE = 141  # the reader closed the pipe, as shells report it


# A full or broken disk.
UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


@contextlib.contextmanager
def writes_file(what: str) -> Iterator[None]:
    """Raise ConfigurationError if a file that an option names cannot be written.

    The OSError of a full or broken disk stays as it is, since it has an exit code of its own.
    """
    try:
        yield
    except OSError as error:
        if error.errno in UNWRITABLE:
            raise
        raise ConfigurationError(f"{what} cannot be written: {error.strerror}") from None


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of an error. A time-out or delivery error takes the code of its cause."""
    match error:
        case ConfigurationError() | EncodeError():
            return ExitCode.USAGE
        case DecodeError():
            return ExitCode.UNDECODABLE
        case NodeError():
            return ExitCode.CONNECTION
        case RequestTimeoutError() if isinstance(error.__cause__, NodeError):
            return ExitCode.CONNECTION
        case RequestTimeoutError() if isinstance(cause := error.__cause__, RequestTimeoutError):
            # Two time-outs in a row and nothing else: the peer accepted the connection and sent nothing.
            return ExitCode.CONNECTION if cause.__cause__ is None else exit_code(cause)
        case DeliveryError() if error.__cause__ is not None:
            return exit_code(error.__cause__)
    return ExitCode.KAFKA


def error_lines(error: KwireError, *, without: Collection[str] = ()) -> list[str]:
    """Return the lines for stderr, without some of the places; the first stands alone, the others are labelled.

    >>> error_lines(KwireError("connection refused", broker="1 at db:9092", remedy="is it running?"))
    ['connection refused', '  at:  broker 1 at db:9092', '  do:  is it running?']
    """
    causes = list(_causes(error))
    lines = [_without(error.message, causes)]
    if isinstance(error, RequestTimeoutError) and any(isinstance(cause, _UNREACHED) for cause in causes):
        lines = ["no broker could be reached in time"]
    if place := _place_text(error, without):
        lines.append(f"  at:  {place}")
    texts = lines[0]
    for cause in causes:
        text = _without(cause.message, causes)
        if text not in texts:
            place = _place_text(cause, without)
            lines.append(f"  why: {text} [{place}]" if place else f"  why: {text}")
            texts += text
    # The innermost remedy fits the real cause: "nothing listens there", not "check the brokers".
    remedies = [one.remedy for one in (error, *causes) if one.remedy]
    if remedies:
        lines.append(f"  do:  {by_options(remedies[-1])}")
    return lines


# Causes that prevent a request from being sent.
_UNREACHED = (ResolveError, ConnectError, TlsError, NotKafkaError)

# Remedies name options of the Python client; the command line has other names.
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


def by_options(text: str) -> str:
    """Return a text with the names of the command line's options in place of Python's."""
    return _PYTHON_NAME.sub(lambda name: _OPTIONS[name[0]], text)


def _without(message: str, causes: list[KwireError]) -> str:
    """Return the message without the cause that its last clause repeats: each cause has its own line."""
    for cause in causes:
        if (text := str(cause)) and text in message:
            return message[: message.index(text)].rpartition(";")[0].strip() or message
    return message


def _place_text(error: KwireError, without: Collection[str]) -> str:
    # KwireError puts the place in brackets after its message.
    return KwireError("").at(**error.where).text(without=without)[2:-1]


def _causes(error: KwireError) -> Iterator[KwireError]:
    """Yield the causes that are KwireErrors: their messages already quote the operating system and OpenSSL."""
    seen = {id(error)}
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, KwireError):
            yield cause
        cause = cause.__cause__


def is_utf8(stream: TextIO) -> bool:
    """Return whether a stream writes UTF-8."""
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def takes_colour(stream: TextIO) -> bool:
    """Return whether to colour a stream: a terminal with colours, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def report_error(error: KwireError) -> None:
    """Write an error to stderr. It begins with the program's name, because pipelines mix their stderr."""
    print_error(*error_lines(error))


def print_error(*lines: str) -> None:
    """Write lines to stderr, also with -q."""
    is_coloured = takes_colour(sys.stderr)
    name = click.style("kwire: ", fg="red", bold=True) if is_coloured else "kwire: "
    sys.stdout.flush()
    click.echo(name + "\n".join(lines), err=True)
