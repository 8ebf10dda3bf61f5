"""Kill consumers and trackers of a queue at each of their steps, on real brokers, and look for what is lost.

Each run starts a broker of a version (fetched by Maven) with a queue, consumers and trackers; the clock of one consumer
is an hour ahead, of another an hour behind. Members are killed by SIGKILL at one step after the other, and started
again, while messages go in. Then all go on until every message is acknowledged. The exit code is 1 if one is lost, or
one is processed twice without a cause: `judge` knows two of them.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from brokers.cluster import KafkaCluster

from kwire.queue import Service
from queue_runs.judge import judge, read_notes, read_topic
from queue_runs.member import QUEUE, STEPS, Settings
from queue_runs.member import main as member_main

VERSIONS = ("2.8.2", "3.9.1", "4.3.1")
_LEASE_MS = 10_000
_DELAY_MS, _DELAYED = 2_000, 10  # of every tenth message
_SETTLING_S = 300.0
_STEP_S = 60.0
_HOUR_MS = 3_600_000
_BATCH = 500
_SHOWN_MAX = 20  # complaints
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["queue_runs.member"])


@dataclass
class Slot:
    """A member: one process after the other."""

    settings: Settings
    process: ForkServerProcess | None = None

    def start(self, step: str = "", count: int = 1) -> None:
        settings = replace(self.settings, step=step, count=count)
        self.process = _PROCESSES.Process(target=member_main, args=(settings,), daemon=True)
        self.process.start()

    def stop(self) -> None:
        if self.process is not None and self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, signal.SIGTERM)
            self.process.join(40)
            if self.process.exitcode is None:
                self.process.kill()
                self.process.join()
                raise RuntimeError(f"a {self.settings.role} did not end within 40 s: {_tail(self)}")


@dataclass
class Outcome:
    messages: int
    lost: int = 0
    twice: Counter[str] = field(default_factory=Counter)  # by cause
    killed: Counter[str] = field(default_factory=Counter)  # by step
    dead_letters: int = 0
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.lost or self.dead_letters or self.complaints)


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    holds = True
    for version in options.versions or VERSIONS:
        for transactional in {"both": [False, True], "no": [False], "yes": [True]}[options.transactional]:
            mode = "transactional" if transactional else "at least once"
            print(f"-- Kafka {version}, {mode}, {options.messages:,} messages", flush=True)
            outcome = run(version, transactional, options)
            print(
                f"{outcome.messages:,} messages in {outcome.seconds:.0f} s: {outcome.lost} lost, "
                f"{sum(outcome.twice.values())} processed twice {dict(outcome.twice)}, "
                f"{outcome.dead_letters} dead letters\nkilled: {dict(outcome.killed)}",
                *outcome.complaints[:_SHOWN_MAX], "holds" if outcome.holds else "FAILED", sep="\n", flush=True,
            )  # fmt: skip
            holds = holds and outcome.holds
    return 0 if holds else 1


def run(version: str, transactional: bool, options: argparse.Namespace) -> Outcome:
    began = time.monotonic()
    own: dict[str, Any] = {
        "redelivery_timeout_ms": _LEASE_MS, "transactional": transactional, "partitions": 6, "max_deliveries": 50,
        "consumer_receive_buffer_capacity": 200,
    }  # fmt: skip
    outcome = Outcome(options.messages)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kwire-queue-")))
        cluster = stack.enter_context(KafkaCluster(version))
        service = stack.enter_context(Service(cluster.bootstrap, **own))
        stack.enter_context(service.queue("set-up").producer()).send(b"").result(60)
        slots = [
            Slot(Settings(cluster.bootstrap, role, own, folder / "notes", folder / f"{role}-{number}.log"))
            for role, count in (("consumer", options.consumers), ("tracker", options.trackers))
            for number in range(count)
        ]
        for slot, clock_ms in zip(slots[:2], (_HOUR_MS, -_HOUR_MS), strict=False):
            slot.settings = replace(slot.settings, clock_ms=clock_ms)
        killed: dict[int, int] = {}  # consumers: when, by pid
        try:
            _storm(service, slots, outcome, killed, transactional, options.rounds)
            _wait(folder / "notes", outcome, slots)
            outcome.dead_letters = len(service.dead_letters(QUEUE))
        finally:
            for slot in slots:
                slot.stop()
        _judge(service, cluster.bootstrap, folder / "notes", outcome, killed)
    outcome.seconds = time.monotonic() - began
    return outcome


def _storm(
    service: Service, slots: Sequence[Slot], outcome: Outcome, killed: dict[int, int], transactional: bool, rounds: int
) -> None:
    """Send messages while members are killed: each step once in each round, the second time at a later count."""
    steps = [
        (role, name, 1 + step.later * number)
        for number in range(rounds)
        for role, some in STEPS.items()
        for name, step in some.items()
        if step.transactional in (None, transactional)
    ]
    for slot in slots:
        slot.start()
    by_role = {role: itertools.cycle([one for one in slots if one.settings.role == role]) for role in STEPS}
    numbers = iter(range(outcome.messages))
    share = -(-outcome.messages // len(steps))
    with service.queue(QUEUE).producer() as producer:
        for role, name, count in steps:
            slot = next(by_role[role])
            slot.stop()
            slot.start(name, count)
            until, pause = time.monotonic() + _STEP_S, share
            while slot.process is not None and slot.process.exitcode is None and time.monotonic() < until:
                # Ever fewer, so that some are left for a member that joins late.
                some = min(_BATCH, -(-pause // 20))
                pause -= _send(producer, itertools.islice(numbers, some))
                slot.process.join(0.2)
            _send(producer, itertools.islice(numbers, max(0, pause)))
            if slot.process is not None and slot.process.exitcode is None:
                outcome.complaints.append(f"{role} never came to: {name}")
                slot.stop()
            else:
                assert slot.process is not None
                assert slot.process.pid is not None
                if slot.process.exitcode != -signal.SIGKILL:
                    outcome.complaints.append(f"{role} ended with {slot.process.exitcode}: {_tail(slot)}")
                outcome.killed[name] += 1
                if role == "consumer":
                    killed[slot.process.pid] = time.time_ns() // 1_000_000
            slot.start()
        _send(producer, numbers)


def _send(producer: Any, numbers: Iterator[int]) -> int:
    # Some are delayed, so that trackers have something to deliver at any time.
    sent = [
        producer.send(b"x" * 256, {"n": b"%d" % number}, delay_ms=0 if number % _DELAYED else _DELAY_MS)
        for number in numbers
    ]
    producer.flush()
    for response in sent:
        response.result(60)
    return len(sent)


def _wait(path: Path, outcome: Outcome, slots: Sequence[Slot]) -> None:
    """Wait until all is acknowledged and nothing comes any more."""
    until = time.monotonic() + _SETTLING_S
    while time.monotonic() < until:
        if len({note.number for note in read_notes(path) if note.what == "a"}) == outcome.messages:
            time.sleep(2 * _LEASE_MS / 1000)  # what comes again although it was acknowledged
            return
        for slot in slots:
            if slot.process is not None and slot.process.exitcode is not None:
                outcome.complaints.append(f"a {slot.settings.role} ended by itself: {_tail(slot)}")
                slot.start()
        time.sleep(1.0)


def _tail(slot: Slot) -> str:
    return slot.settings.log.read_text()[-800:] if slot.settings.log.exists() else ""


def _judge(service: Service, bootstrap: str, path: Path, outcome: Outcome, killed: Mapping[int, int]) -> None:
    verdict = judge(
        read_notes(path), read_topic(bootstrap, service.options.message_topic),
        read_topic(bootstrap, service.options.marker_topic), killed, outcome.messages,
        is_transactional=service.options.transactional,
    )  # fmt: skip
    outcome.lost, outcome.twice = verdict.lost, verdict.twice
    outcome.complaints += verdict.complaints


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/queue-storm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of Kafka (default: {' '.join(VERSIONS)})")
    parser.add_argument("--messages", type=int, default=200_000, help="(default: 200,000)")
    parser.add_argument("--consumers", type=int, default=4, help="(default: 4)")
    parser.add_argument("--trackers", type=int, default=3, help="(default: 3)")
    parser.add_argument("--rounds", type=int, default=2, help="how often each step is killed (default: 2)")
    parser.add_argument("--transactional", choices=["yes", "no", "both"], default="both", help="(default: both)")
    return parser
