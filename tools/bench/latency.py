"""Measure an acknowledged send at linger 0 under light load: alone, and beside a thread that spins in Python."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bench.contest import Result, Tell, chosen_names, compete, take_turn
from bench.stand import Stand
from bench.task import Sample, Task

PAUSE_S = 0.005  # between a response and the next send
WARMUP = 50


def latency(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    for is_spinning in (False, True):
        title = f"{options.records:,} sends one by one, {'another thread spinning' if is_spinning else 'else idle'}"

        def turn(name: str, is_spinning: bool = is_spinning) -> Sample:
            topic = stand.new_topic(1)
            more = {"spinning": is_spinning, "pause_s": PAUSE_S}
            task = Task(name, stand.bootstrap, topic, options.records, WARMUP, options=more)
            try:
                return take_turn("latency", task)
            finally:
                stand.delete(topic)

        yield compete(title, chosen_names("latency", options.only), options.rounds, turn, tell)
