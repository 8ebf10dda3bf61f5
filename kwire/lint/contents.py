"""What is in an exchange, the same for all versions of its API: topics, partitions, batches, errors, clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kwire.capture import Exchange
from kwire.errors import KwireError, error_name
from kwire.protocol.json import uuid_text
from kwire.records import Batch, decode_batches


class InPartition(NamedTuple):
    """What a message has about one partition: the partition's struct, whose fields depend on the API."""

    topic: str
    partition: int
    struct: Any


def in_partitions(exchange: Exchange, message: Any, topics: str, partitions: str, index: str) -> Iterator[InPartition]:
    """Yield the partitions of a message. The names are those of its fields with topics, partitions and index."""
    for topic in getattr(message, topics, None) or ():
        name = topic_name(exchange, topic)
        for partition in getattr(topic, partitions) or ():
            yield InPartition(name, partition if isinstance(partition, int) else getattr(partition, index), partition)


def topic_name(exchange: Exchange, topic: Any) -> str:
    """Return the name of a topic in a message; its id, where the capture does not tell the name."""
    name = getattr(topic, "name", None) or getattr(topic, "topic", None)
    if name:
        return str(name)
    id = uuid_text(topic.topic_id)
    return exchange.topic_names.get(id, id)


def produced(exchange: Exchange) -> Iterator[InPartition]:
    """Yield the partitions of a Produce request; `struct.records` has the batches."""
    return in_partitions(exchange, request_of(exchange), "topic_data", "partition_data", "index")


def produce_results(exchange: Exchange) -> Iterator[InPartition]:
    return in_partitions(exchange, response_of(exchange), "responses", "partition_responses", "index")


def fetched(exchange: Exchange) -> Iterator[InPartition]:
    """Yield the partitions of a Fetch response; `struct.records` has the batches."""
    return in_partitions(exchange, response_of(exchange), "responses", "partitions", "partition_index")


def fetches(exchange: Exchange) -> Iterator[InPartition]:
    return in_partitions(exchange, request_of(exchange), "topics", "partitions", "partition")


def request_of(exchange: Exchange) -> Any:
    return exchange.request.body if exchange.request is not None else None


def response_of(exchange: Exchange) -> Any:
    return exchange.response.body if exchange.response is not None else None


def batches(data: Any) -> Iterator[Batch]:
    """Yield the batches in the records of a partition, as far as they are intact."""
    if data is None:
        return
    try:
        yield from decode_batches(memoryview(data), check_crc=False)
    except KwireError:
        return


def error_names(exchange: Exchange) -> list[str]:
    return [error_name(error.code) for error in exchange.errors]


def uncompressed_bytes(batch: Batch) -> int:
    """Return about how many bytes the records of a batch have without compression."""
    found = 0
    for record in batch.records():
        found += 7 + len(record.key or b"") + len(record.value or b"")
        found += sum(2 + len(name) + len(value or b"") for name, value in record.headers)
    return found


def transactional_id_of(request: Any) -> str:
    """Return the transactional id of a request; empty if it has none."""
    found = getattr(request, "transactional_id", None) or getattr(request, "v3_and_below_transactional_id", None)
    return str(found or "")
