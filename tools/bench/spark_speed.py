"""Compare the data source `format("kwire")` with Spark's connector `format("kafka")` on the same rows.

Each contestant is a PySpark process with its JVM; the Python workers count too. The contestant "nothing" is a data
source without a client: what it costs is Spark's own hand-over to Python, below which no connector in Python can be.
All warm up on few partitions, because each partition that is read is a task. The rows are many, because the JVM goes on
compiling: with a million rows, all contestants cost three times as much a row, and differ by less.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import replace

from bench.contest import Result, Tell, chosen_names, compete, take_turn
from bench.contestants.pyspark_job import NOTHING
from bench.stand import Stand
from bench.task import Sample, Task
from bench.throughput import cases, counted

WAYS = ("write", "read")
# Writes of 100,000 rows each, exactly once against at least once; only if asked for.
BATCHES = "batches"
# Reads of the column value alone; only if asked for.
VALUES = "values"
_WARM_PARTITIONS_MAX = 4


def spark(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    for (title, case), way in itertools.product(cases(options), options.way):
        kind = "spark-batches" if way == BATCHES else "spark"
        task = replace(case, bootstrap=stand.bootstrap, options={"way": way})
        if way in ("read", VALUES):
            task = filled(task, stand)

        def turn(name: str, task: Task = task, kind: str = kind) -> Sample:
            if task.topic:
                return take_turn(kind, replace(task, contestant=name))
            topic = stand.new_topic(task.partitions)
            sample = take_turn(kind, replace(task, contestant=name, topic=topic))
            arrived = stand.count(topic, task.partitions)
            stand.delete(topic)
            # The offsets count the markers of transactions too; and "nothing" counts its rows itself.
            if kind == "spark-batches" or name == NOTHING:
                return sample
            return counted(sample, task, arrived)

        yield compete(f"{way}: {title}", chosen_names(kind, options.only), options.rounds, turn, tell)
        if task.topic:
            stand.delete(task.topic, task.warm_topic)


def filled(task: Task, stand: Stand) -> Task:
    """Fill the two topics to be read, and return the task with their names."""
    warm = replace(task, partitions=min(task.partitions, _WARM_PARTITIONS_MAX))
    task = replace(task, warm_topic=stand.new_topic(warm.partitions), topic=stand.new_topic(task.partitions))
    stand.fill(task.warm_topic, warm, task.warmup)
    stand.fill(task.topic, task, task.records)
    return task
