"""Record batches with masked keys, values and headers, compressed again by their codec, and with right checksums."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from kwire.capture.batch_fields import read_batches
from kwire.capture.field_reader import FieldRow
from kwire.errors import KwireError
from kwire.records import Compression
from kwire.records.compression import compress, decompress
from kwire.wire.checksums import crc32c

_MASK = b"*"
_V2 = 2
# Positions in a batch (v2) or a message (v0, v1).
_LENGTH_AT, _LOG_OVERHEAD_BYTES, _MAGIC_AT = 8, 12, 16
_CRC_V2, _BODY_V2 = 17, 21
_CRC_V0, _BODY_V0 = 12, 16
_CODEC, _CONTROL = 0x07, 0x20


def mask_batches(data: bytes) -> bytes:
    """Return record batches with masked keys, values and values of headers."""
    masked = b""
    pos = 0
    while len(data) - pos > _MAGIC_AT:
        end = pos + _LOG_OVERHEAD_BYTES + int.from_bytes(data[pos + _LENGTH_AT : pos + _LOG_OVERHEAD_BYTES], "big")
        if end > len(data):
            break
        masked += _mask_batch(data[pos:end])
        pos = end
    return masked


def _mask_batch(data: bytes) -> bytes:
    """Return one batch, or one message of the old formats, masked; nothing if it cannot be read."""
    rows: list[FieldRow] = []
    problems: list[KwireError] = []
    read_batches(data, 0, "", rows, problems)
    magic = data[_MAGIC_AT]
    if problems or not rows:
        return b""
    is_v2 = magic == _V2
    codec = Compression((data[_BODY_V2 + 1] if is_v2 else data[_MAGIC_AT + 1]) & _CODEC)
    if is_v2 and data[_BODY_V2 + 1] & _CONTROL:
        return data
    packed = next((row for row in rows if not row.within and row.note.endswith("when decompressed")), None)
    if packed is None:
        masked = bytearray(data)
        _mask_rows(masked, rows, "")
    elif is_v2:
        plain = bytearray(decompress(codec, packed.data))
        _mask_rows(plain, rows, packed.type)
        masked = bytearray(data[: packed.start]) + compress(codec, bytes(plain))
    else:
        # A message of the old formats holds a set of messages as its value.
        value = compress(codec, mask_batches(bytes(decompress(codec, packed.data))))
        begin = len(data) - len(packed.data) - 4
        masked = bytearray(data[:begin]) + len(value).to_bytes(4, "big") + value
    masked[_LENGTH_AT:_LOG_OVERHEAD_BYTES] = (len(masked) - _LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    crc_at, body_at = (_CRC_V2, _BODY_V2) if is_v2 else (_CRC_V0, _BODY_V0)
    checksum = (crc32c if is_v2 else zlib.crc32)(bytes(masked[body_at:]))
    masked[crc_at : crc_at + 4] = checksum.to_bytes(4, "big")
    return bytes(masked)


def _mask_rows(data: bytearray, rows: Iterable[FieldRow], within: str) -> None:
    for row in rows:
        path, _, name = row.path.rpartition(".")
        if row.within == within and row.value and (name == "value" or (name == "key" and ".header[" not in path)):
            data[row.start : row.end] = _MASK * len(row.data)
