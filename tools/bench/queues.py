"""Measure queues: consumers against a plain group, work in parallel, producers, latency, many queues, memory.

kmq says that it has 82 % of the throughput of plain Kafka. Its benchmark sends messages with one program and receives
them with another, on a cluster of three. Each sender waits for ten messages before it sends the next ten; the plain
receiver takes record after record, and its position is committed every second (softwaremill/mqperf, KafkaMq.scala and
KmqMq.scala). The part "senders" does that with one broker. "consume" has no senders: "plain, next and commit" and
"plain, poll and commit" do as much for a record as kmq's plain receiver, as fast as they can. "plain, poll" commits in
the background and does nothing else: what a record costs at least.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self

import kwire
from bench.contest import Result, Tell, chosen_names, compete, take_turn
from bench.groups import from_earliest
from bench.parts import Part
from bench.report import Column, ratio_columns
from bench.stand import Stand
from bench.task import Sample, Task

_PARTITIONS = 4
_WORK_S = 0.01
_WORKERS = 64
_QUEUES = (1, 10, 1_000)
_TOGETHER, _OF_A_SENDER = 10, 5_000  # messages that a sender waits for, and sends at most
_PATIENCE_S = 60.0
_LATENCY_RECORDS = 1_000
_MEMORY_RECORDS = 1_000_000
_SHARED_MAX = 500_000


def _turn(bench: str, case: Task, stand: Stand, count: int, name: str) -> Sample:
    """Give a contestant topics of its own, the first with `count` messages of `keys` queues."""
    topic = stand.new_topic(case.partitions)
    if count:
        stand.fill(topic, case, count)
    try:
        return take_turn(bench, replace(case, contestant=name, topic=topic))
    finally:
        stand.delete(topic)
        stand.delete_prefixed(f"{topic}-")


def _case(given: argparse.Namespace, stand: Stand, **more: Any) -> Task:
    return Task("", stand.bootstrap, "", given.records, given.warmup, partitions=_PARTITIONS, keys=1, **more)


def _compete(
    bench: str, title: str, case: Task, count: int, options: argparse.Namespace, stand: Stand, tell: Tell
) -> Result:
    names = chosen_names(bench, options.only)
    return compete(title, names, options.rounds, partial(_turn, bench, case, stand, count), tell)


def consume(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    for size in options.sizes:
        case = _case(options, stand, size=size)
        title = f"received: {case.records:,} messages of {size} B, no work"
        yield _compete("queues-consume", title, case, case.warmup + case.records, options, stand, tell)


def senders(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    """Receive while so many threads send; the topics are new, and senders begin once the consumer has joined."""
    for count in options.senders:
        case = replace(
            _case(options, stand, size=options.sizes[0], options={"senders": count}),
            records=min(options.records, _OF_A_SENDER * count),
        )

        def turn(name: str, case: Task = case) -> Sample:
            topic = stand.new_topic(case.partitions)
            own = replace(case, contestant=name, topic=topic)
            try:
                with _Senders(own) as sending:
                    return take_turn("queues-senders", own, {"joined": sending.start})
            finally:
                stand.delete(topic)
                stand.delete_prefixed(f"{topic}-")

        title = f"received beside {count} senders: {case.records:,} messages of {case.size} B"
        yield compete(title, chosen_names("queues-senders", options.only), options.rounds, turn, tell)


class _Senders:
    """Send a task's messages from threads, each of which waits for ten messages before it sends the next ten."""

    def __init__(self, task: Task) -> None:
        count = task.options["senders"]
        values, key = task.values(task.warmup + task.records), task.key_list(1)[0]
        self._tens = [values[start : start + _TOGETHER] for start in range(0, len(values), _TOGETHER)]
        self._producer = kwire.Producer(task.bootstrap)
        self._topic, self._key = task.topic, key
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        with suppress(IndexError):  # another thread took the last ones
            while True:
                sent = [self._producer.send(self._topic, value, self._key) for value in self._tens.pop()]
                for one in sent:
                    one.result(_PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._tens.clear()  # what is left if the receiver failed
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._producer.close()


def work(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    records = min(options.records, int(4 * _WORKERS / _WORK_S))
    case = replace(
        _case(options, stand, size=options.sizes[0]), records=records, warmup=0,
        options={"work_s": _WORK_S, "workers": _WORKERS},
    )  # fmt: skip
    title = f"processed: {records:,} messages, {_WORK_S * 1000:.0f} ms of work, {_WORKERS} workers"
    yield _compete("queues-work", title, case, records, options, stand, tell)


def send(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    for size in options.sizes:
        case = _case(options, stand, size=size)
        yield _compete("queues-send", f"sent: {case.records:,} messages of {size} B", case, 0, options, stand, tell)


def many(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    """Send to many queues, and receive one of many: a consumer reads the messages of all queues."""
    for queues in _QUEUES:
        case = _case(options, stand, size=options.sizes[0], options={"queues": queues})
        title = f"sent to {queues:,} queues: {case.records:,} messages"
        yield _compete("queues-many", title, case, 0, options, stand, tell)


def latency(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    case = replace(_case(options, stand, size=options.sizes[0]), records=min(options.records, _LATENCY_RECORDS))
    title = f"from send to receive: {case.records:,} messages, 200 a second"
    yield _compete("queues-latency", title, case, 0, options, stand, tell)


def memory(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    records = min(options.records * 10, _MEMORY_RECORDS)
    case = replace(_case(options, stand, size=options.sizes[0]), records=records)
    title = f"in a tracker: {records:,} messages of {case.size} B in progress"
    yield _compete("queues-memory", title, case, 0, options, stand, tell)


def share(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    case = _case(options, stand, size=options.sizes[0], options={"group": "bench-share", "protocol": "classic"})
    records = min(case.records, _SHARED_MAX)
    title = f"share groups: {records:,} messages of {case.size} B"

    def turn(name: str) -> Sample:
        topic = stand.new_topic(case.partitions)
        own = replace(
            case, contestant=name, topic=topic, records=records, warmup=0, options={"group": f"{topic}-group"}
        )
        stand.fill(topic, own, records)
        for group in (f"{topic}-group", f"kwire-mq-share-{topic}-key-00000000"):
            from_earliest(stand, group)
        try:
            return take_turn("queues-share", own)
        finally:
            stand.delete(topic)

    yield compete(title, chosen_names("queues-share", options.only), options.rounds, turn, tell)


_US_CPU = Column("us CPU\na message", "us_cpu")
_PER_SECOND = Column("messages\na second", "per_second")
_OURS = ("queue, receive", "queue, receive_many", "queue, handle", "queue, async")

PARTS: Mapping[str, Part] = {
    "consume": Part(
        consume,
        [
            _US_CPU, *ratio_columns("per_cpu", "messages a CPU-second", _OURS), _PER_SECOND,
            *ratio_columns("per_second", "messages a second", _OURS),
        ],
        "consumers of a queue, against plain groups",
    ),
    "senders": Part(
        senders,
        [_US_CPU, _PER_SECOND, *ratio_columns("per_second", "messages a second", _OURS[:2])],
        "consumers of a queue beside senders that wait, as kmq measures, against a plain group",
    ),
    "work": Part(
        work, [_US_CPU, _PER_SECOND, *ratio_columns("per_second", "messages a second", ["queue, handle"])],
        "handlers that take 10 ms, on 64 workers",
    ),
    "send": Part(
        send, [_US_CPU, _PER_SECOND, *ratio_columns("per_cpu", "messages a CPU-second", ["queue, send_many"])],
        "producers of a queue, against a plain one",
    ),
    "many": Part(many, [_US_CPU, _PER_SECOND], "1, 10 and 1,000 queues"),
    "latency": Part(
        latency, [Column(f"p{percent} ms", f"p{percent}_ms") for percent in (50, 95, 99)],
        "from send to receive, against a plain group",
    ),
    "memory": Part(
        memory, [Column("bytes beside\nthe payload", "bytes"), _US_CPU], "a million messages in progress in a tracker"
    ),
    "share": Part(
        share, [_US_CPU, _PER_SECOND, *ratio_columns("per_second", "messages a second", ["queue, receive"])],
        "queues on share groups, against Java's share consumer",
    ),
}  # fmt: skip
