"""Record batches read field by field: zigzag varints, checksums, compressed parts, and messages of the old formats."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from kwire.capture.field_reader import FieldReader, FieldRow
from kwire.capture.times import utc_text
from kwire.errors import CorruptRecordsError, KwireError
from kwire.records import BATCH_OVERHEAD_BYTES, Compression
from kwire.records.compression import decompress
from kwire.wire.checksums import crc32c

_LOG_OVERHEAD_BYTES = 12
_MAGIC_AT = 16
_LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20
_CONTROL_KINDS = {0: "abort", 1: "commit", 2: "leader change", 3: "snapshot header", 4: "snapshot footer"}


def read_batches(data: bytes, base: int, path: str, rows: list[FieldRow], problems: list[KwireError]) -> None:
    """Append every field of the batches to `rows`, and errors to `problems`; raise nothing.

    An incomplete last batch is normal: a Fetch response ends at its size limit.
    """
    reader = FieldReader(data, base, rows, problems)
    index = 0
    while reader.pos < len(data):
        is_whole = _is_whole(data, reader.pos)
        here = f"{path}.batch[{index}]"
        read_from = len(rows)
        begin = reader.pos
        try:
            _batch(reader, here)
        except KwireError as error:
            if is_whole:
                problems.append(error)
            end = max([begin, *(row.end - base for row in rows[read_from:] if not row.within)])
            if end < len(data):
                note = "not read" if is_whole else "cut off here"
                rows.append(FieldRow(base + end, bytes(data[end:]), here, "?", None, note))
            return
        index += 1


def _is_whole(data: bytes, pos: int) -> bool:
    if len(data) - pos <= _MAGIC_AT:
        return False
    (size,) = struct.unpack_from(">i", data, pos + 8)
    return pos + _LOG_OVERHEAD_BYTES + max(int(size), 0) <= len(data)


def _batch(reader: FieldReader, path: str) -> None:
    if len(reader.data) - reader.pos <= _MAGIC_AT:
        raise reader.error("too few bytes for a batch", path)
    magic = reader.data[reader.pos + _MAGIC_AT]
    if magic == 2:
        _batch_v2(reader, path)
    elif magic in (0, 1):
        _message(reader, path)
    else:
        raise reader.error(f"Kafka has no message format {magic}", f"{path}.magic", back=-_MAGIC_AT)


def _batch_v2(reader: FieldReader, path: str) -> None:
    start = reader.pos
    reader.fixed(f"{path}.base_offset", "int64", "q")
    length = reader.fixed(f"{path}.batch_length", "int32", "i")
    end = start + _LOG_OVERHEAD_BYTES + length
    if length < BATCH_OVERHEAD_BYTES - _LOG_OVERHEAD_BYTES:
        raise reader.error(f"{length} bytes is not a valid length of a batch", f"{path}.batch_length", back=4)
    reader.fixed(f"{path}.partition_leader_epoch", "int32", "i")
    reader.fixed(f"{path}.magic", "int8", "b")
    _checksum(reader, f"{path}.crc", end, crc32c, "CRC-32C")
    attributes = reader.fixed(f"{path}.attributes", "int16", "h")
    reader.annotate(-1, _flags(attributes))
    reader.fixed(f"{path}.last_offset_delta", "int32", "i")
    base_timestamp = reader.fixed(f"{path}.base_timestamp", "int64", "q")
    reader.annotate(-1, utc_text(base_timestamp))
    max_timestamp = reader.fixed(f"{path}.max_timestamp", "int64", "q")
    reader.annotate(-1, utc_text(max_timestamp))
    reader.fixed(f"{path}.producer_id", "int64", "q")
    reader.fixed(f"{path}.producer_epoch", "int16", "h")
    reader.fixed(f"{path}.base_sequence", "int32", "i")
    count = reader.fixed(f"{path}.records_count", "int32", "i")
    body = bytes(reader.data[reader.pos : end])
    codec = _codec(attributes, path, reader)
    inner = reader
    if codec:
        inner = reader.into(_decompressed(reader, codec, body, f"{path}.records"), codec.name.lower())
    # A record has at least 7 bytes, so a wrong count fails at the last byte, not after a long loop.
    for index in range(count):
        _record(inner, f"{path}.record[{index}]", is_control=bool(attributes & _CONTROL))
    _at_end(inner, len(inner.data) if codec else end, f"{path}.record[{count}]")
    reader.pos = end


def _record(reader: FieldReader, path: str, *, is_control: bool) -> None:
    length = reader.varint(f"{path}.length")
    end = reader.pos + length
    reader.fixed(f"{path}.attributes", "int8", "b")
    reader.varint(f"{path}.timestamp_delta")
    reader.varint(f"{path}.offset_delta")
    key = reader.sized(f"{path}.key", reader.varint(f"{path}.key_length"))
    if is_control and key is not None and len(key) >= 4:
        kind = struct.unpack_from(">h", key, 2)[0]
        reader.annotate(-1, f"control: {_CONTROL_KINDS.get(kind, f'kind {kind}')}")
    reader.sized(f"{path}.value", reader.varint(f"{path}.value_length"))
    for index in range(reader.varint(f"{path}.headers_count")):
        header = f"{path}.header[{index}]"
        reader.sized(f"{header}.key", reader.varint(f"{header}.key_length"), "string")
        reader.sized(f"{header}.value", reader.varint(f"{header}.value_length"))
    _at_end(reader, end, path)


def _message(reader: FieldReader, path: str) -> None:
    """Read a message of format 0 or 1; a compressed one holds a message set."""
    start = reader.pos
    reader.fixed(f"{path}.offset", "int64", "q")
    size = reader.fixed(f"{path}.message_size", "int32", "i")
    end = start + _LOG_OVERHEAD_BYTES + size
    _checksum(reader, f"{path}.crc", end, zlib.crc32, "CRC-32")
    magic = reader.fixed(f"{path}.magic", "int8", "b")
    attributes = reader.fixed(f"{path}.attributes", "int8", "b")
    reader.annotate(-1, _flags(attributes))
    if magic == 1:
        timestamp = reader.fixed(f"{path}.timestamp", "int64", "q")
        reader.annotate(-1, utc_text(timestamp))
    reader.sized(f"{path}.key", reader.fixed(f"{path}.key_length", "int32", "i"))
    value = reader.sized(f"{path}.value", reader.fixed(f"{path}.value_length", "int32", "i"))
    _at_end(reader, end, path)
    codec = _codec(attributes, path, reader)
    if codec and value is not None:
        if reader.within:
            raise reader.error("a compressed message inside a compressed message", path)
        inner = reader.into(_decompressed(reader, codec, value, f"{path}.value"), codec.name.lower())
        index = 0
        while inner.pos < len(inner.data):
            _message(inner, f"{path}.message[{index}]")
            index += 1


def _checksum(reader: FieldReader, path: str, end: int, function: Callable[[bytes], int], name: str) -> None:
    expected = reader.fixed(path, "uint32", "I")
    computed = function(reader.data[reader.pos : end])
    note = "right" if expected == computed else f"WRONG: {computed:08x}"
    if end > len(reader.data):
        note = "not checked"
    reader.rows[-1] = reader.rows[-1]._replace(value=f"{expected:08x}", note=note)
    if note.startswith("WRONG"):
        message = f"the {name} of the batch is {computed:08x}, but its header says {expected:08x}"
        reader.problems.append(reader.error(message, path, back=4))


def _at_end(reader: FieldReader, end: int, path: str) -> None:
    if reader.pos != end:
        message = f"it ends at {reader.base + reader.pos}, but its length says {reader.base + end}"
        raise reader.error(message, path)


def _codec(attributes: int, path: str, reader: FieldReader) -> Compression:
    try:
        return Compression(attributes & 0x07)
    except ValueError:
        raise reader.error(f"Kafka has no compression {attributes & 0x07}", path) from None


def _decompressed(reader: FieldReader, codec: Compression, body: bytes, path: str) -> bytes:
    offset = reader.base + reader.pos
    try:
        plain = bytes(decompress(codec, body))
    except CorruptRecordsError as error:
        raise reader.error(error.message, path) from None
    note = f"{len(body)} bytes, {len(plain)} when decompressed"
    reader.rows.append(FieldRow(offset, body, path, codec.name.lower(), None, note, reader.within))
    return plain


def _flags(attributes: int) -> str:
    codec = attributes & 0x07
    names = [Compression(codec).name.lower() if codec in set(Compression) else f"compression {codec}"]
    if not codec:
        names = ["not compressed"]
    names.append("log append time" if attributes & _LOG_APPEND else "create time")
    if attributes & _TRANSACTIONAL:
        names.append("transactional")
    if attributes & _CONTROL:
        names.append("control")
    return ", ".join(names)
