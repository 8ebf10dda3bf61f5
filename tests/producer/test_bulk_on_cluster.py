"""`send_many`, `send_lines` and `send_arrow` on the embedded cluster: one response with the result of each record."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

import kwire
from kwire.broker import Cluster, Delay, Mute
from kwire.errors import (
    AbortableError,
    BufferFullError,
    ClosedError,
    DeliveryError,
    EncodeError,
    RecordTooLargeError,
    RequestTimeoutError,
    TransactionError,
)
from kwire.producer import BulkResponse, RecordMetadata
from kwire.producer.partitioner import murmur2_partition
from kwire.protocol import ApiKey
from tests.producer.conftest import PARTITIONS

pa = pytest.importorskip("pyarrow")

PATIENCE = 30


def logged(cluster: Cluster, partition: int) -> list[Any]:
    return cluster.log("t", partition).records()


def at(cluster: Cluster, places: Any) -> list[Any]:
    """Return the records at the offsets that the result has."""
    logs = {partition: logged(cluster, partition) for partition in range(PARTITIONS)}
    return [logs[place.partition][place.offset] for place in places]


@pytest.mark.parametrize("bound", [33_554_432, 5_000])
@pytest.mark.parametrize("is_known", [False, True])
def test_each_record_is_where_the_response_says(cluster: Cluster, bound: int, is_known: bool) -> None:
    values = [b"%d" % number for number in range(3_000)]
    keys = [None if number % 3 == 0 else b"k%d" % (number % 20) for number in range(3_000)]
    with kwire.Producer(cluster.bootstrap, max_buffered_bytes=bound, batch_bytes=2_000) as producer:
        if is_known:
            producer.send("t", b"first", partition=3).result(PATIENCE)
        response = producer.send_many("t", values, keys=keys)
        assert len(response) == 3_000
        result = response.result(PATIENCE)
        assert response.done()
        assert producer.buffered_bytes == 0
    found = at(cluster, result)
    assert [(record.value, record.key) for record in found] == list(zip(values, keys, strict=True))
    assert (response.errors, response.exception(0), len(result)) == ([], None, 3_000)
    assert result[-1] == result[2_999] == result[2_990:][9]
    for place, key in zip(result, keys, strict=True):
        assert key is None or place.partition == murmur2_partition(key, PARTITIONS)
    by_key: dict[bytes, list[int]] = {}
    for place, key in zip(result, keys, strict=True):
        if key is not None:
            by_key.setdefault(key, []).append(place.offset)
    assert all(offsets == sorted(offsets) for offsets in by_key.values())


def test_all_that_a_record_can_have(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        result = producer.send_many(
            "t", ["text", None, bytearray(b"x")], keys=["k", memoryview(b"m"), None],
            headers=[{"a": "1"}, None, [("b", None)]], timestamps_ms=[5, None, 7], partitions=[2, 2, 2],
        ).result(PATIENCE)  # fmt: skip
        alike = producer.send_many(
            "t", (b"%d" % n for n in range(3)), headers={"h": b"x"}, timestamps_ms=9, partitions=1
        ).result(PATIENCE)
        assert list(producer.send_many("t", []).result(0)) == []
    assert list(result.partitions) == [2, 2, 2]
    assert list(result.offsets) == [0, 1, 2]
    assert (result.timestamps_ms[0], result.timestamps_ms[2]) == (5, 7)
    assert result.timestamps_ms[1] > 1_600_000_000_000
    assert [(one.key, one.value, one.headers) for one in at(cluster, result)] == [
        (b"k", b"text", (("a", b"1"),)), (b"m", None, ()), (None, b"x", (("b", None),)),
    ]  # fmt: skip
    assert list(alike) == [RecordMetadata("t", 1, offset, 9) for offset in range(3)]
    assert [one.headers for one in logged(cluster, 1)] == [(("h", b"x"),)] * 3


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"values": b"abc"}, TypeError, "values is bytes"),
    ({"values": "abc"}, TypeError, "values is str"),
    ({"values": [b"a", 5]}, TypeError, "item 1 of values is int"),
    ({"keys": [b"a"]}, ValueError, "keys has 1 items for 2 values"),
    ({"keys": [b"a", 0.5]}, TypeError, "item 1 of keys"),
    ({"headers": [("a", b"1"), ("b", b"2")]}, TypeError, "headers are the pairs of one record"),
    ({"headers": [None]}, ValueError, "headers has 1"),
    ({"headers": [None, [(5, b"")]]}, TypeError, "name"),
    ({"timestamps_ms": -1}, ValueError, "timestamps_ms is -1"),
    ({"timestamps_ms": [1, -1]}, ValueError, "item 1 of timestamps_ms is -1"),
    ({"timestamps_ms": [1, 0.5]}, TypeError, "item 1 of timestamps_ms is float"),
    ({"timestamps_ms": [1]}, ValueError, "timestamps_ms has 1"),
    ({"partitions": 1 << 31}, ValueError, "partitions is"),
    ({"partitions": True}, ValueError, "partitions is True"),
    ({"partitions": [0, 1 << 31]}, ValueError, "item 1 of partitions"),
    ({"partitions": [None, -5]}, ValueError, "item 1 of partitions"),
    ({"topic": ""}, TypeError, "topic is ''"),
]


@pytest.mark.parametrize(("arguments", "kind", "message"), BAD, ids=[case[2] for case in BAD])
def test_columns_that_records_cannot_have_are_refused(
    cluster: Cluster, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with kwire.Producer(cluster.bootstrap) as producer, pytest.raises(kind, match=message):
        producer.send_many(**({"topic": "t", "values": [b"a", b"b"]} | arguments))
    assert sum(len(logged(cluster, partition)) for partition in range(PARTITIONS)) == 0


def test_records_that_are_too_large_fail_alone(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, max_request_bytes=1_000) as producer:
        response = producer.send_many("t", [b"a", bytes(2_000), b"b", bytes(3_000)], partitions=0)
        with pytest.raises(RecordTooLargeError, match="record 1 of the call has 2036 bytes") as raised:
            response.result(PATIENCE)
        assert raised.value.__notes__ == ["2 of 4 records failed, record 1 as the first"]
        again = response.exception(0)
        assert again is not raised.value
        assert str(again) == str(raised.value)
        assert not hasattr(again, "__notes__")
        with pytest.raises(RecordTooLargeError):
            response.result(0)
        assert len(raised.value.__notes__) == 1
        result = response.settled(0)
    assert [(index, type(error)) for index, error in response.errors] == [
        (1, RecordTooLargeError), (3, RecordTooLargeError),
    ]  # fmt: skip
    assert (list(result.offsets), list(result.partitions)) == ([0, -1, 1, -1], [0, -1, 0, -1])
    assert (list(result.timestamps_ms)[1], result.failures) == (-1, 2)


def test_a_partition_that_is_not_there_fails_and_the_others_go(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, delivery_timeout_ms=500) as producer:
        response = producer.send_many("t", [b"a", b"b", b"c"], partitions=[0, 99, 0])
        with pytest.raises(DeliveryError):
            response.result(PATIENCE)
    assert [index for index, _ in response.errors] == [1]
    result = response.settled(0)
    assert (list(result.partitions), list(result.offsets)) == ([0, 99, 0], [0, -1, 1])
    logs = [[record.value for record in logged(cluster, partition)] for partition in range(PARTITIONS)]
    assert logs == [[b"a", b"c"], *([] for _ in range(1, PARTITIONS))], [
        cluster.log("t", one) for one in range(PARTITIONS)
    ]


def test_a_buffer_that_stays_full(cluster: Cluster) -> None:
    cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)
    options: dict[str, Any] = {"max_buffered_bytes": 1_000, "max_block_ms": 50, "delivery_timeout_ms": 500}
    options["request_timeout_ms"] = 300
    with kwire.Producer(cluster.bootstrap, **options) as producer:
        response = producer.send_many("t", [bytes(400)] * 5, partitions=0)
        assert [(index, type(error)) for index, error in response.errors] == [
            (index, BufferFullError) for index in range(2, 5)
        ]
        with pytest.raises(BufferFullError):
            producer.send_many("t", [bytes(400)])
        with pytest.raises(RequestTimeoutError, match="not all 5 records"):
            response.result(0)
        assert not response.done()
        assert isinstance(response.exception(PATIENCE), DeliveryError)
        assert len(response.errors) == 5


def test_a_full_buffer_that_raises(cluster: Cluster) -> None:
    cluster.add_fault(Delay(ms=100), api=ApiKey.PRODUCE, times=None)
    with kwire.Producer(cluster.bootstrap, max_buffered_bytes=1_000, when_full="raise") as producer:
        response = producer.send_many("t", [bytes(400)] * 3)
        assert isinstance(response.exception(PATIENCE), BufferFullError)
        assert [index for index, _ in response.errors] == [2]


def test_close_while_send_many_waits_for_memory(cluster: Cluster) -> None:
    cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)
    producer = kwire.Producer(cluster.bootstrap, max_buffered_bytes=1_000)
    responses: list[BulkResponse] = []
    thread = threading.Thread(target=lambda: responses.append(producer.send_many("t", [bytes(400)] * 5, partitions=0)))
    thread.start()
    while producer.buffered_bytes == 0:
        pass
    producer.close(timeout=0.1)
    thread.join(PATIENCE)
    (response,) = responses
    assert [type(error) for _, error in response.errors] == [DeliveryError] * 2 + [ClosedError] * 3
    with pytest.raises(ClosedError):
        producer.send_many("t", [b"late"])


def test_callbacks_come_once_and_in_the_order_given(cluster: Cluster) -> None:
    cluster.add_fault(Delay(ms=20), api=ApiKey.PRODUCE, times=None)
    calls: list[tuple[int, BulkResponse, str]] = []
    done = threading.Event()
    with kwire.Producer(cluster.bootstrap, batch_bytes=300) as producer:
        response = producer.send_many("t", [bytes(100)] * 50, keys=[b"%d" % number for number in range(50)])

        def note(number: int, one: BulkResponse) -> None:
            calls.append((number, one, threading.current_thread().name))

        for number in range(3):
            response.add_done_callback(partial(note, number))
        response.result(PATIENCE)
        response.add_done_callback(lambda one: done.set())
        assert done.wait(PATIENCE)
    assert [(number, one) for number, one, _ in calls] == [(number, response) for number in range(3)]
    assert threading.current_thread().name not in {name for *_, name in calls}


def test_threads_at_once(cluster: Cluster) -> None:
    results: dict[int, Any] = {}
    with kwire.Producer(cluster.bootstrap, max_buffered_bytes=20_000, batch_bytes=2_000) as producer:

        def send(name: int) -> None:
            values = [b"%d %d" % (name, number) for number in range(1_000)]
            results[name] = values, producer.send_many("t", values, partitions=0).result(PATIENCE)

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for values, result in results.values():
        assert [record.value for record in at(cluster, result)] == values
        assert list(result.offsets) == sorted(result.offsets)


def test_transactions(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, transactional_id="tx", linger_ms=60_000) as producer:
        with producer.transaction():
            kept = producer.send_many("t", [b"a", b"b"], partitions=0)
        assert list(kept.result(0).offsets) == [0, 1]
        outside = producer.send_many("t", [b"c"])
        assert isinstance(outside.exception(PATIENCE), TransactionError)
        producer.begin()
        thrown = producer.send_many("t", [b"d"] * 3)
        producer.abort()
        assert isinstance(thrown.exception(PATIENCE), AbortableError)


def test_an_own_partitioner_is_called_for_each_record_without_a_partition(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, partitioner=lambda message, topic: int(message.value or 0)) as producer:
        result = producer.send_many("t", [b"1", b"3", b"0"], partitions=[None, None, 2]).result(PATIENCE)
        with pytest.raises(ValueError, match="the partitioner returned"):
            producer.send_many("t", [b"0", b"7"])
    assert list(result.partitions) == [1, 3, 2]


# -- Arrow


HEADERS = [[{"key": "h", "value": b"x"}, {"key": "none", "value": None}], None, []]
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_lines(cluster: Cluster) -> None:
    data = bytearray(b"".join(b"line %d\n" % number for number in range(50_000)) + b"\nlast")
    with kwire.Producer(cluster.bootstrap) as producer:
        response = producer.send_lines("t", data)
        data[:] = bytes(len(data))  # the caller's memory is its own again
        result = response.result(PATIENCE)
        assert len(producer.send_lines("t", b"")) == 0
        parts = producer.send_lines("t", b"a--b-c", b"--").result(PATIENCE)
    expected = [b"line %d" % number for number in range(50_000)] + [b"", b"last"]
    assert [record.value for record in at(cluster, result)] == expected
    assert [record.value for record in at(cluster, parts)] == [b"a", b"b-c"]
    assert {record.key for record in at(cluster, parts)} == {None}


def test_a_line_that_is_too_large_fails_alone(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, max_request_bytes=1000) as producer:
        response = producer.send_lines("t", b"a\n" + b"b" * 2000 + b"\nc")
        found = response.settled(PATIENCE)
    assert [(number, type(error)) for number, error in found.errors] == [(1, RecordTooLargeError)]
    assert found.offsets[0] >= 0
    assert found.offsets[2] >= 0


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("t", "text"), TypeError, r"data is 'text' \(str\): give bytes"),
        (("t", [b"a"]), TypeError, r"\(list\): give bytes"),
        (("t", b"a", "\n"), TypeError, r"delimiter is .* \(str\): give bytes"),
        (("t", b"a", b""), ValueError, "delimiter is empty"),
        ((5, b"a"), TypeError, "topic is 5: it must be a str"),
    ],
)
def test_what_has_no_lines(cluster: Cluster, arguments: Any, kind: type[Exception], message: str) -> None:
    with kwire.Producer(cluster.bootstrap) as producer, pytest.raises(kind, match=message):
        producer.send_lines(*arguments)


KINDS = [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_table(cluster: Cluster, kind: Any) -> None:
    texts = ["a", None, "", "some longer text"]
    if not pa.types.is_dictionary(kind):
        cells = pa.array(texts, pa.string()).cast(kind)
    else:
        cells = pa.array(texts).dictionary_encode()
    table = pa.table({"value": pa.chunked_array([cells, cells]), "partition": [0] * 8, "timestamp": [7, None] * 4})
    table = table.append_column("key", pa.chunked_array([cells[1:], cells, cells[:1]])).slice(1, 6)
    with kwire.Producer(cluster.bootstrap) as producer:
        result = producer.send_arrow("t", table).result(PATIENCE)
    expected = [None if text is None else text.encode() for text in texts]
    assert [record.value for record in at(cluster, result)] == (expected * 2)[1:7]
    assert [record.key for record in logged(cluster, 0)] == [*expected[1:], *expected, *expected[:1]][1:7]
    assert list(result.timestamps_ms)[1::2] == [7, 7, 7]


def test_a_record_batch_with_headers_times_and_nulls(cluster: Cluster) -> None:
    batch = pa.record_batch(
        {
            "value": pa.array([b"ab", b"cd", b"ef"], pa.binary(2)),
            "key": pa.nulls(3),
            "headers": pa.array(HEADERS, HEADERS_TYPE),
            "partition": pa.array([1, None, 1], pa.int64()),
            "timestamp": pa.array([1_000_999, 2_000_000, None], pa.timestamp("us", "UTC")),
        }
    )
    with kwire.Producer(cluster.bootstrap) as producer:
        result = producer.send_arrow("t", batch).result(PATIENCE)
        assert len(producer.send_arrow("t", batch.slice(0, 0))) == 0
    found = at(cluster, result)
    assert [one.value for one in found] == [b"ab", b"cd", b"ef"]
    assert [one.key for one in found] == [None] * 3
    assert [one.headers for one in found] == [(("h", b"x"), ("none", None)), (), ()]
    assert list(result.timestamps_ms)[:2] == [1_000, 2_000]
    assert (result.partitions[0], result.partitions[2]) == (1, 1)


BAD_TABLES: list[tuple[Any, type[Exception], str]] = [
    (5, TypeError, "int is no Arrow table"),
    (pa.table({"key": [b"a"]}), EncodeError, "no column 'value'"),
    (pa.table({"value": [b"a"], "offset": [1]}), EncodeError, "'offset' is none of a record.*value, key, headers"),
    (pa.table({"value": [1]}), EncodeError, "'value' is int64.*binary, string"),
    (pa.table({"value": [b"a"], "key": [0.5]}), EncodeError, "'key' is double"),
    (pa.table({"value": [b"a"], "headers": [["x"]]}), EncodeError, "'headers' is list.*struct<key"),
    (pa.table({"value": [b"a"], "partition": ["0"]}), EncodeError, "'partition' is string"),
    (pa.table({"value": [b"a"], "partition": [-2]}), EncodeError, "'partition' has -2"),
    (pa.table({"value": [b"a"], "partition": [1 << 31]}), EncodeError, "'partition'"),
    (pa.table({"value": [b"a"], "timestamp": [-1]}), EncodeError, "'timestamp' has -1"),
    (pa.table([[b"a"], [b"b"]], ["value", "value"]), EncodeError, "more than once"),
    (
        pa.table({"value": [b"a"], "headers": pa.array([[{"key": None, "value": b""}]], HEADERS_TYPE)}),
        EncodeError, "without a key in row 0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("table", "kind", "message"), BAD_TABLES, ids=[case[2] for case in BAD_TABLES])
def test_a_table_that_is_none(cluster: Cluster, table: Any, kind: type[Exception], message: str) -> None:
    with kwire.Producer(cluster.bootstrap) as producer, pytest.raises(kind, match=message):
        producer.send_arrow("t", table)


def test_broken_offsets_are_found_before_anything_is_sent(cluster: Cluster) -> None:
    ends = pa.py_buffer(b"".join(end.to_bytes(4, "little") for end in (0, 900, 2)))
    broken = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(b"ab")])
    with kwire.Producer(cluster.bootstrap) as producer, pytest.raises(EncodeError, match="'value' is broken"):
        producer.send_arrow("t", pa.table({"value": broken}))


def test_without_pyarrow(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.producer.client.find_spec", lambda name: None)
    with (
        kwire.Producer(cluster.bootstrap) as producer,
        pytest.raises(kwire.errors.ConfigurationError, match=r"kwire\[arrow\]"),
    ):
        producer.send_arrow("t", None)
