"""What a consumer's methods refuse: at the call, by the argument's name, with what to give instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import nan
from typing import Any

import pytest

from kwire import AtTimestamp, Consumer
from kwire.consumer import RebalanceListener
from kwire.errors import ConfigurationError


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    with Consumer("localhost:1") as running:  # no broker is contacted before the first use
        yield running


@pytest.mark.parametrize("method", ["poll", "poll_batch"])
@pytest.mark.parametrize("max_records", [1.0, 2.5, "5", True])
def test_max_records_is_a_count_and_not_a_time(consumer: Consumer, method: str, max_records: Any) -> None:
    message = (
        f"max_records is {max_records!r}: give a whole number of records; the time to wait, in seconds, is poll(timeout"
    )
    with pytest.raises(TypeError, match=re.escape(message)):
        getattr(consumer, method)(max_records)


def test_max_records_is_positive(consumer: Consumer) -> None:
    with pytest.raises(ConfigurationError, match="max_records is 0"):
        consumer.poll(0)


TIMED: list[Callable[[Consumer, Any], object]] = [
    lambda consumer, timeout: consumer.poll(timeout=timeout),
    lambda consumer, timeout: consumer.poll_batch(timeout=timeout),
    lambda consumer, timeout: consumer.partitions("t", timeout),
    lambda consumer, timeout: consumer.beginning_offsets([("t", 0)], timeout),
    lambda consumer, timeout: consumer.end_offsets([("t", 0)], timeout),
    lambda consumer, timeout: consumer.offsets_at([("t", 0, 0)], timeout),
    lambda consumer, timeout: consumer.position("t", 0, timeout),
    lambda consumer, timeout: consumer.close(timeout),
]


@pytest.mark.parametrize("call", TIMED)
@pytest.mark.parametrize("timeout", ["x", True, [1], nan])
def test_a_timeout_is_seconds(consumer: Consumer, call: Callable[[Consumer, Any], object], timeout: Any) -> None:
    with pytest.raises(
        TypeError,
        match=re.escape(
            f"timeout is {timeout!r} ({type(timeout).__name__}): give seconds as a number, or None to wait "
        ),
    ):
        call(consumer, timeout)


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        (["t"], """partitions[0] is 't': give (topic, partition, offset), such as ("orders", 0, "earliest")"""),
        ([("t", 0)], "partitions[0] is ('t', 0): give (topic, partition, offset)"),
        ([("t", 0, 5), ("t", 1)], "partitions[1] is ('t', 1): give (topic, partition, offset)"),
        ("t", "partitions is 't': give a list of (topic, partition, offset)"),
        (None, "partitions is None: give a list of"),
        (5, "partitions is 5: give a list of"),
    ],
)
def test_the_shape_of_an_assignment(consumer: Consumer, partitions: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        consumer.assign(partitions)
    assert consumer.assignment() == []


@pytest.mark.parametrize("method", ["beginning_offsets", "end_offsets", "pause", "resume"])
@pytest.mark.parametrize("partitions", [["t"], [("t", 0, 1)], "t", 5])
def test_the_shape_of_partitions(consumer: Consumer, method: str, partitions: Any) -> None:
    with pytest.raises(
        TypeError, match=r"""partitions.* is .*: give .*\(topic, partition\), such as \("orders", 0\)"""
    ):
        getattr(consumer, method)(partitions)


def test_the_shape_of_times(consumer: Consumer) -> None:
    times: Any = [("t", 0)]
    with pytest.raises(
        TypeError, match=r"times\[0\] is \('t', 0\): give \(topic, partition, milliseconds since 1970\)"
    ):
        consumer.offsets_at(times)


def test_a_partition_to_seek_is_a_number(consumer: Consumer) -> None:
    consumer.assign([("t", 0, 0)])
    wrong: Any = "0"
    with pytest.raises(ConfigurationError, match="partition is '0': give a whole number"):
        consumer.seek("t", wrong, 5)
    wrong = ["t"]
    with pytest.raises(ConfigurationError, match=re.escape("topic is ['t']: give its name")):
        consumer.seek(wrong, 0, 5)


@pytest.mark.parametrize("ends", [[("t", 0, 5)], {"t": 5}, 7])
def test_the_shape_of_ends(consumer: Consumer, ends: Any) -> None:
    with pytest.raises(TypeError, match=r"ends.* is .*: give .*\(topic, partition\)"):
        consumer.assign([("t", 0, AtTimestamp(0))], ends=ends)
    assert consumer.assignment() == []


def test_a_listener_is_no_subclass_whose_methods_would_not_be_called() -> None:
    with pytest.raises(TypeError, match="RebalanceListener is no base class: Mine needs none to be the `listener`"):

        class Mine(RebalanceListener):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
            def on_assigned(self, partitions: object) -> None: ...


@pytest.mark.parametrize(
    ("listener", "kind", "message"),
    [
        (RebalanceListener(on_assigned=5), TypeError, "on_assigned is 5: give a function"),  # type: ignore[arg-type]
        (RebalanceListener(), TypeError, "has none of on_assigned, on_revoked and on_lost"),
        (dict, TypeError, "has none of on_assigned, on_revoked and on_lost"),
    ],
    ids=repr,
)
def test_a_listener_has_functions(listener: object, kind: type[Exception], message: str) -> None:
    with Consumer("localhost:1", group="g") as consumer, pytest.raises(kind, match=message):
        consumer.subscribe(["t"], listener=listener)


def test_a_listener_and_a_callback_are_one_too_many() -> None:
    listener = RebalanceListener(on_assigned=print)
    with Consumer("localhost:1", group="g") as consumer, pytest.raises(ConfigurationError, match="give one or the"):
        consumer.subscribe(["t"], listener=listener, on_revoked=print)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("store_offsets", 'it is mark(record) here, with commit="marks"'),
        ("commit_sync", "it is commit() here"),
        ("getmany", "it is poll(max_records, timeout) here"),
        ("consume", "it is poll(max_records, timeout) here"),
        ("seek_to_beginning", 'it is seek(topic, partition, "earliest") here'),
    ],
)
def test_a_method_of_other_clients_says_what_to_use(consumer: Consumer, name: str, advice: str) -> None:
    with pytest.raises(
        AttributeError, match=re.escape(f"'Consumer' object has no attribute '{name}': ") + ".*" + re.escape(advice)
    ):
        getattr(consumer, name)
    assert not hasattr(consumer, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        consumer.nonsense  # type: ignore[attr-defined]  # noqa: B018
