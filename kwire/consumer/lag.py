"""How far a consumer is behind the ends of its partitions."""

from __future__ import annotations

from typing import NamedTuple

from kwire.consumer.buffer import PartitionBuffer, Watermarks


class Lag(NamedTuple):
    """The lag of one partition.

    position  the offset of the next record that the program gets
    end       where reading ends: the high watermark, or with read_committed the last stable offset
    records   offsets between the two, which also compaction and transactions use up
    seconds   since the records that are read now were written, while there are more: an estimate; 0 at the end, None
              where it is unknown
    """

    position: int
    end: int
    records: int
    seconds: float | None


def lag_of(
    buffer: PartitionBuffer, watermarks: Watermarks | None, end: int | None, is_committed_only: bool, now_ms: int
) -> Lag | None:
    """Return the lag; None while the position or the end is unknown. `end` was requested just now, if not None."""
    position = buffer.position
    if end is None and watermarks is not None:
        stable = watermarks.last_stable_offset
        end = stable if is_committed_only and stable >= 0 else watermarks.high_watermark
    if position is None or end is None or end < 0:
        return None
    records = max(0, end - position)
    if records == 0:
        return Lag(position, end, 0, 0.0)
    written = buffer.written_ms
    return Lag(position, end, records, None if written < 0 else max(0.0, (now_ms - written) / 1000))
