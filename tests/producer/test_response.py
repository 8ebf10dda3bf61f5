"""The future of a record: resolved once, waited for in every way."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kwire.errors import KwireError, RequestTimeoutError
from kwire.producer.response import ProduceResponse, RecordMetadata, resolve
from kwire.wire.accel import Run


def run_now(function: Any, *args: Any) -> None:
    function(*args)


class Sent:
    """A closed run of some records, and their responses."""

    def __init__(self, count: int) -> None:
        self.run = Run("topic", 3, 1_000, None, run_now)
        self.responses = [
            ProduceResponse(self.run, self.run.append(1_000 + number, None, b"", (), 1)) for number in range(count)
        ]
        self.run.close()

    def resolve(self, base_offset: int = -1, append_time_ms: int = -1, error: KwireError | None = None) -> None:
        resolve(self.run, 0, len(self.run), base_offset, append_time_ms, error)


def test_each_record_gets_its_own_offset_and_timestamp() -> None:
    sent = Sent(3)
    sent.resolve(40, -1)
    assert [response.result(0) for response in sent.responses] == [
        RecordMetadata("topic", 3, 40, 1_000),
        RecordMetadata("topic", 3, 41, 1_001),
        RecordMetadata("topic", 3, 42, 1_002),
    ]


def test_append_time_replaces_the_records_own_and_offsets_may_be_unknown() -> None:
    sent = Sent(2)
    sent.resolve(-1, 777)
    assert sent.responses[1].result() == RecordMetadata("topic", 3, -1, 777)


def test_callbacks_run_in_order_whether_added_before_or_after() -> None:
    sent = Sent(2)
    seen: list[str] = []
    sent.responses[1].add_done_callback(lambda _: seen.append("second"))
    sent.responses[0].add_done_callback(lambda _: seen.append("first"))
    sent.responses[0].add_done_callback(lambda _: seen.append("first again"))
    sent.resolve(0, -1)
    sent.responses[0].add_done_callback(lambda _: seen.append("late"))
    assert seen == ["first", "first again", "second", "late"]


def test_a_callback_that_raises_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    sent = Sent(1)
    seen: list[int] = []
    sent.responses[0].add_done_callback(lambda _: 1 / 0)
    sent.responses[0].add_done_callback(lambda _: seen.append(1))
    sent.resolve(0, -1)
    assert seen == [1]
    assert "ZeroDivisionError" in caplog.text


def test_an_error_is_raised_or_answered() -> None:
    sent = Sent(1)
    error = KwireError("no")
    sent.resolve(error=error)
    with pytest.raises(KwireError, match="no"):
        sent.responses[0].result()
    assert sent.responses[0].exception() is error


def test_resolving_twice_is_a_defect() -> None:
    sent = Sent(1)
    sent.resolve(error=KwireError("no"))
    with pytest.raises(AssertionError):
        sent.resolve(error=KwireError("no"))


def test_waiting_ends_with_the_outcome_or_the_timeout() -> None:
    sent = Sent(1)
    with pytest.raises(RequestTimeoutError):
        sent.responses[0].result(timeout=0)
    thread = threading.Thread(target=sent.resolve, args=(5, -1,))
    thread.start()
    assert sent.responses[0].result(timeout=10).offset == 5
    thread.join()


def test_await_works_before_and_after_and_for_several_tasks() -> None:
    sent = Sent(1)

    async def wait() -> int:
        return (await sent.responses[0]).offset

    async def main() -> list[int]:
        tasks = [asyncio.create_task(wait()) for _ in range(2)]
        cancelled = asyncio.create_task(wait())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.to_thread(sent.resolve, 5, -1)
        return [*await asyncio.gather(*tasks), await wait()]

    assert asyncio.run(main()) == [5, 5, 5]
