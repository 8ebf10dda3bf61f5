"""Measure produce, consume and bulk: records per CPU second of the client, and per second."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import replace

from bench.contest import Result, Tell, chosen_names, compete, take_turn
from bench.stand import Stand
from bench.task import Sample, Task


def cases(options: argparse.Namespace) -> Iterator[tuple[str, Task]]:
    """Yield every combination of the sizes, codecs and partitions of the options."""
    for size, compression, partitions in itertools.product(options.sizes, options.compression, options.partitions):
        keyed = f", {options.keys} keys" if options.keys else ""
        title = f"{options.records:,} records of {size} B, {compression}, partitions: {partitions}{keyed}"
        yield title, Task("", "", "", options.records, options.warmup, size, partitions, compression, options.keys)


def produce(options: argparse.Namespace, stand: Stand, tell: Tell, bench: str) -> Iterator[Result]:
    for title, case in cases(options):

        def turn(name: str, case: Task = case) -> Sample:
            topic = stand.new_topic(case.partitions)
            try:
                sample = take_turn(bench, replace(case, contestant=name, bootstrap=stand.bootstrap, topic=topic))
                return counted(sample, case, stand.count(topic, case.partitions))
            finally:
                stand.delete(topic)

        yield compete(title, chosen_names(bench, options.only), options.rounds, turn, tell)


def counted(sample: Sample, case: Task, arrived: int) -> Sample:
    """Return the sample with the broker's count, or a failure if that differs from what was sent."""
    sent = case.records + case.warmup + int(sample.measures.get("extra", 0))
    if sample.failure is None and arrived != sent:
        return replace(sample, arrived=arrived, failure=f"{arrived} of {sent} records arrived")
    return replace(sample, arrived=arrived)


def consume(options: argparse.Namespace, stand: Stand, tell: Tell, bench: str) -> Iterator[Result]:
    for title, case in cases(options):
        filled = replace(case, bootstrap=stand.bootstrap, warm_topic=stand.new_topic(case.partitions))
        filled = replace(filled, topic=stand.new_topic(case.partitions))
        tell(f"{title}: filling the topics")
        stand.fill(filled.warm_topic, filled, filled.warmup)
        stand.fill(filled.topic, filled, filled.records)

        def turn(name: str, filled: Task = filled) -> Sample:
            return take_turn(bench, replace(filled, contestant=name))

        yield compete(title, chosen_names(bench, options.only), options.rounds, turn, tell)
        stand.delete(filled.warm_topic, filled.topic)
