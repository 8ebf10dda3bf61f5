"""The future of a record: it resolves once, and every way to wait for it works."""

from __future__ import annotations

import asyncio
import threading
import traceback
from typing import Any

import pytest

from kwire.errors import KwireError, RequestTimeoutError
from kwire.producer.batch_builder import BatchBuilder
from kwire.producer.futures import ProduceResponse, RecordMetadata, resolve


def run_now(function: Any, *args: Any) -> None:
    function(*args)


class Sent:
    """Return a closed batch builder of some records, and their responses."""

    def __init__(self, count: int) -> None:
        self.builder = BatchBuilder("topic", 3, 1_000, None, run_now)
        self.responses = [
            ProduceResponse(self.builder, self.builder.append(1_000 + number, None, b"", (), 1))
            for number in range(count)
        ]
        self.builder.close()

    def resolve(self, base_offset: int = -1, append_time_ms: int = -1, error: KwireError | None = None) -> None:
        resolve(self.builder, 0, len(self.builder), base_offset, append_time_ms, error)


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


def test_an_error_is_raised_or_returned() -> None:
    sent = Sent(1)
    error = KwireError("no")
    sent.resolve(error=error)
    with pytest.raises(KwireError, match="no"):
        sent.responses[0].result()
    found = sent.responses[0].exception()
    assert (type(found), str(found)) == (KwireError, "no")


def frames(error: BaseException) -> int:
    return sum(1 for _ in traceback.walk_tb(error.__traceback__))


def test_each_look_at_a_failure_gets_an_error_of_its_own() -> None:
    sent = Sent(3)
    shared = KwireError("no", remedy="try", topic="topic", partition=3)
    shared.__cause__ = cause = OSError("why")
    shared.add_note("a note")
    sent.resolve(error=shared)
    found: list[KwireError] = []
    for response in sent.responses * 100:
        with pytest.raises(KwireError) as caught:
            response.result()
        found.append(caught.value)
        error = response.exception()
        assert error is not None
        found.append(error)
    assert len({id(error) for error in found}) == len(found)
    assert {str(error) for error in found} == {str(shared)}
    assert {error.__cause__ for error in found} == {cause}
    assert max(map(frames, found)) < 10
    assert shared.__traceback__ is None
    found[0].add_note("of the first")
    assert found[1].__notes__ == shared.__notes__ == ["a note"]


def test_awaiting_a_failure_gets_an_error_of_its_own() -> None:
    sent = Sent(2)
    shared = KwireError("no")
    sent.resolve(error=shared)

    async def error_of(response: ProduceResponse) -> KwireError:
        try:
            await response
        except KwireError as error:
            return error
        raise AssertionError("it failed")

    async def main() -> None:
        first, second = [await error_of(response) for response in sent.responses]
        assert len({id(first), id(second), id(shared)}) == 3

    asyncio.run(main())
    assert shared.__traceback__ is None


def test_an_error_of_a_callback_is_logged_with_its_record(caplog: pytest.LogCaptureFixture) -> None:
    sent = Sent(3)
    sent.responses[1].on_delivery(lambda _: 1 / 0)
    sent.responses[2].add_done_callback(lambda _: 1 / 0)
    sent.resolve(base_offset=40)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "a callback raised for the record of topic topic, partition 3, offset 41",
        "a callback raised for the record of topic topic, partition 3, offset 42",
    ]
    caplog.clear()
    failed = Sent(1)
    failed.responses[0].on_delivery(lambda _: 1 / 0)
    failed.resolve(error=KwireError("no"))
    assert [record.getMessage() for record in caplog.records] == [
        "a callback raised for the record of topic topic, partition 3, not delivered: no"
    ]


def test_repr_says_where_the_record_is_or_what_it_met() -> None:
    sent, failed = Sent(1), Sent(1)
    assert repr(sent.responses[0]) == "<ProduceResponse of topic: pending>"
    sent.resolve(base_offset=40)
    assert repr(sent.responses[0]) == "<ProduceResponse of topic-3: delivered at offset 40>"
    failed.resolve(error=KwireError("no"))
    assert repr(failed.responses[0]) == "<ProduceResponse of topic-3: failed with KwireError('no')>"


def test_a_callback_that_is_not_callable_is_refused() -> None:
    not_callable: Any = 5
    with pytest.raises(TypeError, match="the callback is 5"):
        Sent(1).responses[0].add_done_callback(not_callable)


def test_resolving_twice_is_a_defect() -> None:
    sent = Sent(1)
    sent.resolve(error=KwireError("no"))
    with pytest.raises(AssertionError):
        sent.resolve(error=KwireError("no"))


def test_waiting_ends_with_the_outcome_or_the_timeout() -> None:
    sent = Sent(1)
    with pytest.raises(RequestTimeoutError):
        sent.responses[0].result(timeout=0)
    thread = threading.Thread(
        target=sent.resolve,
        args=(
            5,
            -1,
        ),
    )
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
