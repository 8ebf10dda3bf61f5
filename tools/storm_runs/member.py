"""One member of a storm: a process that copies a topic to another as a group's member, until SIGTERM.

With `exactly_once` each batch is a transaction, with the group's offsets in it. Without it, offsets are committed after
the copies are delivered. It sends an event for each rebalance: what happened, and to how many partitions.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import kwire
from kwire.errors import FatalError, KwireError


@dataclass(frozen=True)
class Settings:
    bootstrap: str
    source: str
    target: str
    group: str
    name: str
    exactly_once: bool
    session_ms: int
    is_classic: bool
    static: bool = False


Event = tuple[str, int]
Report = Callable[[str, Sequence[tuple[str, int]]], None]
_BATCH = 500


def main(settings: Settings, events: Connection, log: Path) -> None:
    """Be the member until SIGTERM. Errors go to the log."""
    # Linux divides the processors by session: in one, all members would get as much as one broker.
    os.setsid()
    with log.open("ab") as errors:
        os.dup2(errors.fileno(), sys.stderr.fileno())

    def report(what: str, partitions: Sequence[tuple[str, int]] = ()) -> None:
        events.send((what, len(partitions)))

    copy = copy_in_transactions if settings.exactly_once else copy_then_commit
    with kwire.stop_on_signals() as stop:
        report("started")
        while not stop.is_set():
            try:
                copy(settings, report, stop)
            except FatalError as error:  # fenced while it was frozen: begin anew
                print(error, file=sys.stderr, flush=True)


def consumer_of(settings: Settings, report: Report) -> kwire.Consumer:
    options: dict[str, Any] = {"group_protocol": "auto"}
    if settings.is_classic:
        heartbeat = settings.session_ms // 4
        options = {
            "group_protocol": "classic", "session_timeout_ms": settings.session_ms, "heartbeat_interval_ms": heartbeat
        }  # fmt: skip
    if settings.static:
        options["group_instance_id"] = settings.name
    consumer = kwire.Consumer(
        settings.bootstrap, group=settings.group, commit="manual", isolation="read_committed", client_id=settings.name,
        **options,
    )  # fmt: skip
    consumer.subscribe(
        [settings.source],
        on_assigned=lambda found: report("assigned", found),
        on_revoked=lambda found: report("revoked", found),
        on_lost=lambda found: report("lost", found),
    )
    return consumer


def copy_then_commit(settings: Settings, report: Report, stop: threading.Event) -> None:
    with kwire.Producer(settings.bootstrap, linger_ms=5) as producer, consumer_of(settings, report) as consumer:
        while not stop.is_set():
            records = consumer.poll(_BATCH, timeout=0.5)
            sent = [producer.send(settings.target, record.value, key=record.key) for record in records]
            try:
                for response in sent:
                    response.result()
                if records:
                    consumer.commit(records)
            except KwireError as error:  # the owner of the partitions reads the records again
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)


def copy_in_transactions(settings: Settings, report: Report, stop: threading.Event) -> None:
    with (
        kwire.Producer(
            settings.bootstrap, transactional_id=settings.name, transaction_timeout_ms=30_000, linger_ms=5
        ) as producer,
        consumer_of(settings, report) as consumer,
    ):
        producer.init_transactions()
        while not stop.is_set():
            batch = consumer.poll_batch(_BATCH, timeout=0.5)
            if not batch:
                continue
            try:
                with producer.transaction():
                    for record in batch:
                        producer.send(settings.target, record.value, key=record.key)
                    producer.send_offsets(batch, group=consumer)
            except FatalError:
                raise
            except (kwire.AbortableError, kwire.GroupError) as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
