r"""The format strings of `kwire consume -F`, with kcat's tokens, so that scripts can move over unchanged.

    %s value   %S its length, -1 for null   %R the length as four big-endian bytes
    %k key     %K its length                %T timestamp in ms     %h headers (a=1,b=2, c for null)
    %t topic   %p partition                 %o offset              %% a per cent sign
    \n \r \t \0 \\   \xNN a byte

A format string is parsed once into a list of parts. An unknown token is an error.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Protocol

from kwire.errors import ConfigurationError


class FormattedRecord(Protocol):
    """What a token can print of a record: a kwire.consumer.ConsumerRecord."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


Renderer = Callable[[FormattedRecord], bytes]
_TOKEN = re.compile(rb"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: FormattedRecord, null: bytes | None) -> bytes:
    """Return headers as a=1,b=2.

    A null header is its name alone, as `kwire produce -H NAME` takes it, unless --null is given.
    """
    parts = []
    for name, value in record.headers:
        text = null if value is None else value
        encoded = name.encode(errors="surrogateescape")
        parts.append(encoded if text is None else encoded + b"=" + text)
    return b",".join(parts)


def _tokens(chosen: bytes | None) -> dict[bytes, Renderer]:
    null = chosen or b""
    return {
        b"s": lambda record: null if record.value is None else record.value,
        b"S": lambda record: b"%d" % _length(record.value),
        b"R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
        b"k": lambda record: null if record.key is None else record.key,
        b"K": lambda record: b"%d" % _length(record.key),
        b"T": lambda record: b"%d" % record.timestamp_ms,
        b"h": lambda record: _headers(record, chosen),
        b"t": lambda record: record.topic.encode(),
        b"p": lambda record: b"%d" % record.partition,
        b"o": lambda record: b"%d" % record.offset,
    }


def compile_format(text: str, *, null: bytes | None = None) -> Renderer:
    """Return a function that renders a record.

    `null` replaces a null key, value or header. Raises ConfigurationError.
    """
    source = text.encode("utf-8", "surrogateescape")
    tokens = _tokens(null)
    parts: list[bytes | Renderer] = []
    end = 0
    for match in _TOKEN.finditer(source):
        parts.append(source[end : match.start()])
        parts.append(b"%" if match[1] == b"%" else tokens[match[1]] if match[1] in tokens else _escaped(match, text))
        end = match.end()
    parts.append(source[end:])
    plan = [part for part in _joined(parts) if part != b""]

    def render(record: FormattedRecord) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(record) for part in plan])

    quick = _quick(source, plan)
    if quick is None:
        return render

    def render_quickly(record: FormattedRecord) -> bytes:
        try:
            return quick(record)
        except TypeError:  # a key or value is null
            return render(record)

    return render_quickly


# Tokens that one formatting of bytes can fill in, unless the key or value is null: half the time of one call a token.
_SIMPLE = {b"s": (b"%b", "value"), b"k": (b"%b", "key"), b"o": (b"%d", "offset"), b"p": (b"%d", "partition"),
           b"T": (b"%d", "timestamp_ms")}  # fmt: skip


def _quick(source: bytes, plan: Sequence[bytes | Renderer]) -> Renderer | None:
    """Return a function for the records without nulls, or None if the format has other than simple tokens."""
    tokens = [match[1] for match in _TOKEN.finditer(source) if match[1] is not None and match[1] != b"%"]
    if not tokens or any(token not in _SIMPLE for token in tokens):
        return None
    specs = iter(_SIMPLE[token][0] for token in tokens)
    form = b"".join([part.replace(b"%", b"%%") if isinstance(part, bytes) else next(specs) for part in plan])
    values = operator.attrgetter(*(_SIMPLE[token][1] for token in tokens))
    return lambda record: form % values(record)


def _escaped(match: re.Match[bytes], text: str) -> bytes:
    escape = match[2]
    if escape is not None and escape in _ESCAPES:
        return _ESCAPES[escape]
    if escape is not None and len(escape) == 3:
        return bytes.fromhex(escape[1:].decode())
    raise ConfigurationError(
        f"the format {text!r} has {match[0].decode(errors='replace')!r}, which is not a token",
        remedy="tokens are %s %S %R %k %K %T %h %t %p %o %%, escapes \\n \\r \\t \\0 \\\\ \\xNN",
    )


def _joined(parts: list[bytes | Renderer]) -> list[bytes | Renderer]:
    """Merge neighbouring texts."""
    joined: list[bytes | Renderer] = []
    for part in parts:
        if joined and isinstance(part, bytes) and isinstance(joined[-1], bytes):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def unescape(text: str) -> bytes:
    r"""Return the bytes of a delimiter as given on the command line: "\t", ":", "\x00"."""
    source = text.encode("utf-8", "surrogateescape")
    return re.sub(rb"\\(x[0-9a-fA-F]{2}|.?)", lambda match: _escaped_delimiter(match, text), source, flags=re.DOTALL)


def _escaped_delimiter(match: re.Match[bytes], text: str) -> bytes:
    escape = match[1]
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if len(escape) == 3:
        return bytes.fromhex(escape[1:].decode())
    raise ConfigurationError(f"{text!r} has an unknown escape", remedy="escapes are \\n \\r \\t \\0 \\\\ \\xNN")
