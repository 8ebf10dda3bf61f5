"""The typed errors of a partition that cannot be read on, each with the way past it."""

from __future__ import annotations

from kwire.consumer.position import Position
from kwire.errors import BrokerError, CorruptRecordsError, ErrorCode, RecordTooLargeError, broker_error


def out_of_range(position: Position, log_range: tuple[int, int] | None) -> BrokerError:
    """`log_range` is the log's start and end offset, where they could be found out."""
    message = "the log does not have this offset"
    if log_range is not None:
        start, end = log_range
        message = f"the log is empty and begins at {start}" if start == end else f"the log holds {start} to {end - 1}"
    return broker_error(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        message,
        remedy='seek to "earliest", "latest" or an offset in between, or choose one of the two as on_out_of_range',
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
    )


def too_large(position: Position, needed_bytes: int, limit: int) -> BrokerError:
    size = f"{needed_bytes} bytes" if needed_bytes else "more bytes"
    return RecordTooLargeError(
        f"the batch at this offset takes {size}, and a fetch {limit}",
        code=ErrorCode.MESSAGE_TOO_LARGE,
        remedy="raise max_frame_bytes, or seek past it",
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
    )


def corrupt_at_broker(position: Position) -> CorruptRecordsError:
    return CorruptRecordsError(
        "the broker's own log is corrupt here",
        remedy="seek past the damage, or restore the partition from a replica",
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
    )


def broken_envelope(position: Position) -> CorruptRecordsError:
    return CorruptRecordsError(
        "what follows is no batch: its size is impossible",
        remedy="seek past the damage",
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
    )


def no_progress(position: Position, next_offset: int) -> CorruptRecordsError:
    return CorruptRecordsError(
        f"the broker answered with records that end before the offset asked for, at {next_offset - 1}",
        remedy="seek past it",
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
    )
