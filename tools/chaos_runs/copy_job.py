"""Copy partitions of a topic to another topic transactionally, until standard input ends.

    python -m chaos_runs.copy_job BOOTSTRAP SOURCE COPY GROUP TRANSACTIONAL_ID PARTITION,PARTITION... MS SEED LOG

MS is the transaction timeout. The job reads with kwire.Consumer and writes with kwire.Producer, records and offsets in
one transaction. It aborts some transactions on purpose. It appends each step to LOG as a line of JSON, so that the log
is complete even if the process is killed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from chaos_runs.sequence import TRANSACTION_HEADER, Label, label_bytes
from kwire import Consumer, ConsumerRecord, Producer
from kwire.cluster import ClientConfig, LoopThread, ToCoordinator
from kwire.errors import (
    AbortableError,
    ErrorCode,
    FatalError,
    FencedError,
    KwireError,
    NodeError,
    RequestTimeoutError,
    broker_error,
)
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

TRANSACTION_RECORDS = 750
EXIT_FENCED, EXIT_FATAL = 3, 4
_ABORTED_ON_PURPOSE = 0.08
_LIMIT_S = 120.0
_GATHER_S = 0.3
_PAUSE_S = 0.1
_OPTIONS: dict[str, Any] = {"request_timeout_ms": 10_000, "client_id": "copier"}
_MOVED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


@dataclass(frozen=True)
class Job:
    bootstrap: str
    source: str
    copy: str
    group: str
    transactional_id: str
    partitions: tuple[int, ...]
    timeout_ms: int
    seed: int
    log: Path

    @classmethod
    def of(cls, arguments: Sequence[str]) -> Job:
        *names, partitions, timeout_ms, seed, log = arguments
        bootstrap, source, copy, group, transactional_id = names
        numbers = tuple(map(int, partitions.split(",")))
        times = int(timeout_ms), int(seed)
        return cls(bootstrap, source, copy, group, transactional_id, numbers, *times, Path(log))

    def arguments(self) -> list[str]:
        numbers = ",".join(map(str, self.partitions))
        names = [self.bootstrap, self.source, self.copy, self.group, self.transactional_id]
        return [*names, numbers, str(self.timeout_ms), str(self.seed), str(self.log)]


class Copier:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._random = Random(job.seed)
        self._run = f"{job.transactional_id}-{os.getpid()}-{job.seed}"
        self._transactions = 0
        self._log = job.log.open("a", buffering=1)
        self._producer = Producer(
            job.bootstrap,
            transactional_id=job.transactional_id,
            transaction_timeout_ms=job.timeout_ms,
            batch_bytes=4_096,  # several batches of each partition in a transaction
            **_OPTIONS,
        )
        self._consumer = Consumer(job.bootstrap, isolation="read_committed", **_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The records that a failed producer still holds belong to no transaction that can commit.
        self._producer.close(30 if kind is None else 0)
        self._consumer.close()
        self._log.close()

    def note(self, event: str, **facts: object) -> None:
        self._log.write(json.dumps({"event": event, "at": time.time(), "pid": os.getpid(), **facts}) + "\n")

    def run(self, is_over: threading.Event) -> None:
        """Copy until `is_over` is set. Raises FencedError or FatalError."""
        self._again(lambda: self._producer.init_transactions(_LIMIT_S))
        # From here on every earlier transaction of this id has ended, so that its offsets are final.
        positions = committed(self._job)
        self.note("started", positions=positions)
        self._consumer.assign([(self._job.source, number, positions.get(number, 0)) for number in self._job.partitions])
        while not is_over.is_set():
            records = self._gather(is_over)
            if records:
                self._copy(records)

    def _gather(self, is_over: threading.Event) -> list[ConsumerRecord]:
        """Return the records of one transaction, or fewer if no more arrive."""
        records: list[ConsumerRecord] = []
        while len(records) < TRANSACTION_RECORDS and not is_over.is_set():
            try:
                more = self._consumer.poll(TRANSACTION_RECORDS - len(records), _GATHER_S)
            except KwireError as error:  # no broker was available for longer than the request timeout
                if not error.is_retriable:
                    raise
                self.note("waiting", why=str(error))
                continue
            if not more and records:
                break
            records += more
        return records

    def _copy(self, records: list[ConsumerRecord]) -> None:
        while True:
            self._again(lambda: self._producer.begin(_LIMIT_S))
            try:
                if self._random.random() < _ABORTED_ON_PURPOSE:
                    self._send(records[: self._random.randrange(len(records)) + 1])
                    self._end(self._producer.abort)
                    self.note("aborted", why="on purpose")
                    continue
                self._send(records)
                positions = {(record.topic, record.partition): record.offset + 1 for record in records}
                self._producer.send_offsets(positions, self._job.group, _LIMIT_S)
                self._end(self._producer.commit)
                places = {partition: offset for (_, partition), offset in positions.items()}
                self.note("committed", records=len(records), positions=places)
                return
            except AbortableError as error:
                self.note("aborted", why=str(error))
                self._end(self._producer.abort)

    def _send(self, records: Sequence[ConsumerRecord]) -> None:
        self._transactions += 1
        label = label_bytes(Label(f"{self._run}-{self._transactions}", len(records)))
        for record in records:
            self._producer.send(self._job.copy, record.value, key=record.key, headers={TRANSACTION_HEADER: label})

    def _end(self, end: Any) -> None:
        """Commit or abort; repeat the call while no broker is available, as the producer's documentation says."""
        self._again(lambda: end(_LIMIT_S))

    def _again(self, act: Any) -> None:
        while True:
            try:
                act()
                return
            except RequestTimeoutError as error:
                self.note("waiting", why=str(error))


def committed(job: Job) -> dict[int, int]:
    """Return the group's committed offsets in the source by partition; repeat until the coordinator responds."""
    route = ToCoordinator(job.group, "group")

    def build(version: int) -> OffsetFetchRequest:
        topic = OffsetFetchRequest.Topic(name=job.source, partition_indexes=list(job.partitions))
        return OffsetFetchRequest(group_id=job.group, topics=[topic], require_stable=version >= 7)

    runtime = LoopThread(ClientConfig(job.bootstrap, **_OPTIONS), name="positions")
    try:
        while True:
            try:
                return _positions(runtime.request(route, OffsetFetchRequest, build, at_most=7))
            except (NodeError, RequestTimeoutError):
                pass
            except KwireError as error:
                if not error.is_retriable:
                    raise
                if getattr(error, "code", None) in _MOVED:
                    runtime.call_soon(runtime.view.forget_coordinator, route)
            time.sleep(_PAUSE_S)
    finally:
        runtime.close()


def _positions(response: OffsetFetchResponse) -> dict[int, int]:
    answers = [answer for topic in response.topics for answer in topic.partitions]
    for code in (response.error_code, *(answer.error_code for answer in answers)):
        if code:
            raise broker_error(code, api="OffsetFetch")
    return {answer.partition_index: answer.committed_offset for answer in answers if answer.committed_offset >= 0}


def main(arguments: Sequence[str]) -> int:
    logging.basicConfig(level=logging.ERROR)  # errors go to standard error; a lost broker is a warning
    is_over = threading.Event()

    def wait_for_the_end() -> None:
        # The pipe ends when the parent closes it or dies. Not sys.stdin: a waiting thread holds its lock, which would
        # keep the interpreter from exiting.
        while os.read(sys.stdin.fileno(), 1):
            pass
        is_over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    with Copier(Job.of(arguments)) as copier:
        try:
            copier.run(is_over)
        except FencedError as error:
            copier.note("fenced", why=str(error))
            return EXIT_FENCED
        except FatalError as error:
            copier.note("fatal", why=str(error))
            return EXIT_FATAL
        except BaseException as error:
            copier.note("died", why=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
