"""kcat's format strings: every token, null, binary, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kwire.cli.kcat_format import compile_format, unescape
from kwire.errors import ConfigurationError


@dataclass
class Sample:
    topic: str = "orders"
    partition: int = 3
    offset: int = 42
    timestamp_ms: int = 1700000000000
    key: bytes | None = b"k"
    value: bytes | None = b"v\xff\0"
    headers: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("b", None), ("a", b"2"))


FULL, NULLS = Sample(), Sample(key=None, value=None, headers=())


@pytest.mark.parametrize(
    ("text", "full", "nulls"),
    [
        (r"%t %p %o %k %s\n", b"orders 3 42 k v\xff\0\n", b"orders 3 42 NULL NULL\n"),
        ("%S %K", b"3 1", b"-1 -1"),
        ("%R%s", b"\0\0\0\x03v\xff\0", b"\xff\xff\xff\xffNULL"),
        ("%T", b"1700000000000", b"1700000000000"),
        ("%h", b"a=1,b=NULL,a=2", b""),
        (r"100%% \\ \t\r\0\x41\xfe", b"100% \\ \t\r\0A\xfe", b"100% \\ \t\r\0A\xfe"),
        ("é", "é".encode(), "é".encode()),
        ("", b"", b""),
    ],
)
def test_format(text: str, full: bytes, nulls: bytes) -> None:
    render = compile_format(text, null=b"NULL")
    assert (render(FULL), render(NULLS)) == (full, nulls)


def test_null_is_empty_and_a_null_header_its_name() -> None:
    assert compile_format("[%k|%s|%h]")(Sample(key=None, value=None)) == b"[||a=1,b,a=2]"


def test_a_header_name_that_is_no_utf_8_is_printed_as_its_bytes() -> None:
    assert compile_format("%h")(Sample(headers=(("n\udcff", b"1"), ("\udcfe", None)))) == b"n\xff=1,\xfe"


@pytest.mark.parametrize("text", ["%q", "%", "a%", "\\", r"\q", r"\x1", r"\xzz"])
def test_unknown_tokens_are_errors(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a token"):
        compile_format(text)


@pytest.mark.parametrize(
    ("text", "data"), [(":", b":"), (r"\t", b"\t"), (r"\x00", b"\0"), ("::", b"::"), (r"\\", b"\\")]
)
def test_unescape(text: str, data: bytes) -> None:
    assert unescape(text) == data


def test_unescape_errors() -> None:
    with pytest.raises(ConfigurationError, match="unknown escape"):
        unescape(r"\q")
