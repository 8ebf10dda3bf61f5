"""Measure the memory of a queued record while the broker does not respond, and how much a producer queues at most.

The bench stops the broker (SIGSTOP) after the producer's warm-up and continues it after the measurement. All queued
records must then arrive. aiokafka is left out, because it waits with one batch for each partition; Java too, because
its heap has a configured size.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bench.contest import Result, Tell, chosen_names, compete, take_turn
from bench.stand import Stand
from bench.task import Sample, Task

WARMUP = 1_000


def memory(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    if not stand.can_stop:
        raise SystemExit("memory stops the broker for a while, so it uses one of its own: leave out --bootstrap")
    for is_filling in (False, True):
        what = "until the queue is full by default, at most" if is_filling else "queued, a broker that does not answer:"
        title = f"{what} {options.records:,} records of {options.sizes[0]} B"

        def turn(name: str, is_filling: bool = is_filling) -> Sample:
            topic = stand.new_topic(options.partitions[0])
            task = Task(
                name, stand.bootstrap, topic, options.records, WARMUP, options.sizes[0], options.partitions[0],
                options={"fill": is_filling},
            )  # fmt: skip
            try:
                words = {"stop the broker": stand.stop, "let the broker go on": stand.go_on}
                sample = take_turn("memory", task, words)
            finally:
                stand.go_on()
            stand.delete(topic)
            return sample

        yield compete(title, chosen_names("memory", options.only), options.rounds, turn, tell)
