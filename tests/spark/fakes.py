"""A log, a consumer and a producer without a broker: tables that answer as kwire's clients do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kwire.consumer import ConsumerRecord
from kwire.errors import ErrorCode, KwireError, broker_error
from kwire.spark.options import ReadOptions, read_options

TopicPartition = tuple[str, int]


def options(own: Mapping[str, str] | None = None, *, is_stream: bool = False, **more: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", **(own or {}), **more}
    if "assign" in given or "subscribePattern" in given:
        del given["subscribe"]
    return read_options(given, is_stream=is_stream)


@dataclass
class FakeLog:
    """Partitions with their first and next offset, and the offset found for a time, if any."""

    extents: dict[TopicPartition, tuple[int, int]]
    at_times: dict[tuple[str, int, int], int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def partitions(self, topic: str) -> Collection[int]:
        found = [index for name, index in self.extents if name == topic]
        if not found:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic)
        return found

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append("beginnings")
        return {key: self.extents[key][0] for key in partitions}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append("ends")
        return {key: self.extents[key][1] for key in partitions}

    def offsets_at(self, times: Sequence[tuple[str, int, int]]) -> Mapping[TopicPartition, int | None]:
        self.asked.append("times")
        return {(topic, index): self.at_times.get((topic, index, ms)) for topic, index, ms in times}


class FakeConsumer:
    """One partition, t-0. `script` are the steps of `poll`: offsets to answer, a position reached, or an error."""

    def __init__(self, script: Sequence[list[int] | int | KwireError], *, first: int = 0) -> None:
        self._script = list(script)
        self._first = first
        self._position = -1
        self.assigned: list[Any] = []
        self.on_poll: Callable[[], object] = lambda: None

    def assign(self, partitions: Sequence[tuple[str, int, int]]) -> None:
        self.assigned.append(list(partitions))
        if partitions:
            self._position = partitions[0][2]

    def poll(self, max_records: int = 500, timeout: float = 1.0) -> list[ConsumerRecord]:
        self.on_poll()
        step: list[int] | int | KwireError = self._script.pop(0) if self._script else []
        if isinstance(step, KwireError):
            raise step
        if isinstance(step, int):
            self._position = step
            return []
        if step:
            self._position = step[-1] + 1
        return [ConsumerRecord("t", 0, offset, 0, 0, None, b"%d" % offset) for offset in step]

    def position(self, topic: str, partition: int) -> int:
        return self._position

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._first)


class FakeResponse:
    def __init__(self, error: KwireError | None) -> None:
        self._error = error

    def result(self, timeout: float | None = None) -> object:
        return None

    def exception(self, timeout: float | None = None) -> KwireError | None:
        return self._error


class FakeProducer:
    """Keeps what is sent. `failures` are outcomes by row number; `refusals` are raised by `send` itself."""

    def __init__(
        self, failures: Mapping[int, KwireError] | None = None, refusals: Mapping[int, Exception] | None = None
    ) -> None:
        self._failures = failures or {}
        self._refusals = refusals or {}
        self.sent: list[tuple[object, ...]] = []
        self.flushes = 0

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FakeResponse:
        number = len(self.sent)
        if number in self._refusals:
            raise self._refusals[number]
        self.sent.append((topic, value, key, headers, partition, timestamp_ms))
        return FakeResponse(self._failures.get(number))

    def flush(self) -> None:
        self.flushes += 1
