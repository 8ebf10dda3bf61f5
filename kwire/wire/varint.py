"""Variable-length integers: seven bits per byte, least significant first. The eighth bit says that more bytes follow.

There are two kinds, as in Kafka's ByteUtils. An unsigned varint has at most 32 bits in 5 bytes: lengths and tags of
flexible messages (KIP-482). A zig-zag varint has at most 64 bits in 10 bytes, and small negative numbers are short: the
fields of a record in a v2 batch (KIP-98). Like Kafka, the decoders accept a value in more bytes than it needs, and
raise DecodeError for a value that has too many bits.

The loops over records have their own code for short values, because a call would cost more than the work.
"""

from __future__ import annotations

from functools import cache

from kwire.errors import DecodeError, EncodeError

Readable = bytes | bytearray | memoryview

UVARINT_BYTES_MAX = 5
VARINT_BYTES_MAX = 10

_UVARINT_LIMIT = 1 << 32
_VARINT_LIMIT = 1 << 63
_WORD = (1 << 64) - 1

_BYTES = tuple(bytes((n,)) for n in range(0x80))


@cache
def short_varints() -> tuple[bytes, ...]:
    """Return the zig-zag varints of 0 to 8191, which have one or two bytes, by their numbers.

    They are made at the first call: most processes encode records in C, and need none.
    """
    return tuple(map(encode_varint, range(1 << 13)))


def _seven_bits_a_byte(n: int) -> bytes:
    if n < 1 << 14:
        return bytes((n & 0x7F | 0x80, n >> 7))
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def encode_uvarint(n: int) -> bytes:
    """Return an unsigned number in 1 to 5 bytes. Raises EncodeError for more than 32 bits.

    >>> encode_uvarint(300).hex()
    'ac02'
    """
    if 0 <= n < 0x80:
        return _BYTES[n]
    if not 0 <= n < _UVARINT_LIMIT:
        raise EncodeError(f"{n} does not fit an unsigned varint of 32 bits")
    return _seven_bits_a_byte(n)


def decode_uvarint(data: Readable, pos: int) -> tuple[int, int]:
    """Return the number at `pos` and the position after it.

    >>> decode_uvarint(bytes.fromhex("ac02"), 0)
    (300, 2)
    """
    n, end = _decode(data, pos, UVARINT_BYTES_MAX, "an unsigned varint of 32 bits")
    if n >= _UVARINT_LIMIT:
        raise DecodeError("an unsigned varint holds more than 32 bits", offset=pos)
    return n, end


def encode_varint(n: int) -> bytes:
    """Return a number in zig-zag code, in 1 to 10 bytes. Raises EncodeError for more than 64 bits.

    >>> [encode_varint(n).hex() for n in (0, -1, 1, -2, 2147483647)]
    ['00', '01', '02', '03', 'feffffff0f']
    """
    zigzag = n << 1 if n >= 0 else ~(n << 1)
    if zigzag < 0x80:
        return _BYTES[zigzag]
    if not -_VARINT_LIMIT <= n < _VARINT_LIMIT:
        raise EncodeError(f"{n} does not fit a varint of 64 bits")
    return _seven_bits_a_byte(zigzag)


def decode_varint(data: Readable, pos: int) -> tuple[int, int]:
    """Return the number at `pos` and the position after it.

    >>> decode_varint(bytes.fromhex("03"), 0)
    (-2, 1)
    """
    n, end = _decode(data, pos, VARINT_BYTES_MAX, "a varint of 64 bits")
    if n > _WORD:
        raise DecodeError("a varint holds more than 64 bits", offset=pos)
    return (n >> 1) ^ -(n & 1), end


def varint_size(n: int) -> int:
    """Return how many bytes `encode_varint(n)` has.

    >>> [varint_size(n) for n in (0, -1, 63, 64, -64, -65, 2**63 - 1)]
    [1, 1, 1, 2, 1, 2, 10]
    """
    zigzag = n << 1 if n >= 0 else ~(n << 1)
    return (zigzag.bit_length() + 6) // 7 or 1


def _decode(data: Readable, pos: int, bytes_max: int, kind: str) -> tuple[int, int]:
    n = shift = 0
    start, size = pos, len(data)
    while True:
        if not 0 <= pos < size:
            raise DecodeError(f"the data ends inside {kind}", offset=start)
        byte = data[pos]
        pos += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            return n, pos
        shift += 7
        if pos - start == bytes_max:
            raise DecodeError(f"more than {bytes_max} bytes for {kind}", offset=start)
