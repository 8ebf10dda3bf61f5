"""The marker: what a decided batch leaves in Kafka, as an offset with metadata, committed with its records.

The offset is the batch's number plus 1; the metadata is JSON of at most 4,096 bytes, Kafka's default limit
(offset.metadata.max.bytes). It says which query wrote the batch, and which side transactions belong to it. Whoever
reads it can complete the batch: that takes no more than their ids, producer ids and epochs, and the version of the
protocol.
"""

from __future__ import annotations

import json
import struct
from base64 import b85decode, b85encode
from collections.abc import Sequence
from typing import NamedTuple

from kwire.errors import ConfigurationError, DecodeError
from kwire.wire.varint import decode_varint, encode_varint

# Kafka's default of offset.metadata.max.bytes.
METADATA_BYTES_MAX = 4_096
_VERSION = 1
_DIGEST = struct.Struct(">Q")


class Side(NamedTuple):
    """A prepared side transaction: the rows of one task, written, and visible once it is committed.

    `digest` is that of its records, so that a repeated task can be compared with it.
    """

    run: str
    task: int
    attempt: int
    producer_id: int
    producer_epoch: int
    rows: int
    digest: int

    def transactional_id(self, prefix: str) -> str:
        return side_id(prefix, self.run, self.task, self.attempt)


def side_id(prefix: str, run: str, task: int, attempt: int) -> str:
    """Return the transactional id of a task's attempt: of one run of the query, used again for each of its batches."""
    return f"{side_prefix(prefix)}{run}-{task}-{attempt}"


def side_prefix(prefix: str) -> str:
    return f"{prefix}-side-"


class Marker(NamedTuple):
    """The newest decided batch. `transaction_version` is that of the protocol with which its sides must be ended."""

    query: str
    batch: int
    transaction_version: int
    sides: tuple[Side, ...]

    @property
    def offset(self) -> int:
        return self.batch + 1

    def metadata(self) -> str:
        """Return the text to commit. Raises ConfigurationError if the batch has too many side transactions."""
        runs = sorted({side.run for side in self.sides})
        packed = b"".join(_packed(side, runs.index(side.run)) for side in self.sides)
        text = json.dumps(
            {
                "v": _VERSION,
                "query": self.query,
                "batch": self.batch,
                "tv": self.transaction_version,
                "runs": runs,
                "sides": b85encode(packed).decode(),
            },
            separators=(",", ":"),
        )
        if len(text.encode()) > METADATA_BYTES_MAX:
            raise ConfigurationError(
                f"batch {self.batch} has {len(self.sides)} tasks with a side transaction each: their list has "
                f"{len(text.encode()):,} bytes, and an offset's metadata may have {METADATA_BYTES_MAX:,}",
                remedy="write with fewer tasks (coalesce), or raise inlineMaxBytes and inlineBatchMaxBytes",
            )
        return text


def parse_marker(offset: int, metadata: str | None) -> Marker:
    """Return the marker in a committed offset. Raises DecodeError for an offset that is no marker."""
    try:
        fields = json.loads(metadata or "")
        if fields["v"] != _VERSION:
            raise ValueError(f"version {fields['v']}")
        runs: list[str] = fields["runs"]
        marker = Marker(
            str(fields["query"]), int(fields["batch"]), int(fields["tv"]), _unpacked(b85decode(fields["sides"]), runs)
        )
        if marker.offset != offset:
            raise ValueError(f"offset {offset}")
    except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise DecodeError(
            f"a committed offset is no marker of kwire: {metadata!r:.80} ({error})",
            remedy="another program commits to this group: give the option transactionalIdPrefix",
        ) from None
    return marker


def _packed(side: Side, run: int) -> bytes:
    numbers = (run, side.task, side.attempt, side.producer_id, side.producer_epoch, side.rows)
    return b"".join(map(encode_varint, numbers)) + _DIGEST.pack(side.digest)


def _unpacked(packed: bytes, runs: Sequence[str]) -> tuple[Side, ...]:
    sides: list[Side] = []
    at = 0
    while at < len(packed):
        numbers: list[int] = []
        for _ in range(6):
            number, at = decode_varint(packed, at)
            numbers.append(number)
        numbers += _DIGEST.unpack_from(packed, at)
        at += _DIGEST.size
        sides.append(Side._make((runs[numbers[0]], *numbers[1:])))
    return tuple(sides)
