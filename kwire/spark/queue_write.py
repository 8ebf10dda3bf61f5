"""Rows as messages of a queue: `option("queue", NAME)` on a write. Consumers are those of `kwire.queue`.

A message is a record with the queue as its key and headers of the queue's own. They are added here to the rows of a
task, which are then written as any rows are: at least once, or exactly once.

A message without an id gets one made of the write, the task, the number of the row and the payload. A task that is
repeated and makes the same rows makes the same ids, in the same partitions, so consumers with a dedup_window_ms get
each message once. A row that differs has another id, so no row is taken for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from kwire.cluster import ClientConfig
from kwire.cluster.waiting import run_blocking
from kwire.errors import ConfigurationError
from kwire.producer.accumulator import murmur2_partition
from kwire.queue import Service
from kwire.queue.backend import QueuePlace
from kwire.queue.envelope import Envelope
from kwire.queue.markers import PREFIX, overhead
from kwire.queue.options import QueueOptions
from kwire.queue.share_setup import topic_of
from kwire.spark.columns import ARROW_TYPES
from kwire.spark.rows import TaskBatch
from kwire.spark.sink import SinkBatch

_ID_BYTES = 16

# Where queues are, by what a write says of them: Spark makes a writer for each micro-batch.
_places: dict[tuple[Any, ...], QueuePlace] = {}


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """A queue, the options of its service, and its place, which only the driver asks for."""

    name: str
    service: Mapping[str, Any]
    place: QueuePlace | None = None


def topic_of_queue(target: QueueTarget) -> str:
    """Return the topic of a queue's messages. Raises ConfigurationError for options that contradict each other."""
    options = QueueOptions(**target.service)
    return topic_of(options, target.name) if options.backend == "share" else options.message_topic


def find_place(target: QueueTarget, client: Mapping[str, Any]) -> QueuePlace:
    """Return where the queue is. Its topics are created, or checked, once in a process."""
    names = ClientConfig.option_names()
    own = {name: value for name, value in client.items() if name in names}
    bootstrap = own.pop("bootstrap")
    key = (target.name, bootstrap, *sorted(target.service.items()))
    if key not in _places:
        with Service(bootstrap, **own, **target.service) as service:
            _places[key] = run_blocking(service.place(target.name))
    return _places[key]


def messages(batches: Iterable[SinkBatch], target: QueueTarget, writing: str, task: str) -> Iterator[SinkBatch]:
    """Yield the rows as records of the queue topic. `writing` is the same for all attempts of a task, and unique.

    Raises ConfigurationError for the first row that cannot become a message.
    """
    place = target.place
    assert place is not None, "the driver has asked for it"
    key, seed = target.name.encode(), blake2b(writing.encode()).digest()
    count = 0
    for batch in batches:
        named = TaskBatch(batch, count, task)
        values = batch.records.column("value").cast(pa.binary())
        rows = batch.records.set_column(batch.records.schema.get_field_index("value"), "value", values).to_pylist()
        headers, partitions = [], []
        for index, row in enumerate(rows):
            own = _envelope(row, named, index, place)
            if not own.id:
                number = (count + index).to_bytes(8, "big")
                own.id = blake2b(number + (row["value"] or b""), key=seed, digest_size=_ID_BYTES).hexdigest()
            pairs = own.headers()
            size = len(row["value"] or b"") + overhead(pairs) + len(key)
            if size > place.message_bytes_max:
                raise _refused(
                    named, index, f"is a message of {size:,} bytes with its headers; the topics take "
                    f"{place.message_bytes_max:,}", "raise max.message.bytes of the queue's topics"
                )  # fmt: skip
            headers.append([{"key": name, "value": value} for name, value in pairs])
            partitions.append(murmur2_partition(own.id.encode(), place.partitions))
        columns = {
            "value": values,
            "key": pa.array([key] * len(rows), pa.binary()),
            "headers": pa.array(headers, ARROW_TYPES["headers"]),
            "partition": pa.array(partitions, pa.int32()),
        }
        yield SinkBatch(place.topic, pa.RecordBatch.from_pydict(columns))
        count += len(rows)


def _envelope(row: Mapping[str, Any], named: TaskBatch, index: int, place: QueuePlace) -> Envelope:
    pairs = tuple((pair["key"], pair["value"]) for pair in row.get("headers") or () if pair is not None)
    for name, _ in pairs:
        if name is not None and name.startswith(PREFIX):
            raise _refused(named, index, f"has the header {name}, one of the queue's own", "choose another name")
        if name is None:
            raise _refused(named, index, "has a header without a key", "give each header a key")
    delay, expires = row.get("delay_ms") or 0, row.get("expires_in_ms") or 0
    if delay < 0 or expires < 0:
        raise _refused(named, index, "has a negative time", "give milliseconds from 0 on, or null for none")
    if delay and place.delay_ms_max == 0:
        raise _refused(
            named, index, "has a delay, which share groups lack", "leave delay_ms out, or use a tracker's queue"
        )
    if 0 <= place.delay_ms_max < delay:
        raise _refused(
            named, index, f"has a delay of {delay} ms, and the markers topic keeps its records for "
            f"{place.delay_ms_max} ms", "give a shorter delay, or raise retention.ms of the markers topic"
        )  # fmt: skip
    return Envelope(row.get("id") or "", delay=delay, expires_in=expires, user=pairs)


def _refused(named: TaskBatch, index: int, what: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"{named.name(index)} {what}", remedy=remedy)
