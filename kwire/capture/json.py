"""Records, values of fields and errors of responses as JSON.

UTF-8 bytes are a string, other bytes are {"base64": ...}, and null is null. Headers are a list of pairs, because Kafka
keeps their order and allows duplicate names, which may be bytes that are no UTF-8, too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kwire.errors import error_name
from kwire.protocol.json import uuid_text

if TYPE_CHECKING:
    from kwire.records import Batch

JsonBytes = str | dict[str, str] | None


def bytes_to_json(data: bytes | None) -> JsonBytes:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def headers_to_json(headers: Sequence[tuple[str, bytes | None]]) -> list[list[Any]]:
    return [[bytes_to_json(name.encode(errors="surrogateescape")), bytes_to_json(value)] for name, value in headers]


def batch_to_json(batch: Batch) -> dict[str, Any]:
    """Return the header of a batch."""
    from kwire.records import CREATE_TIME, LOG_APPEND_TIME  # most frames hold no records: they need not pay for it

    timestamp_types = {CREATE_TIME: "create", LOG_APPEND_TIME: "append"}  # v0 has no times
    return {
        "magic": batch.magic,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "size_bytes": batch.size_bytes,
        "compression": batch.compression.name.lower(),
        "max_timestamp_ms": batch.max_timestamp_ms,
        "timestamp_type": timestamp_types.get(batch.timestamp_type),
        "partition_leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
    }


def records_to_json(batch: Batch) -> list[dict[str, Any]]:
    """Return the records of a batch. Raises KwireError if they contradict the header."""
    return [
        {
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": bytes_to_json(record.key),
            "value": bytes_to_json(record.value),
            "headers": headers_to_json(record.headers),
        }
        for record in batch.records()
    ]


def value_to_json(value: Any) -> Any:
    """Return the value of a field as JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes_to_json(bytes(value))
    if isinstance(value, UUID):
        return uuid_text(value)
    if isinstance(value, tuple):
        return list(value)
    return value


class ResponseError(NamedTuple):
    """An error code that is not 0, and its path in the response: topics[0].errorCode."""

    path: str
    code: int

    @property
    def name(self) -> str:
        return error_name(self.code)


def response_errors(response: Any, path: str = "") -> Iterator[ResponseError]:
    """Yield every error code in a response that is not 0: its own, those of its topics, partitions, ..."""
    if isinstance(response, list):
        for index, item in enumerate(response):
            yield from response_errors(item, f"{path}[{index}]")
    elif isinstance(response, dict):
        for name, value in response.items():
            here = f"{path}.{name}" if path else name
            if isinstance(value, (list, dict)):
                yield from response_errors(value, here)
            elif value and (name == "errorCode" or name.endswith("ErrorCode")):
                yield ResponseError(here, value)
