"""Property files in Java's format (java.util.Properties)."""

from __future__ import annotations

import re
from pathlib import Path

from kwire.errors import ConfigurationError

# Java's white space and line ends: not those of Unicode, which may be part of a password.
_ENTRY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """Return the entries of a property file in UTF-8. Raises ConfigurationError."""
    try:
        return parse_properties(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path} is not UTF-8: {error}", remedy="write it in UTF-8, or escape as \\u00e9"
        ) from error


def parse_properties(text: str) -> dict[str, str]:
    """Parse the text of a Java property file (java.util.Properties): comments, continued lines, escapes.

    Raises ConfigurationError.
    """
    found: dict[str, str] = {}
    logical = ""
    for line in _LINE_END.split(text):
        line = line.lstrip(" \t\f")
        if not logical and (not line or line[0] in "#!"):
            continue
        if re.search(r"(?<!\\)(\\\\)*\\$", line):
            logical += line[:-1]
            continue
        _add_entry(found, logical + line)
        logical = ""
    if logical:
        _add_entry(found, logical)
    return found


def _add_entry(to: dict[str, str], line: str) -> None:
    match = _ENTRY.fullmatch(line)
    assert match is not None  # both groups may be empty
    try:
        to[_unescaped(match[1])] = _unescaped(match[2])
    except ValueError:
        raise ConfigurationError(
            f"property {match[1]} has \\u without four hexadecimal digits",
            remedy="write \\\\ for a backslash",
        ) from None


def _unescaped(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        char = match[1]
        if char == "u":
            raise ValueError
        return chr(int(char[1:], 16)) if len(char) == 5 else _ESCAPED.get(char, char)

    # Java writes a character beyond 16 bits as two escapes.
    return _ESCAPE.sub(replace, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
