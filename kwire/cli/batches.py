"""The bytes of record batches and message sets, field by field: what `kwire decode` shows inside Produce and Fetch.

Owns a slow walk that stops at the first byte that makes no sense and keeps all it saw. Refuses nothing else: a wrong
checksum is a problem to report, not a reason to look away. `kwire.records` is the codec; this is the magnifying glass.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from kwire.cli.output import moment
from kwire.cli.walk import FieldRow, Walk
from kwire.errors import CorruptRecordsError, KwireError
from kwire.records import BATCH_OVERHEAD_BYTES, Compression
from kwire.records.compression import decompress
from kwire.wire.checksums import crc32c

_LOG_OVERHEAD_BYTES = 12
_MAGIC_AT = 16
_LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20
_CONTROL_KINDS = {0: "abort", 1: "commit", 2: "leader change", 3: "snapshot header", 4: "snapshot footer"}


def walk_batches(data: bytes, base: int, path: str, rows: list[FieldRow], problems: list[KwireError]) -> None:
    """Append to `rows` every field of the batches in `data`; what is wrong goes to `problems`, nothing is raised.

    A last batch that is cut off is no problem: a Fetch answer ends where its size limit fell, and the reader asks again
    from that batch on.
    """
    walk = Walk(data, base, rows, problems)
    index = 0
    while walk.pos < len(data):
        is_whole = _is_whole(data, walk.pos)
        here = f"{path}.batch[{index}]"
        read_from = len(rows)
        begin = walk.pos
        try:
            _batch(walk, here)
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


def _batch(walk: Walk, path: str) -> None:
    if len(walk.data) - walk.pos <= _MAGIC_AT:
        raise walk.error("no batch is that short", path)
    magic = walk.data[walk.pos + _MAGIC_AT]
    if magic == 2:
        _batch_v2(walk, path)
    elif magic in (0, 1):
        _message(walk, path)
    else:
        raise walk.error(f"there is no message format {magic}", f"{path}.magic", back=-_MAGIC_AT)


def _batch_v2(walk: Walk, path: str) -> None:
    start = walk.pos
    walk.fixed(f"{path}.base_offset", "int64", "q")
    length = walk.fixed(f"{path}.batch_length", "int32", "i")
    end = start + _LOG_OVERHEAD_BYTES + length
    if length < BATCH_OVERHEAD_BYTES - _LOG_OVERHEAD_BYTES:
        raise walk.error(f"no batch has {length} bytes", f"{path}.batch_length", back=4)
    walk.fixed(f"{path}.partition_leader_epoch", "int32", "i")
    walk.fixed(f"{path}.magic", "int8", "b")
    _checksum(walk, f"{path}.crc", end, crc32c, "CRC-32C")
    attributes = walk.fixed(f"{path}.attributes", "int16", "h")
    walk.annotate(-1, _flags(attributes))
    walk.fixed(f"{path}.last_offset_delta", "int32", "i")
    base_timestamp = walk.fixed(f"{path}.base_timestamp", "int64", "q")
    walk.annotate(-1, moment(base_timestamp))
    max_timestamp = walk.fixed(f"{path}.max_timestamp", "int64", "q")
    walk.annotate(-1, moment(max_timestamp))
    walk.fixed(f"{path}.producer_id", "int64", "q")
    walk.fixed(f"{path}.producer_epoch", "int16", "h")
    walk.fixed(f"{path}.base_sequence", "int32", "i")
    count = walk.fixed(f"{path}.records_count", "int32", "i")
    body = bytes(walk.data[walk.pos : end])
    codec = _codec(attributes, path, walk)
    inner = walk
    if codec:
        inner = walk.into(_decompressed(walk, codec, body, f"{path}.records"), codec.name.lower())
    # A record has at least 7 bytes, so a count that lies ends at the last byte, not in a long loop.
    for index in range(count):
        _record(inner, f"{path}.record[{index}]", is_control=bool(attributes & _CONTROL))
    _at_end(inner, len(inner.data) if codec else end, f"{path}.record[{count}]")
    walk.pos = end


def _record(walk: Walk, path: str, *, is_control: bool) -> None:
    length = walk.varint(f"{path}.length")
    end = walk.pos + length
    walk.fixed(f"{path}.attributes", "int8", "b")
    walk.varint(f"{path}.timestamp_delta")
    walk.varint(f"{path}.offset_delta")
    key = walk.sized(f"{path}.key", walk.varint(f"{path}.key_length"))
    if is_control and key is not None and len(key) >= 4:
        kind = struct.unpack_from(">h", key, 2)[0]
        walk.annotate(-1, f"control: {_CONTROL_KINDS.get(kind, f'kind {kind}')}")
    walk.sized(f"{path}.value", walk.varint(f"{path}.value_length"))
    for index in range(walk.varint(f"{path}.headers_count")):
        header = f"{path}.header[{index}]"
        walk.sized(f"{header}.key", walk.varint(f"{header}.key_length"), "string")
        walk.sized(f"{header}.value", walk.varint(f"{header}.value_length"))
    _at_end(walk, end, path)


def _message(walk: Walk, path: str) -> None:
    """A message of the formats 0 and 1; a compressed one holds a message set."""
    start = walk.pos
    walk.fixed(f"{path}.offset", "int64", "q")
    size = walk.fixed(f"{path}.message_size", "int32", "i")
    end = start + _LOG_OVERHEAD_BYTES + size
    _checksum(walk, f"{path}.crc", end, zlib.crc32, "CRC-32")
    magic = walk.fixed(f"{path}.magic", "int8", "b")
    attributes = walk.fixed(f"{path}.attributes", "int8", "b")
    walk.annotate(-1, _flags(attributes))
    if magic == 1:
        timestamp = walk.fixed(f"{path}.timestamp", "int64", "q")
        walk.annotate(-1, moment(timestamp))
    walk.sized(f"{path}.key", walk.fixed(f"{path}.key_length", "int32", "i"))
    value = walk.sized(f"{path}.value", walk.fixed(f"{path}.value_length", "int32", "i"))
    _at_end(walk, end, path)
    codec = _codec(attributes, path, walk)
    if codec and value is not None:
        if walk.within:
            raise walk.error("a compressed message inside a compressed one", path)
        inner = walk.into(_decompressed(walk, codec, value, f"{path}.value"), codec.name.lower())
        index = 0
        while inner.pos < len(inner.data):
            _message(inner, f"{path}.message[{index}]")
            index += 1


def _checksum(walk: Walk, path: str, end: int, function: Callable[[bytes], int], name: str) -> None:
    said = walk.fixed(path, "uint32", "I")
    computed = function(walk.data[walk.pos : end])
    note = "right" if said == computed else f"WRONG: {computed:08x}"
    if end > len(walk.data):
        note = "not checked"
    walk.rows[-1] = walk.rows[-1]._replace(value=f"{said:08x}", note=note)
    if note.startswith("WRONG"):
        message = f"the batch says that its {name} is {said:08x}, and it is {computed:08x}"
        walk.problems.append(walk.error(message, path, back=4))


def _at_end(walk: Walk, end: int, path: str) -> None:
    if walk.pos != end:
        message = f"it ends at {walk.base + walk.pos}, and its length says {walk.base + end}"
        raise walk.error(message, path)


def _codec(attributes: int, path: str, walk: Walk) -> Compression:
    try:
        return Compression(attributes & 0x07)
    except ValueError:
        raise walk.error(f"compression {attributes & 0x07} is not known", path) from None


def _decompressed(walk: Walk, codec: Compression, body: bytes, path: str) -> bytes:
    offset = walk.base + walk.pos
    try:
        plain = bytes(decompress(codec, body))
    except CorruptRecordsError as error:
        raise walk.error(error.message, path) from None
    note = f"{len(body)} bytes, {len(plain)} when decompressed"
    walk.rows.append(FieldRow(offset, body, path, codec.name.lower(), None, note, walk.within))
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
