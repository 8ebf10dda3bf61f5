"""A streaming query without Spark: tasks and a driver on an embedded cluster, each of which may die at any step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import kwire
from kwire.producer.options import ProducerSettings
from kwire.spark.columns import ARROW_TYPES
from kwire.spark.lead import BatchId, LeadTransaction, Prepared
from kwire.spark.options import ExactlyOnce
from kwire.spark.sink import SinkBatch
from kwire.spark.task_write import TaskId, TaskWrite
from kwire.spark.transactions import TransactionRequests

INLINE, SIDES, MIXED = "inline", "sides", "mixed"
# MIXED: tasks with odd numbers have more rows than fit.
_INLINE_BYTES_MAX = {INLINE: 1 << 20, SIDES: 0, MIXED: 2_000}
TASKS = 3
QUERY = "q"

OPTIONS = ExactlyOnce(
    prefix=None,
    marker_key=("t", 0),
    transaction_timeout_ms=60_000,
    inline_bytes_max=0,
    inline_batch_bytes_max=1 << 30,
    on_in_doubt="fail",
    accepts_missing_marker=False,
)


class Died(BaseException):
    """A process was killed: nothing of it runs any more."""


@dataclass
class Death:
    """Kills the process that reaches a step for the n-th time, once."""

    step: str | None = None
    countdown: int = 0
    reached: list[str] = field(default_factory=list)

    def __call__(self, step: str) -> None:
        self.reached.append(step)
        if step == self.step:
            self.countdown -= 1
            if self.countdown < 0:
                self.step = None
                raise Died(step)


def rows(number: int, task: int, count: int) -> list[bytes]:
    return [b"%d-%d-%d" % (number, task, index) for index in range(count)]


def sink_batch(values: Sequence[bytes], topic: str = "t", **columns: list[Any]) -> SinkBatch:
    arrays = {name: pa.array(cells, ARROW_TYPES[name]) for name, cells in columns.items()}
    return SinkBatch(topic, pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **arrays}))


@dataclass
class Query:
    """One run of a query: a driver and its tasks. A restart is another one with the same `query`."""

    requests: TransactionRequests
    mode: str = INLINE
    run: str = "a"
    query: str = QUERY
    options: ExactlyOnce = OPTIONS
    is_stream: bool = True
    death: Death = field(default_factory=Death)
    settings: ProducerSettings = field(default_factory=ProducerSettings)

    def __post_init__(self) -> None:
        if not self.options.inline_bytes_max:
            self.options = replace(self.options, inline_bytes_max=_INLINE_BYTES_MAX[self.mode])

    @property
    def lead(self) -> LeadTransaction:
        prefix = BatchId(self.query, 0, self.is_stream).prefix(self.options)
        return LeadTransaction(self.requests, self.options, prefix, reach=self.death)

    def batch(self, number: int) -> BatchId:
        return BatchId(self.query, number, self.is_stream)

    def count(self, task: int) -> int:
        return 400 if self.mode == MIXED and task % 2 else 20

    def task(self, number: int, task: int, attempt: int = 0, values: Sequence[bytes] | None = None) -> Prepared:
        id = TaskId(self.batch(number), self.run, task, attempt)
        given = rows(number, task, self.count(task)) if values is None else list(values)
        half = len(given) // 2
        write = TaskWrite(self.requests, self.options, self.settings, id, reach=self.death)
        return write.write([sink_batch(given[:half]), sink_batch(given[half:])])

    def tasks(self, number: int) -> list[Prepared]:
        """Run the tasks of a batch; one whose worker is killed is run again."""
        found = []
        for task in range(TASKS):
            try:
                found.append(self.task(number, task))
            except Died:
                found.append(self.task(number, task, attempt=1))
        return found

    def write(self, number: int) -> None:
        """Run a batch. A driver that is killed in it is started again, and repeats it, as Spark does."""
        parts = self.tasks(number)
        try:
            self.lead.commit(self.batch(number), parts)
        except Died:
            again = replace(self, run=f"{self.run}2", death=Death())
            again.lead.recover()
            again.lead.commit(self.batch(number), again.tasks(number))

    def expected(self, numbers: Iterable[int]) -> Counter[bytes]:
        return Counter(
            value for number in numbers for task in range(TASKS) for value in rows(number, task, self.count(task))
        )


def committed(bootstrap: str, topic: str = "t", partitions: int = 2) -> Counter[bytes]:
    """Return the values that a consumer with read_committed sees. It must get to the end of the log."""
    with kwire.Consumer(bootstrap, isolation="read_committed", retry_backoff_ms=5) as consumer:
        keys = [(topic, index) for index in range(partitions)]
        ends = consumer.end_offsets(keys)
        with kwire.Consumer(bootstrap) as other:
            assert ends == other.end_offsets(keys), "a transaction is open"
        consumer.assign([(*key, 0) for key in keys], ends=ends)
        found: Counter[bytes] = Counter()
        while any(consumer.position(*key) < ends[key] for key in keys):
            found.update(record.value for record in consumer.poll(timeout=0.1) if record.value is not None)
        return found


def ongoing(bootstrap: str) -> list[str]:
    with kwire.Admin(bootstrap) as admin:
        return [one.id for one in admin.transactions.list(states=["Ongoing"])]
