"""Validation of the records in a Produce request, before they enter a log (Kafka's LogValidator).

It checks sizes, checksums, counts, timestamps and compression: every reason to reject records that does not depend on
the log. The result is v2 batches that the log appends unchanged. Records are decoded only where the topic's configs
demand it, because this broker shares a Python process with the client under test.
"""

from __future__ import annotations

from kwire.broker.options import TopicSettings
from kwire.errors import BrokerError, CorruptRecordsError, ErrorCode, broker_error
from kwire.protocol.schema import BytesLike
from kwire.records import Batch, Compression, convert, decode_batches, encode_batch

_FIRST_VERSION_WITH_V2 = 3
_FIRST_VERSION_WITH_ZSTD = 7
_LAST_VERSION_OF_MAGIC_0 = 1
NO_TIMESTAMP = -1
# Offsets in a v2 batch: of the magic byte, and of the low byte of the attributes.
_MAGIC_AT, _ATTRIBUTES_AT = 16, 22
_TRANSACTIONAL = 0x10
MAX_DECOMPRESSED_BYTES = 1 << 28


def decode_produced(records: BytesLike | None, version: int) -> list[Batch]:
    """Return the batches of one partition of a Produce request. Raises BrokerError if its version cannot have them.

    Unlike Kafka it rejects bytes after the last whole batch instead of dropping them.
    """
    batches = _decode_batches(records)
    if version >= _FIRST_VERSION_WITH_V2:
        _check_single_v2_batch(batches, version)
    elif any(batch.magic > (0 if version <= _LAST_VERSION_OF_MAGIC_0 else 1) for batch in batches):
        raise broker_error(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"Produce v{version} does not allow this record format"
        )
    if not batches:
        raise broker_error(ErrorCode.INVALID_RECORD, "the request has no records")
    if sum(batch.size_bytes for batch in batches) != len(records or b""):
        raise broker_error(ErrorCode.CORRUPT_MESSAGE, "the last batch is incomplete")
    return batches


def is_transactional(records: BytesLike | None) -> bool:
    """Return whether a v2 batch has the transactional attribute. Its bytes are not validated yet."""
    if records is None or len(records) <= _ATTRIBUTES_AT or records[_MAGIC_AT] != 2:
        return False
    return bool(records[_ATTRIBUTES_AT] & _TRANSACTIONAL)


def validate(batches: list[Batch], settings: TopicSettings, wall_ms: int) -> list[Batch]:
    """Return the batches in the form that the topic's log stores. Raises BrokerError."""
    for batch in batches:
        _check_size(batch, settings)
    try:
        if batches[0].magic < 2:
            batches = [_up_convert(batches)]
        for batch in batches:
            _check_batch(batch, settings, wall_ms)
        stored = [_recompress(batch, settings) for batch in batches]
    except CorruptRecordsError as error:
        raise _corrupt_message(error) from None
    for batch in stored:
        _check_size(batch, settings)  # another codec or format may have made it larger
    return stored


def _decode_batches(records: BytesLike | None) -> list[Batch]:
    try:
        return list(decode_batches(records or b"", max_decompressed_bytes=MAX_DECOMPRESSED_BYTES))
    except CorruptRecordsError as error:
        raise _corrupt_message(error) from None


def _check_single_v2_batch(batches: list[Batch], version: int) -> None:
    if len(batches) != 1:
        raise broker_error(
            ErrorCode.INVALID_RECORD,
            f"Produce v{version} must have exactly one batch per partition, not {len(batches)}",
        )
    if batches[0].magic != 2:
        raise broker_error(
            ErrorCode.INVALID_RECORD, f"Produce v{version} must have records of format v2, not v{batches[0].magic}"
        )
    if batches[0].compression == Compression.ZSTD and version < _FIRST_VERSION_WITH_ZSTD:
        raise broker_error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{version} does not support zstd")


def _check_size(batch: Batch, settings: TopicSettings) -> None:
    if batch.size_bytes > settings.max_message_bytes:
        raise broker_error(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {batch.size_bytes} bytes, the topic's max.message.bytes is {settings.max_message_bytes}",
        )


def _check_batch(batch: Batch, settings: TopicSettings, wall_ms: int) -> None:
    if batch.base_offset != 0:
        raise broker_error(ErrorCode.INVALID_RECORD, f"the base offset is {batch.base_offset}, a producer must send 0")
    if batch.is_control:
        raise broker_error(ErrorCode.INVALID_RECORD, "a producer must not send control records")
    if batch.count < 1 or batch.count != batch.last_offset - batch.base_offset + 1:
        raise broker_error(ErrorCode.INVALID_RECORD, f"{batch.count} records with offsets to {batch.last_offset}")
    if batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.base_sequence < 0):
        raise broker_error(ErrorCode.INVALID_RECORD, "a producer id without an epoch or a sequence")
    if batch.is_transactional and batch.producer_id < 0:
        raise broker_error(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")
    if not settings.log_append_time:
        _check_timestamp(batch.max_timestamp_ms, settings, wall_ms)
    if settings.is_compacted and any(row[2] is None for row in batch.rows()):
        raise broker_error(ErrorCode.INVALID_RECORD, "a compacted topic requires keys")


def _check_timestamp(timestamp_ms: int, settings: TopicSettings, wall_ms: int) -> None:
    if timestamp_ms == NO_TIMESTAMP:
        return
    too_new = timestamp_ms - wall_ms > settings.timestamp_after_max_ms
    if too_new or wall_ms - timestamp_ms > settings.timestamp_before_max_ms:
        least, most = wall_ms - settings.timestamp_before_max_ms, wall_ms + settings.timestamp_after_max_ms
        raise broker_error(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp_ms} is not between {least} and {most}")


def _up_convert(messages: list[Batch]) -> Batch:
    """Convert a message set to one v2 batch. The offsets that the producer chose are dropped."""
    rows = [row[1:] for message in messages for row in message.rows()]
    if not rows:
        raise broker_error(ErrorCode.INVALID_RECORD, "a compressed message contains no records")
    return next(decode_batches(encode_batch(rows, compression=messages[0].compression), check_crc=False))


def _recompress(batch: Batch, settings: TopicSettings) -> Batch:
    """Return the batch with the topic's compression, if that differs from the producer's."""
    if settings.compression == "producer":
        return batch
    target = Compression.NONE if settings.compression == "uncompressed" else Compression.of(settings.compression)
    if batch.compression == target:
        return batch
    return next(decode_batches(convert(batch.raw, 2, compression=target, check_crc=False), check_crc=False))


def _corrupt_message(error: CorruptRecordsError) -> BrokerError:
    return broker_error(ErrorCode.CORRUPT_MESSAGE, str(error))
