"""Statistics of captured exchanges, by API, client, topic, connection or broker. Memory has a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from kwire.capture import Exchange
from kwire.errors import KwireError, error_name
from kwire.lint.contents import InPartition, batches, fetched, produce_results, produced, uncompressed_bytes
from kwire.lint.histogram import Histogram
from kwire.protocol import ApiKey
from kwire.records import Compression

By = Literal["api", "client", "topic", "connection", "broker"]
CHOICES: tuple[str, ...] = get_args(By)
# More keys than that are counted together.
KEYS_MAX = 10_000
OTHERS = "(others)"
_NONE = "-"
_RECORD_BATCH_HEADER = 61


@dataclass(slots=True)
class Row:
    """What was counted for one key. Sizes are bytes; `records` those produced and fetched, `with_records` in how many
    exchanges."""

    key: str
    n: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    unanswered: int = 0
    records: int = 0
    with_records: int = 0
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0
    latency: Histogram = field(default_factory=Histogram)
    errors: Counter[str] = field(default_factory=Counter)
    versions: set[int] = field(default_factory=set)

    @property
    def records_a_request(self) -> float | None:
        return self.records / self.with_records if self.with_records else None

    @property
    def compression(self) -> float | None:
        """Return how many times smaller compression made the records, of one batch per exchange."""
        return self.uncompressed_bytes / self.compressed_bytes if self.compressed_bytes else None


@dataclass(slots=True)
class Statistics:
    """The rows of a span of time, from the first exchange in it; `begin_ns` and `end_ns` since 1970."""

    by: By
    begin_ns: int = 0
    end_ns: int = 0
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def add(self, exchange: Exchange) -> None:
        """Count an exchange; by topic, once for each topic in it."""
        self.begin_ns = min(self.begin_ns or exchange.at_ns, exchange.at_ns)
        self.end_ns = max(self.end_ns, exchange.at_ns)
        if self.by != "topic":
            row = self._row(_key(exchange, self.by))
            _count(row, exchange)
            for number, one in enumerate(_parts(exchange)):
                _count_records(row, one, has_sample=number == 0)
            row.with_records += exchange.api is not None and exchange.api.key in (ApiKey.PRODUCE, ApiKey.FETCH)
            for error in exchange.errors:
                row.errors[error_name(error.code)] += 1
            return
        errors = {(one.topic, one.partition): one.struct.error_code for one in _results(exchange)}
        by_topic: dict[str, list[InPartition]] = {}
        for one in _parts(exchange):
            by_topic.setdefault(one.topic, []).append(one)
        for topic, parts in by_topic.items():
            row = self._row(topic)
            _count(row, exchange, has_bytes=False)
            row.with_records += 1
            for one in parts:
                size = len(one.struct.records or b"")
                if exchange.api is not None and exchange.api.key == ApiKey.PRODUCE:
                    row.request_bytes += size
                else:
                    row.response_bytes += size
                _count_records(row, one, has_sample=True)
                if code := errors.get((topic, one.partition)):
                    row.errors[error_name(code)] += 1

    def sorted_rows(self) -> list[Row]:
        """Return the rows, those with the most exchanges first."""
        return sorted(self.rows.values(), key=lambda row: (-row.n, row.key))

    def _row(self, key: str) -> Row:
        if key not in self.rows and len(self.rows) >= KEYS_MAX:
            key = OTHERS
        return self.rows.setdefault(key, Row(key))


def spans(exchanges: Iterable[Exchange], by: By, every_seconds: float | None = None) -> Iterator[Statistics]:
    """Yield the statistics of all exchanges, or one for each `every_seconds` in which there are any."""
    current = Statistics(by)
    step = None if every_seconds is None else round(every_seconds * 1e9)
    origin = begin = 0
    for exchange in exchanges:
        if step is not None:
            origin = origin or exchange.at_ns
            # One that ended late, with an older request, counts in the current span.
            here = max(begin, exchange.at_ns - (exchange.at_ns - origin) % step)
            if current.rows and here > begin:
                yield current
                current = Statistics(by)
            begin = here
        current.add(exchange)
        if step is not None:
            current.begin_ns = begin
    if current.rows:
        yield current


def _key(exchange: Exchange, by: By) -> str:
    if by == "api":
        return exchange.api_name
    if by == "client":
        return (
            " ".join(filter(None, (exchange.client_id, f"({exchange.software})" if exchange.software else ""))) or _NONE
        )
    return str(exchange.connection) if by == "connection" else exchange.connection.broker


def _count(row: Row, exchange: Exchange, *, has_bytes: bool = True) -> None:
    row.n += 1
    if has_bytes:
        row.request_bytes += exchange.request_bytes
        row.response_bytes += exchange.response_bytes
    if exchange.latency_ms is not None:
        row.latency.add(exchange.latency_ms)
    elif exchange.response is None and exchange.pair.frame.expects_response:
        row.unanswered += 1
    if exchange.version >= 0:
        row.versions.add(exchange.version)


def _parts(exchange: Exchange) -> Iterator[InPartition]:
    """Yield the partitions with records of an exchange."""
    if exchange.api is not None and exchange.api.key == ApiKey.PRODUCE:
        yield from produced(exchange)
    elif exchange.api is not None and exchange.api.key == ApiKey.FETCH:
        yield from fetched(exchange)


def _results(exchange: Exchange) -> Iterator[InPartition]:
    if exchange.api is not None and exchange.api.key == ApiKey.PRODUCE:
        yield from produce_results(exchange)
    elif exchange.api is not None and exchange.api.key == ApiKey.FETCH:
        yield from fetched(exchange)


def _count_records(row: Row, one: InPartition, *, has_sample: bool) -> None:
    for number, batch in enumerate(batches(one.struct.records)):
        if batch.is_control:
            continue
        row.records += batch.count
        if number == 0 and has_sample and batch.compression is not Compression.NONE:
            try:
                row.uncompressed_bytes += uncompressed_bytes(batch)
            except KwireError:
                continue
            row.compressed_bytes += max(1, batch.size_bytes - _RECORD_BATCH_HEADER)
