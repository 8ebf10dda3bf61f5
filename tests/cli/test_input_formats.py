"""Bytes are read from every text format that people paste. A text that contradicts itself is rejected."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from kwire.cli.decode.input_formats import InputFormat, parse_input
from kwire.errors import DecodeError

FRAME = (
    bytes.fromhex("0000001f00030009000000070005626565660000020466")
    + b"beef|ab\xff"
    + bytes(range(20))
    + bytes(48)
    + b"z"
)
HEX = FRAME.hex()
PAIRS = [f"{byte:02x}" for byte in FRAME]


def rows(data: bytes, columns: int = 16, *, folded: bool = False) -> list[tuple[int, bytes]]:
    """Offset and bytes of each line; `folded` puts (-1, b"") for a run of equal lines, as hexdump and od print *."""
    lines: list[tuple[int, bytes]] = []
    for at in range(0, len(data), columns):
        row = data[at : at + columns]
        is_last = at + columns >= len(data)
        if folded and not is_last and at and row == data[at - columns : at]:
            if lines[-1][0] >= 0:
                lines.append((-1, b""))
        else:
            lines.append((at, row))
    return lines


def characters(row: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)


def xxd(data: bytes, columns: int = 16, group: int = 2) -> str:
    width = columns * 2 + columns // group - 1
    return "".join(f"{at:08x}: {row.hex(' ', -group):<{width}}  {characters(row)}\n" for at, row in rows(data, columns))


def hexdump_c(data: bytes) -> str:
    lines = [
        "*" if at < 0 else f"{at:08x}  {row[:8].hex(' ') + '  ' + row[8:].hex(' '):<48}  |{characters(row)}|"
        for at, row in rows(data, folded=True)
    ]
    return "\n".join([*lines, f"{len(data):08x}\n"])


def words(data: bytes, offset: str, gap: str = " ") -> str:
    """hexdump (offsets in hex) and od -x (in octal): words in little-endian order."""
    lines = []
    for at, row in rows(data, folded=True):
        pairs = [(row[i : i + 2] + b"\0")[:2] for i in range(0, len(row), 2)]
        lines.append("*" if at < 0 else format(at, offset) + gap + " ".join(pair[::-1].hex() for pair in pairs))
    return "\n".join([*lines, format(len(data), offset) + "\n"])


def od(data: bytes, offset: str) -> str:
    lines = ["*" if at < 0 else f"{at:{offset}} {row.hex(' ')}" for at, row in rows(data, folded=True)]
    return "\n".join([*lines, format(len(data), offset) + "\n"])


def wireshark(data: bytes) -> str:
    return "".join(
        f"{at:04x}   {row[:8].hex(' ') + '  ' + row[8:].hex(' '):<48}   {characters(row)}\n" for at, row in rows(data)
    )


def tcpdump(data: bytes) -> str:
    return "".join(f"\t0x{at:04x}:  {row.hex(' ', -2):<39}  {characters(row)}\n" for at, row in rows(data))


DUMPS: dict[str, Callable[[bytes], str]] = {
    "xxd": xxd,
    "xxd -g1 -c8": lambda data: xxd(data, 8, 1),
    "hexdump -C": hexdump_c,
    "hexdump": lambda data: words(data, "07x"),
    "od -x": lambda data: words(data, "07o"),
    "od -tx1": lambda data: od(data, "07o"),
    "od -A x -tx1": lambda data: od(data, "06x"),
    "Wireshark": wireshark,
    "tcpdump -X": tcpdump,
}
FORMS = {
    "plain": HEX,
    "upper case, ending in a newline": HEX.upper() + "\n",
    "spaced": " ".join(PAIRS),
    "groups of four": " ".join(HEX[i : i + 4] for i in range(0, len(HEX), 4)),
    "wrapped": "\n".join(HEX[i : i + 40] for i in range(0, len(HEX), 40)),
    "colons": ":".join(PAIRS),
    "dashes": "-".join(PAIRS),
    "C": "{ " + ", ".join(f"0x{pair}" for pair in PAIRS) + " };",
    "C, as xxd -i prints it": "\n".join(f"  0x{pair}," for pair in PAIRS),
    "C with short bytes": ", ".join(hex(byte) for byte in FRAME),
    "one long 0x": "0x" + HEX,
    "escapes": "".join(f"\\x{pair}" for pair in PAIRS),
    "C string in two pieces": "\n".join(
        '"' + "".join(f"\\x{pair}" for pair in pairs) + '"' for pairs in (PAIRS[:30], PAIRS[30:])
    ),
    "Python": repr(FRAME),
    "Java": str([byte - 256 if byte > 127 else byte for byte in FRAME]),
    "Go": "[" + " ".join(str(byte) for byte in FRAME) + "]",
    "base64": base64.b64encode(FRAME).decode(),
    "base64, wrapped": base64.encodebytes(FRAME).decode(),
    "base64 for URLs, unpadded": base64.urlsafe_b64encode(FRAME).decode().rstrip("="),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_input_format(form: str) -> None:
    assert parse_input(FORMS[form].encode()) == [FRAME]


@pytest.mark.parametrize("tool", DUMPS)
@pytest.mark.parametrize("length", [1, 4, 12, 15, 16, 17, 31, 32, len(FRAME)])
def test_dump(tool: str, length: int) -> None:
    """Last lines of any length: the column of characters must not be taken for hex."""
    assert parse_input(DUMPS[tool](FRAME[:length]).encode()) == [FRAME[:length]]


def test_raw_is_recognised_by_its_zero_bytes() -> None:
    assert parse_input(FRAME) == [FRAME]
    assert parse_input(b"abcd", "raw") == [b"abcd"]


def test_crlf_and_byte_order_mark() -> None:
    assert parse_input(b"\xef\xbb\xbf" + xxd(FRAME).replace("\n", "\r\n").encode()) == [FRAME]


@pytest.mark.parametrize("tool", ["xxd", "hexdump -C", "Wireshark"])
def test_two_dumps_are_two_inputs(tool: str) -> None:
    assert parse_input((DUMPS[tool](FRAME) + "\n" + DUMPS[tool](FRAME)).encode()) == [FRAME, FRAME]


def test_a_dump_cut_out_of_a_larger_one() -> None:
    assert parse_input("\n".join(xxd(FRAME).splitlines()[1:3]).encode()) == [FRAME[16:48]]


LINES = xxd(FRAME).splitlines()


@pytest.mark.parametrize(
    ("text", "form", "says"),
    [
        ("", "auto", "empty"),
        ("00 0", "auto", "odd number"),
        ("00 zz", "hex", "'z' in line 1"),
        ("00\n0g", "hex", "'g' in line 2"),
        ("0x", "hex", "0x"),
        ("!!", "auto", "not hex"),
        ("a", "base64", "not base64"),
        ("[0, 300]", "auto", "300 in the list"),
        ("b'\\x0'", "auto", "escapes"),
        ("00000000: 0000 001f  ....\n00000010: 0000  ..", "auto", "line 2 of the dump is at 00000010"),
        ("\n".join([LINES[0], *LINES[2:]]), "auto", "a line was lost"),
    ],
)
def test_unknown_formats_are_errors(text: str, form: InputFormat, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        parse_input(text.encode(), form)


def test_binary_is_not_hex() -> None:
    with pytest.raises(DecodeError, match="it is binary"):
        parse_input(b"\0\xff", "hex")
