"""Exit codes, and errors written for a person: what happened, where, why, what to do.

Refuses to decide what is an error: it only words what was raised. All of it goes to stderr.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import click

from kwire.errors import (
    ConfigurationError,
    DecodeError,
    EncodeError,
    KwireError,
    NodeError,
    RequestTimeoutError,
)


class ExitCode(IntEnum):
    """What the shell sees. Scripts rely on these: they never change meaning."""

    OK = 0
    KAFKA = 1  # a broker said no, or some items failed
    USAGE = 2  # options, or input that this program was given to send
    CONNECTION = 3  # no broker reached: name, port, TLS, authentication
    UNDECODABLE = 4  # bytes that are not what they claim to be
    INTERRUPTED = 130  # Ctrl-C, as shells report it
    BROKEN_PIPE = 141  # the reader of our output went away, as shells report it


def exit_code(error: BaseException) -> ExitCode:
    """The code for an error. A time-out whose last failure was a connection's is a connection failure."""
    match error:
        case ConfigurationError() | EncodeError():
            return ExitCode.USAGE
        case DecodeError():
            return ExitCode.UNDECODABLE
        case NodeError():
            return ExitCode.CONNECTION
        case RequestTimeoutError() if isinstance(error.__cause__, NodeError):
            return ExitCode.CONNECTION
    return ExitCode.KAFKA


def explain(error: BaseException) -> list[str]:
    """The lines for stderr; the first stands alone, the others are labelled.

    >>> explain(KwireError("connection refused", broker="1 at db:9092", remedy="is it running?"))
    ['connection refused', '   at: broker 1 at db:9092', '   do: is it running?']
    """
    lines = [_message(error)]
    if place := _place(error):
        lines.append(f"   at: {place}")
    remedy = error.remedy if isinstance(error, KwireError) else None
    said = {lines[0]}
    for cause in _causes(error):
        text = str(cause) if isinstance(cause, KwireError) else _message(cause)
        if _message(cause) in said:
            continue
        said.add(_message(cause))
        lines.append(f"  why: {text}")
    if remedy:
        lines.append(f"   do: {remedy}")
    return lines


def _message(error: BaseException) -> str:
    if isinstance(error, KwireError):
        return error.message
    return str(error) or type(error).__name__


def _place(error: BaseException) -> str:
    if not isinstance(error, KwireError) or not error.where:
        return ""
    # errors.py words the places, in brackets after the message; with no message they stand alone.
    return str(KwireError("").at(**error.where))[2:-1]


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen = {id(error)}
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def report(error: BaseException) -> None:
    """Write an error to stderr, the program's name first, so that the mixed stderr of a pipeline stays readable."""
    first, *others = explain(error)
    click.echo(click.style("kwire: ", fg="red", bold=True) + first, err=True)
    for line in others:
        click.echo(line, err=True)
