"""Property files in Java's format."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.errors import ConfigurationError
from kwire.properties.file import parse_properties, read_properties


def test_the_format_of_java() -> None:
    text = "# comment\n! another\n\nbootstrap.servers = a:9092,\\\n    b:9092\ngroup.id:billing\nempty\nspace value\n"
    assert parse_properties(text) == {
        "bootstrap.servers": "a:9092,b:9092", "group.id": "billing", "empty": "", "space": "value",
    }  # fmt: skip
    assert parse_properties(r"a\:b=c\=d\te") == {"a:b": "c=d\te"}
    assert parse_properties("a = \\u00e9\nlast = 1\\") == {"a": "\u00e9", "last": "1"}


def test_a_password_with_characters_beyond_16_bits_or_with_white_space_of_unicode() -> None:
    assert parse_properties("p=x\\ud83d\\ude00\nq=a\u2028\x85\x0bb\r\nr=\u00a0c\rs=d") == {
        "p": "x\U0001f600", "q": "a\u2028\x85\x0bb", "r": "\u00a0c", "s": "d",
    }  # fmt: skip


def test_a_malformed_escape_is_refused_as_in_java() -> None:
    with pytest.raises(ConfigurationError, match=r"property password has \\u without four") as caught:
        parse_properties("password=s3cret\\user")
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"name = \xe9\n")
    with pytest.raises(ConfigurationError, match="is not UTF-8"):
        read_properties(path)
