"""Varints: values and bytes, rejected input, and round trips of any number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import DecodeError, EncodeError
from kwire.wire.varint import (
    decode_uvarint,
    decode_varint,
    encode_uvarint,
    encode_varint,
    short_varints,
    varint_size,
)

UNSIGNED = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2097151, "ffff7f"),
    (2097152, "80808001"),
    (268435455, "ffffff7f"),
    (268435456, "8080808001"),
    (2**31 - 1, "ffffffff07"),
    (2**32 - 1, "ffffffff0f"),
]
ZIGZAG = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("number", "data"), UNSIGNED)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_unsigned(number: int, data: str, wrap: type[bytes]) -> None:
    encoded = bytes.fromhex(data)
    assert encode_uvarint(number) == encoded
    assert decode_uvarint(wrap(b"?" + encoded + b"?"), 1) == (number, 1 + len(encoded))


@pytest.mark.parametrize(("number", "data"), ZIGZAG)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_zigzag(number: int, data: str, wrap: type[bytes]) -> None:
    encoded = bytes.fromhex(data)
    assert encode_varint(number) == encoded
    assert varint_size(number) == len(encoded)
    assert decode_varint(wrap(b"?" + encoded + b"?"), 1) == (number, 1 + len(encoded))


@pytest.mark.parametrize(("number", "data"), [(0, "8000"), (1, "818000"), (127, "ff80808000")])
def test_varints_with_more_bytes_than_needed(number: int, data: str) -> None:
    """Kafka's readers accept it."""
    assert decode_uvarint(bytes.fromhex(data), 0) == (number, len(data) // 2)
    assert decode_varint(bytes.fromhex(data), 0)[0] == (number >> 1) ^ -(number & 1)


@pytest.mark.parametrize("data", ["", "80", "8080", "80808080"])
def test_cut_off(data: str) -> None:
    for decode in (decode_uvarint, decode_varint):
        with pytest.raises(DecodeError, match="the data ends inside a") as caught:
            decode(b"?" + bytes.fromhex(data), 1)
        assert caught.value.where["offset"] == 1


def test_before_the_data() -> None:
    with pytest.raises(DecodeError):
        decode_uvarint(b"\1\1", -1)


@pytest.mark.parametrize("data", ["8080808010", "ffffffff7f", "808080808000", "ffffffffffffffff"])
def test_unsigned_of_more_than_32_bits(data: str) -> None:
    with pytest.raises(DecodeError):
        decode_uvarint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("data", ["80808080808080808002", "ff" * 9 + "7f", "80" * 10 + "00", "ff" * 20])
def test_zigzag_of_more_than_64_bits(data: str) -> None:
    with pytest.raises(DecodeError):
        decode_varint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("number", [-1, 2**32])
def test_unsigned_that_does_not_fit(number: int) -> None:
    with pytest.raises(EncodeError):
        encode_uvarint(number)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64])
def test_zigzag_that_does_not_fit(number: int) -> None:
    with pytest.raises(EncodeError):
        encode_varint(number)


@given(st.integers(0, 2**32 - 1))
def test_any_unsigned(number: int) -> None:
    encoded = encode_uvarint(number)
    assert decode_uvarint(encoded, 0) == (number, len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_zigzag(number: int) -> None:
    encoded = encode_varint(number)
    assert decode_varint(encoded, 0) == (number, len(encoded))


@given(st.binary(max_size=12), st.integers(0, 12))
def test_any_bytes(data: bytes, pos: int) -> None:
    for decode in (decode_uvarint, decode_varint):
        try:
            _, end = decode(data, pos)
        except DecodeError:
            continue
        assert pos < end <= len(data)


def test_the_table() -> None:
    assert len(short_varints()) == 1 << 13
    for number in (0, 63, 64, 255, 256, 8191):
        assert decode_varint(short_varints()[number], 0) == (number, 1 if number < 64 else 2)
