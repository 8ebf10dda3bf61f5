"""Bytes from pasted text: hex as tools and languages print it, base64, or the bytes themselves.

    0000001f0003 0009            plain, any spacing, also with : - , between bytes
    0x00, 0x1f / {0x00,0x1f}     C, Go, Java
    \\x00\\x1fabc / b'\\x00\\x1f'    escapes; Python's own repr
    [0, 31, -1]                  a list of decimals, as Java, Go and JavaScript print bytes
    00000000: 0000 001f  ....    xxd, hexdump -C, hexdump, od -tx1, tcpdump -X, Wireshark's hex dump

The format is detected. A dump whose offsets restart at zero begins the next input. An offset that does not fit is an
error: a line was lost in copying, and every byte after it would be wrong.
"""

from __future__ import annotations

import ast
import base64
import binascii
import contextlib
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from kwire.errors import DecodeError

InputFormat = Literal["auto", "hex", "base64", "raw"]

_PYTHON_BYTES = re.compile(r"""[bB](['"]).*\1""", re.DOTALL)
_DECIMALS = re.compile(r"\[\s*-?\d{1,3}(?:[\s,]+-?\d{1,3})*\s*\]")
# Allowed around and between the bytes of plain hex.
_PUNCTUATION = re.compile(r"""[\s,;:{}\[\]()"'-]+""")
_DUMP_LINE = re.compile(r"\s*(?:0[xX])?([0-9a-fA-F]{4,16})(:?)(\s.*)?$")
_HEX = re.compile(r"[0-9a-fA-F]+")
# Any short word is valid base64; a frame is longer.
_BASE64_BYTES_MIN = 8
_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\s]+=*\s*")


def parse_input(data: bytes, form: InputFormat = "auto") -> list[bytes]:
    """Return the inputs in `data`, usually one. Raises DecodeError if the format is unknown."""
    if form == "raw":
        return [data]
    text = _maybe_text(data)
    if text is None:
        if form == "auto":
            return [data]
        raise DecodeError(f"the input is not {form}: it is binary", remedy="leave out the option")
    if form == "base64":
        return [_from_base64(text)]
    try:
        return _from_hex(text)
    except DecodeError as not_hex:
        # Hex digits alone are hex with an error, although they are valid base64, too.
        if form == "auto" and _BASE64.fullmatch(text) and not _HEX.fullmatch("".join(text.split())):
            try:
                data = _from_base64(text)
            except DecodeError:
                raise not_hex from None
            if len(data) >= _BASE64_BYTES_MIN:
                return [data]
        raise


def _maybe_text(data: bytes) -> str | None:
    """Return the input as text, or None if it is binary: a frame always has a zero byte, text never has one."""
    if b"\0" in data:
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c.isspace() for c in text) else None


def _from_base64(text: str) -> bytes:
    packed = "".join(text.split()).replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except binascii.Error as error:
        raise DecodeError(f"the input is not base64: {error}") from None


def _from_hex(text: str) -> list[bytes]:
    text = text.strip()
    if _PYTHON_BYTES.fullmatch(text) or "\\x" in text:
        return [_from_escapes(text)]
    if _DECIMALS.fullmatch(text):
        return [_from_decimals(text)]
    if _looks_like_a_dump(text):
        return _from_dump(text)
    return [_from_plain(text)]


def _from_escapes(text: str) -> bytes:
    if not _PYTHON_BYTES.fullmatch(text):
        # A C string, possibly on several lines.
        bare = "".join(line.strip().strip('"').rstrip("\\") for line in text.splitlines())
        text = "b'" + bare.replace("'", "\\'") + "'"
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError) as error:
        raise DecodeError(f"the input is not a string of escapes: {error}") from None
    assert isinstance(value, bytes)
    return value


def _from_decimals(text: str) -> bytes:
    numbers = [int(number) for number in re.findall(r"-?\d+", text)]
    wrong = [n for n in numbers if not -128 <= n <= 255]
    if wrong:
        raise DecodeError(f"{wrong[0]} in the list is not a byte")
    return bytes(n & 0xFF for n in numbers)


def _from_plain(text: str) -> bytes:
    digits: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        for token in _PUNCTUATION.split(line):
            has_prefix = token[:2] in ("0x", "0X")
            bare = token[2:] if has_prefix else token
            if not bare and not has_prefix:
                continue
            if not _HEX.fullmatch(bare):
                wrong = next((c for c in bare if not _HEX.fullmatch(c)), "0x")
                raise DecodeError(f"the input is not hex: {wrong!r} in line {number}", remedy=_REMEDY)
            # Languages print 0x1 for a byte below 16; without 0x, a single digit is an error.
            digits.append("0" + bare if has_prefix and len(bare) == 1 else bare)
    joined = "".join(digits)
    if not joined:
        raise DecodeError("the input is empty", remedy="give a file, or pipe the frame into the command")
    if len(joined) % 2:
        raise DecodeError(
            f"the input is not hex: {len(joined)} digits, an odd number",
            remedy="a digit was lost in copying: paste the whole input",
        )
    return bytes.fromhex(joined)


_REMEDY = "give --base64 or --raw if it is that, or paste hex, xxd or hexdump -C output"


class _Line(NamedTuple):
    number: int
    offset: str
    data: bytes
    is_repeat: bool  # the * of hexdump: the line before, repeated up to the next offset


def _looks_like_a_dump(text: str) -> bool:
    """Return whether each line begins with an offset; `0000 001f 0003`, plain hex in groups of four, has none."""
    lines = [line for line in text.splitlines() if line.strip() and line.strip() != "*"]
    matches = [_DUMP_LINE.match(line) for line in lines]
    if not lines or not all(matches):
        return False
    first = matches[0]
    assert first is not None
    rest = first[3] or ""
    is_marked = bool(first[2]) or len(first[1]) % 2 == 1 or rest.startswith(("  ", "\t"))
    if is_marked:
        return set(first[1]) <= {"0"} or bool(first[2]) or len(lines) > 1
    # One space after an even number of digits (od -A x): accept only offsets that count the bytes.
    return len(lines) > 1 and set(first[1]) == {"0"} and _counts_bytes(text)


def _counts_bytes(text: str) -> bool:
    try:
        _from_dump(text)
    except DecodeError:
        return False
    return True


def _from_dump(text: str) -> list[bytes]:
    lines = list(_dump_lines(text))
    try:
        return list(_dumps(lines, base=16))
    except DecodeError:
        # od prints octal offsets by default.
        if all(set(line.offset) <= set("01234567") for line in lines):
            with contextlib.suppress(DecodeError):
                return list(_dumps(lines, base=8))
        raise


def _dump_lines(text: str) -> Iterator[_Line]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() == "*":
            yield _Line(number, "", b"", True)
        elif (match := _DUMP_LINE.match(line)) is not None:
            yield _Line(number, match[1], _line_bytes(match[1], bool(match[2]), match[3] or "", number), False)
        elif line.strip():
            raise DecodeError(f"line {number} of the dump has no offset", remedy="paste whole lines")


def _line_bytes(offset: str, has_colon: bool, rest: str, number: int) -> bytes:
    """Return the bytes of one line, without the characters at its right."""
    rest = rest.strip()
    if "|" in rest:
        rest = rest[: rest.index("|")]
    # xxd and tcpdump print one space between groups and two before the characters; others print two and three.
    hex_text = re.split(r"\s{2,}" if has_colon else r"\s{3,}", rest)[0]
    tokens = hex_text.split()
    if not all(_HEX.fullmatch(token) and len(token) % 2 == 0 for token in tokens):
        raise DecodeError(f"line {number} of the dump is not hex: {hex_text!r}", remedy="paste the tool's own lines")
    # hexdump and od -x, with 7-digit offsets, print little-endian words; all others print bytes.
    if len(offset) == 7 and not has_colon and tokens and all(len(token) == 4 for token in tokens):
        tokens = [token[2:] + token[:2] for token in tokens]
    return bytes.fromhex("".join(tokens))


def _dumps(lines: list[_Line], *, base: int) -> Iterator[bytes]:
    dump = bytearray()
    begin = position = int(lines[0].offset or "0", base)
    last = b""
    is_repeating = False
    for line in lines:
        if line.is_repeat:
            is_repeating = True
            continue
        offset = int(line.offset, base)
        if is_repeating and last and offset > position and (offset - position) % len(last) == 0:
            dump += last * ((offset - position) // len(last))
            position = offset
        is_repeating = False
        if offset < position and begin < position and line.data and offset in (0, begin):
            yield bytes(dump)
            dump.clear()
            begin = position = offset
        if not line.data and 0 <= position - offset <= 1:
            # The offset at the end of hexdump; it also shows whether the last word is half a word.
            del dump[len(dump) - (position - offset) :]
            position = offset
        if offset != position:
            raise DecodeError(
                f"line {line.number} of the dump is at {line.offset}, but the bytes before it end at {position:#x}",
                remedy="a line was lost in copying: paste the whole dump",
            )
        dump += line.data
        position += len(line.data)
        last = line.data
    yield bytes(dump)
