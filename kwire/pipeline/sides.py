"""Where the records of a pipeline come from: a topic of a cluster, or an archive of Parquet files."""

# pyarrow.compute creates its functions at import, so pyright cannot see them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kwire.errors import ConfigurationError
from kwire.pipeline.audit import SideRecord
from kwire.spark.client_options import PREFIX, consumer_options

if TYPE_CHECKING:
    from kwire.consumer import Consumer

_TOPIC = re.compile(r"(?P<bootstrap>[^/]+:\d+(?:,[^/]+:\d+)*)/(?P<topic>[\w.-]+)")
_RECORDS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Window:
    """Which records, by their timestamps in milliseconds: from `since` on, before `until`."""

    since: int | None = None
    until: int | None = None

    def has(self, timestamp_ms: int) -> bool:
        return (self.since is None or timestamp_ms >= self.since) and (self.until is None or timestamp_ms < self.until)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster by its brokers; `properties` are those of Java's clients: security.protocol, sasl.jaas.config, ..."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def spark_options(self) -> dict[str, str]:
        """Return the options of `format("kwire")`."""
        return {
            f"{PREFIX}bootstrap.servers": self.bootstrap,
            **{PREFIX + name: value for name, value in self.properties.items()},
        }

    def client_options(self) -> dict[str, Any]:
        """Return keywords of `kwire.Consumer`, with `bootstrap`. Raises ConfigurationError."""
        return consumer_options(self.spark_options())


class TopicSide:
    """A topic of a cluster, read to where it ends at first sight. Only committed records count. Close it."""

    has_all_partitions = True

    def __init__(self, cluster: Cluster, topic: str, window: Window = Window()) -> None:
        self._cluster = cluster
        self._topic = topic
        self._window = window
        self._consumer: Consumer | None = None
        self._ends: dict[tuple[str, int], int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_consumer": None}  # another process has a client of its own

    @property
    def name(self) -> str:
        return f"{self._cluster.bootstrap}/{self._topic}"

    def partitions(self) -> list[int]:
        numbers = sorted(self._client().partitions(self._topic))
        self._ends = self._client().end_offsets([(self._topic, number) for number in numbers])
        return numbers

    def read(self, partition: int) -> Iterator[SideRecord]:
        consumer, place = self._client(), (self._topic, partition)
        begin = self._begin(partition)
        if begin is None:
            return
        end = self._ends[place]
        consumer.assign([(self._topic, partition, begin)], ends={place: end})
        while consumer.position(self._topic, partition) < end:
            for record in consumer.poll(_RECORDS_MAX, 1.0):
                if self._window.has(record.timestamp_ms):
                    yield record.offset, record.timestamp_ms, record.key, record.value, record.headers

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _begin(self, partition: int) -> int | None:
        """Return the first offset of the window; None if there is none."""
        place = (self._topic, partition)
        if self._window.since is None:
            return self._client().beginning_offsets([place])[place]
        return self._client().offsets_at([(self._topic, partition, self._window.since)])[place]

    def _client(self) -> Consumer:
        if self._consumer is None:
            from kwire.consumer import Consumer

            options = {"isolation": "read_committed", **self._cluster.client_options()}
            self._consumer = Consumer(options.pop("bootstrap"), **options)
        return self._consumer


class ArchiveSide:
    """A topic in an archive (`archive`), which shows only partitions that have records."""

    has_all_partitions = False

    def __init__(self, path: str, topic: str, window: Window = Window()) -> None:
        self._path = path
        self._topic = topic
        self._window = window
        self._files: list[str] | None = None

    @property
    def name(self) -> str:
        return f"{self._path} (topic {self._topic})"

    def partitions(self) -> list[int]:
        import pyarrow.compute as pc

        numbers: set[int] = set()
        for batch in self._dataset().to_batches(columns=["partition"]):
            numbers.update(pc.unique(batch.column("partition")).to_pylist())
        return sorted(numbers)

    def read(self, partition: int) -> Iterator[SideRecord]:
        """Yield the records of a partition by their offsets on the archived topic. A partition is held in memory."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = ["offset", "timestamp", "key", "value", "headers"]
        table = self._dataset().to_table(columns=columns, filter=pc.field("partition") == partition)
        table = table.sort_by("offset")
        for batch in table.to_batches(max_chunksize=_RECORDS_MAX):
            times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()
            rest = (batch.column(name).to_pylist() for name in ("key", "value", "headers"))
            for offset, timestamp_ms, key, value, headers in zip(
                batch.column("offset").to_pylist(), times, *rest, strict=True
            ):
                if self._window.has(timestamp_ms):
                    pairs = [(one["key"], one["value"]) for one in headers or ()]
                    yield offset, timestamp_ms, key, value, pairs

    def close(self) -> None:
        """There is nothing to close."""

    def _dataset(self) -> Any:
        from kwire.pipeline.archive import open_archive

        return open_archive(self._path, self._topic)


def parse_side(
    text: str, properties: Mapping[str, str], *, window: Window = Window(), topic: str | None = None
) -> TopicSide | ArchiveSide:
    """Return the side that a text names: HOST:PORT,.../TOPIC, or the folder of an archive with `topic` in it."""
    found = _TOPIC.fullmatch(text)
    if found is not None:
        return TopicSide(Cluster(found["bootstrap"], properties), found["topic"], window)
    if re.match(r"[\w.-]+:\d+", text):
        raise ConfigurationError(f"{text} names no topic", remedy="write HOST:PORT/TOPIC")
    if topic is None:
        raise ConfigurationError(f"which topic of the archive {text}?", remedy="name it by --topic")
    return ArchiveSide(text, topic, window)


def topic_of(text: str) -> str | None:
    """Return the topic that the text of a side names; None for an archive."""
    found = _TOPIC.fullmatch(text)
    return found["topic"] if found is not None else None


def check_topic(name: str) -> None:
    """Raise ConfigurationError for what Kafka has no topic of: names stand in SQL and in folders."""
    if re.fullmatch(r"[\w.-]{1,249}", name, re.ASCII) is None:
        raise ConfigurationError(f"{name!r} is not the name of a topic", remedy="letters, digits, dots, dashes, _")
