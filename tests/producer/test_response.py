"""The future of a record: resolved once, waited for in every way."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kwire.errors import KwireError, RequestTimeoutError
from kwire.producer.batch import Batch
from kwire.producer.response import ProduceResponse, RecordMetadata, resolve_all


def run_now(function: Any, *args: Any) -> None:
    function(*args)


def batch_of(count: int) -> Batch:
    batch = Batch("topic", 3, 1_000, 0.0, 1.0)
    for number in range(count):
        batch.append((1_000 + number, None, b"", ()), ProduceResponse(run_now), 1)
    return batch


def test_each_record_gets_its_own_offset_and_timestamp() -> None:
    batch = batch_of(3)
    batch.acknowledged(40, -1)
    resolve_all(batch.responses, batch, None)
    assert [response.result(0) for response in batch.responses] == [
        RecordMetadata("topic", 3, 40, 1_000),
        RecordMetadata("topic", 3, 41, 1_001),
        RecordMetadata("topic", 3, 42, 1_002),
    ]


def test_append_time_replaces_the_records_own_and_offsets_may_be_unknown() -> None:
    batch = batch_of(2)
    batch.acknowledged(-1, 777)
    resolve_all(batch.responses, batch, None)
    assert batch.responses[1].result() == RecordMetadata("topic", 3, -1, 777)


def test_callbacks_run_in_order_whether_added_before_or_after() -> None:
    batch = batch_of(2)
    batch.acknowledged(0, -1)
    seen: list[str] = []
    batch.responses[1].add_done_callback(lambda _: seen.append("second"))
    batch.responses[0].add_done_callback(lambda _: seen.append("first"))
    batch.responses[0].add_done_callback(lambda _: seen.append("first again"))
    resolve_all(batch.responses, batch, None)
    batch.responses[0].add_done_callback(lambda _: seen.append("late"))
    assert seen == ["first", "first again", "second", "late"]


def test_a_callback_that_raises_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    batch = batch_of(1)
    seen: list[int] = []
    batch.responses[0].add_done_callback(lambda _: 1 / 0)
    batch.responses[0].add_done_callback(lambda _: seen.append(1))
    resolve_all(batch.responses, batch, None)
    assert seen == [1]
    assert "ZeroDivisionError" in caplog.text


def test_an_error_is_raised_or_answered() -> None:
    batch = batch_of(1)
    error = KwireError("no")
    resolve_all(batch.responses, None, error)
    with pytest.raises(KwireError, match="no"):
        batch.responses[0].result()
    assert batch.responses[0].exception() is error


def test_resolving_twice_is_a_defect() -> None:
    batch = batch_of(1)
    resolve_all(batch.responses, None, KwireError("no"))
    with pytest.raises(AssertionError):
        resolve_all(batch.responses, None, KwireError("no"))


def test_waiting_ends_with_the_outcome_or_the_timeout() -> None:
    batch = batch_of(1)
    with pytest.raises(RequestTimeoutError):
        batch.responses[0].result(timeout=0)
    batch.acknowledged(5, -1)
    thread = threading.Thread(target=resolve_all, args=(batch.responses, batch, None))
    thread.start()
    assert batch.responses[0].result(timeout=10).offset == 5
    thread.join()


def test_await_works_before_and_after_and_for_several_tasks() -> None:
    batch = batch_of(1)
    batch.acknowledged(5, -1)

    async def wait() -> int:
        return (await batch.responses[0]).offset

    async def main() -> list[int]:
        tasks = [asyncio.create_task(wait()) for _ in range(2)]
        cancelled = asyncio.create_task(wait())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.to_thread(resolve_all, batch.responses, batch, None)
        return [*await asyncio.gather(*tasks), await wait()]

    assert asyncio.run(main()) == [5, 5, 5]
