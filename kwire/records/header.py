"""The header of a record batch of format v2 (KIP-98): 61 bytes before the records."""

from __future__ import annotations

import struct
from collections.abc import Callable

from kwire.errors import EncodeError
from kwire.records.rows import BATCH_OVERHEAD_BYTES
from kwire.wire.buffers import Bytes

# Base offset, length, leader epoch, magic, CRC. The CRC covers the rest and the records: attributes, last offset
# delta, base and max timestamp, producer id and epoch, base sequence, count.
_START = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")
_LENGTH_COVERS_FROM = 12

TRANSACTIONAL = 0x10  # a bit of the attributes

HEADER = struct.Struct(_START.format + _CHECKED.format.removeprefix(">"))

assert HEADER.size == BATCH_OVERHEAD_BYTES


def batch_header(
    crc32c: Callable[..., int],
    body: Bytes,
    count: int,
    last_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    attributes: int = 0,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Return the header of a batch whose encoded records are `body`, compressed if `attributes` say so.

    Raise EncodeError if a value does not fit its field.
    """
    try:
        checked = _CHECKED.pack(
            attributes, last_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count
        )
        crc = crc32c(body, crc32c(checked))
        length = BATCH_OVERHEAD_BYTES - _LENGTH_COVERS_FROM + len(body)
        return _START.pack(base_offset, length, partition_leader_epoch, 2, crc) + checked
    except struct.error as error:
        raise EncodeError(f"a batch's header cannot hold its values: {error}") from None
