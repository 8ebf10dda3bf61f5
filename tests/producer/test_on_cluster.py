"""The producer on the embedded cluster, over real sockets: the logs after failures, and the public API."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme

import kwire
from kwire.broker import ApplyLate, Cluster, Cut, Delay, Disconnect, Fault, FirstSequence, Mute, Refuse
from kwire.broker.faults import Effect
from kwire.errors import (
    AuthenticationError,
    BufferFullError,
    ClosedError,
    ConfigurationError,
    DeliveryError,
    ErrorCode,
    NotKafkaError,
    RecordTooLargeError,
    RequestTimeoutError,
    TopicError,
)
from kwire.producer.accumulator import murmur2_partition
from kwire.producer.options import CompressionName
from kwire.protocol import ApiKey
from tests.producer.conftest import PARTITIONS

PATIENCE = 30


def stored(cluster: Cluster, topic: str = "t", partitions: int = PARTITIONS) -> dict[int, list[bytes | None]]:
    return {index: [record.value for record in cluster.log(topic, index).records()] for index in range(partitions)}


def check_all_stored_once_in_order(cluster: Cluster, count: int) -> None:
    logs = stored(cluster)
    numbers = {index: [int(value or b"") for value in values] for index, values in logs.items()}
    for index, values in numbers.items():
        assert values == sorted(values), f"partition {index} is out of order"
    assert sorted(value for values in numbers.values() for value in values) == list(range(count))


EFFECTS: list[Effect] = [
    Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    Refuse(ErrorCode.REQUEST_TIMED_OUT, applied=True),
    Refuse(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, applied=True),
    Refuse(ErrorCode.NOT_ENOUGH_REPLICAS),
    Refuse(ErrorCode.KAFKA_STORAGE_ERROR),
    Disconnect(),
    Disconnect(applied=True),
    Cut(keep_bytes=0),
    Cut(keep_bytes=3),
    Cut(keep_bytes=20),
    Delay(ms=30),
    Delay(ms=30, applied=True),
    Mute(),
    Mute(applied=True),
    ApplyLate(ms=20),
]


@pytest.mark.slow
@pytest.mark.parametrize("first_sequence", list(FirstSequence), ids=lambda value: value.name)
@pytest.mark.parametrize("effect", EFFECTS, ids=str)
def test_a_failure_neither_loses_nor_duplicates_nor_reorders(effect: Effect, first_sequence: FirstSequence) -> None:
    with Cluster(brokers=2, first_sequence=first_sequence) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        for after in (0, 2, 5):
            cluster.add_fault(effect, api=ApiKey.PRODUCE, after=after, times=1)
        with kwire.Producer(
            cluster.bootstrap, linger_ms=0, batch_bytes=500, retry_backoff_ms=10, request_timeout_ms=300
        ) as producer:
            responses = [producer.send("t", b"%d" % n, key=b"%d" % (n % 9)) for n in range(300)]
            producer.flush(PATIENCE)
        assert [response.exception(0) for response in responses] == [None] * 300
        check_all_stored_once_in_order(cluster, 300)
        assert cluster.failures == ()


def test_offsets_are_those_in_the_log(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        responses = {n: producer.send("t", b"%d" % n) for n in range(500)}
        for n, response in responses.items():
            metadata = response.result(PATIENCE)
            record = cluster.log("t", metadata.partition).records()[metadata.offset]
            assert (record.value, record.timestamp_ms) == (b"%d" % n, metadata.timestamp_ms)


def test_records_by_key_and_by_partition_are_in_order_although_the_topic_was_unknown(cluster: Cluster) -> None:
    """One partition gets both kinds of records; the first of them wait for the metadata of their topic."""
    keys = {murmur2_partition(b"%d" % number, PARTITIONS): b"%d" % number for number in range(100)}
    with kwire.Producer(cluster.bootstrap) as producer:
        for number in range(300):
            partition = number // 2 % PARTITIONS
            place: Any = {"key": keys[partition]} if number % 2 else {"partition": partition}
            producer.send("t", b"%d" % number, **place)
        producer.flush(PATIENCE)
    check_all_stored_once_in_order(cluster, 300)


def test_brokers_stop_and_come_back_and_leaders_move(cluster: Cluster) -> None:
    count = 0
    with kwire.Producer(cluster.bootstrap, linger_ms=1, batch_bytes=1_000, retry_backoff_ms=10) as producer:
        for _ in range(2):
            for node in (1, 2, 3):
                for step in (cluster.stop, cluster.restart):
                    for _ in range(200):
                        producer.send("t", b"%d" % count, key=b"%d" % (count % 9))
                        count += 1
                    step(node)
                cluster.move_leader("t", node % PARTITIONS, node)
        producer.flush(PATIENCE)
    check_all_stored_once_in_order(cluster, count)


def test_unkeyed_records_pass_by_a_broker_that_is_down(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, linger_ms=0, batch_bytes=100) as producer:
        producer.send("t", b"first").result(PATIENCE)
        cluster.stop(cluster.leader("t", 0))
        assert {producer.send("t", b"%d" % n).result(PATIENCE).partition for n in range(50)} >= {1, 2}


def test_many_threads_send_at_once(cluster: Cluster) -> None:
    def send(thread: int) -> None:
        for n in range(500):
            producer.send("t", b"%d" % n, key=b"%d" % thread)

    with kwire.Producer(cluster.bootstrap, max_buffered_bytes=20_000) as producer:
        threads = [threading.Thread(target=send, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(PATIENCE)
        assert producer.buffered_bytes == 0
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for index in range(PARTITIONS):
        for record in cluster.log("t", index).records():
            by_key.setdefault(record.key, []).append(record.value)
    assert by_key == {b"%d" % thread: [b"%d" % n for n in range(500)] for thread in range(8)}


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_everything_that_a_record_can_be(cluster: Cluster, compression: CompressionName) -> None:
    with kwire.Producer(cluster.bootstrap, compression=compression) as producer:
        producer.send("t", None, partition=0)
        producer.send("t", b"", key=b"", partition=0)
        producer.send("t", "text", key="κλειδί", headers={"a": b"1", "b": None}, partition=0, timestamp_ms=5)
        producer.send("t", bytearray(b"x" * 1_000_000), headers=[("a", "1"), ("a", "2")], partition=0)
        producer.flush(PATIENCE)
    records = cluster.log("t", 0).records()
    assert [(record.key, record.value, record.headers) for record in records] == [
        (None, None, ()),
        (b"", b"", ()),
        ("κλειδί".encode(), b"text", (("a", b"1"), ("b", None))),
        (None, b"x" * 1_000_000, (("a", b"1"), ("a", b"2"))),
    ]
    assert records[2].timestamp_ms == 5


# -- what goes wrong says so


def test_record_larger_than_the_producer_allows(cluster: Cluster) -> None:
    with (
        kwire.Producer(cluster.bootstrap, max_request_bytes=1_000) as producer,
        pytest.raises(RecordTooLargeError, match="max_request_bytes"),
    ):
        producer.send("t", b"x" * 1_000)


def test_record_larger_than_the_broker_allows(cluster: Cluster) -> None:
    cluster.create_topic("small", partitions=1, configs={"max.message.bytes": "1000"})
    with kwire.Producer(cluster.bootstrap) as producer:
        error = producer.send("small", b"x" * 5_000).exception(PATIENCE)
        assert isinstance(error, RecordTooLargeError)
        assert {"broker", "api", "version", "topic", "partition"} == set(error.where)
        assert producer.send("small", b"x").result(PATIENCE).offset == 0


def test_topic_that_is_not_there() -> None:
    with (
        Cluster(brokers=1, auto_create_topics=False) as cluster,
        kwire.Producer(cluster.bootstrap, unknown_topic_timeout_ms=300) as producer,
    ):
        error = producer.send("nowhere", b"x").exception(PATIENCE)
    assert isinstance(error, TopicError)
    assert "nowhere" in str(error)


def test_password_that_is_wrong() -> None:
    with Cluster(brokers=1, sasl={"user": "right"}) as cluster:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            wrong = kwire.Sasl(mechanism, "user", "wrong")
            with kwire.Producer(cluster.bootstrap, sasl=wrong) as producer:
                error = producer.send("t", b"x").exception(PATIENCE)
            assert isinstance(error, AuthenticationError)
            assert "wrong" not in str(error).replace("wrong password", "")
            with kwire.Producer(cluster.bootstrap, sasl=kwire.Sasl(mechanism, "user", "right")) as producer:
                assert producer.send("t", b"x").result(PATIENCE).offset >= 0


def test_port_that_is_closed_or_no_kafka() -> None:
    with Cluster(brokers=1) as cluster:
        closed = cluster.bootstrap
    with kwire.Producer(closed, delivery_timeout_ms=300) as producer:
        error = producer.send("t", b"x").exception(PATIENCE)
    assert isinstance(error, DeliveryError)
    assert not error.possibly_persisted
    assert "refused" in str(error)


def test_listener_that_wants_tls(tmp_path: Path) -> None:
    chain = trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    chain.write_to_path(tmp_path / "chain.pem")
    with Cluster(brokers=1, tls=kwire.Tls(cert_file=str(tmp_path / "chain.pem"))) as cluster:
        with kwire.Producer(cluster.bootstrap, delivery_timeout_ms=5_000) as producer:
            error = producer.send("t", b"x").exception(PATIENCE)
        assert isinstance(error, NotKafkaError | DeliveryError)
        assert "TLS" in str(error)


# -- memory, ends, other processes


def test_full_memory_raises_or_waits(cluster: Cluster) -> None:
    fault: Fault = cluster.add_fault(Delay(ms=200), api=ApiKey.PRODUCE, times=None)
    with kwire.Producer(cluster.bootstrap, max_buffered_bytes=1_000, when_full="raise") as producer:
        producer.send("t", b"x" * 900)
        with pytest.raises(BufferFullError):
            producer.send("t", b"x" * 900)
    with kwire.Producer(cluster.bootstrap, max_buffered_bytes=1_000) as producer:
        first = producer.send("t", b"x" * 900)
        producer.send("t", b"x" * 900)
        assert first.done(), "the second send waited for the first to be delivered"
    assert fault.hits >= 3


def test_callbacks_run_off_the_loop_and_may_be_slow(cluster: Cluster) -> None:
    release = threading.Event()
    threads: list[str] = []

    def slow(response: kwire.ProduceResponse) -> None:
        threads.append(threading.current_thread().name)
        release.wait(PATIENCE)

    with kwire.Producer(cluster.bootstrap, client_id="me") as producer:
        producer.send("t", b"x", on_delivery=slow).result(PATIENCE)
        assert producer.send("t", b"y").result(PATIENCE).offset >= 0, "the loop goes on while a callback sits"
        release.set()
    assert threads == ["me producer callbacks"]


def test_a_callback_may_send(cluster: Cluster) -> None:
    done = threading.Event()
    with kwire.Producer(cluster.bootstrap) as producer:
        producer.send("t", b"1", on_delivery=lambda _: producer.send("t", b"2", on_delivery=lambda _: done.set()))
        assert done.wait(PATIENCE)


def test_await(cluster: Cluster) -> None:
    async def main() -> list[int]:
        with kwire.Producer(cluster.bootstrap) as producer:
            results = await asyncio.gather(*(producer.send("t", b"x", partition=1) for _ in range(5)))
        return [result.offset for result in results]

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_close_delivers_fails_the_rest_and_may_be_repeated(cluster: Cluster) -> None:
    producer = kwire.Producer(cluster.bootstrap, linger_ms=60_000)
    sent = producer.send("t", b"x")
    producer.close()
    producer.close()
    assert sent.result(0).offset == 0
    with pytest.raises(ClosedError):
        producer.send("t", b"y")

    cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)
    producer = kwire.Producer(cluster.bootstrap)
    lost = producer.send("t", b"x")
    with pytest.raises(RequestTimeoutError):
        producer.flush(0.2)
    producer.close(timeout=0.2)
    error = lost.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted
    kwire.Producer("nobody:1").close()


def test_send_raises_in_a_forked_child(cluster: Cluster) -> None:
    def child(results: Any) -> None:
        try:
            producer.send("t", b"x")
        except ClosedError as error:
            results.put(str(error))
        producer.close()

    with kwire.Producer(cluster.bootstrap) as producer:
        producer.send("t", b"x").result(PATIENCE)
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        process = context.Process(target=child, args=(results,))
        process.start()
        assert "another process" in results.get(timeout=PATIENCE)
        process.join(PATIENCE)
        assert process.exitcode == 0
        assert producer.send("t", b"y").result(PATIENCE).offset >= 0, "the parent's goes on"


def test_records_are_delivered_when_the_interpreter_ends_without_close(cluster: Cluster) -> None:
    source = (
        f"import kwire; p = kwire.Producer({cluster.bootstrap!r}); print(p.send('t', b'x', partition=2).result(30))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "offset=0" in done.stdout
    assert done.stderr == ""


EXITS = """
import kwire, kwire.producer.client
kwire.producer.client.EXIT_SECONDS = {seconds}
producer = kwire.Producer({bootstrap!r}, linger_ms={linger_ms}{more})
{begin}
for n in range(100):
    producer.send("t", b"%d" % n, partition=2)
"""


def run_out(cluster: Cluster, seconds: float, linger_ms: int = 0, more: str = "", begin: str = "") -> str:
    """Send without waiting or closing, and let the interpreter end; return what it logs."""
    source = EXITS.format(
        seconds=seconds, bootstrap=cluster.bootstrap, linger_ms=linger_ms, more=f", {more}" if more else "", begin=begin
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == ""
    return done.stderr


def test_lingering_records_are_delivered_when_the_interpreter_ends(cluster: Cluster) -> None:
    assert run_out(cluster, seconds=PATIENCE, linger_ms=60_000) == ""
    assert stored(cluster)[2] == [b"%d" % n for n in range(100)]


def test_undelivered_records_are_logged_when_the_interpreter_ends(cluster: Cluster) -> None:
    cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)
    log = run_out(cluster, seconds=2)  # enough for the loop, also on a busy host
    assert "nobody closed the producer, and the interpreter ends before all is delivered: " in log
    assert "100 of topic t" in log


def test_a_transaction_that_the_interpreters_end_cuts_short_is_not_visible(cluster: Cluster) -> None:
    log = run_out(cluster, seconds=PATIENCE, more="transactional_id='x'", begin="producer.begin()")
    assert "inside a transaction that was not committed: the transaction is aborted" in log
    assert len(log.splitlines()) == 1, "and nothing else went wrong"
    assert cluster.log("t", 2).last_stable_offset == 0


def test_close_without_time_fails_the_remaining_records_and_returns(cluster: Cluster) -> None:
    cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)
    producer = kwire.Producer(cluster.bootstrap, linger_ms=60_000)
    response = producer.send("t", b"v")
    producer.close(timeout=0)
    error = response.exception(0)
    assert isinstance(error, DeliveryError)
    assert "the producer was closed before it was delivered" in error.message


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 2},
        {"acks": 1, "idempotence": True},
        {"ordered": False, "idempotence": True},
        {"compression": "brotli"},
        {"partitioner": "random"},
        {"when_full": "drop"},
        {"batch_bytes": 0},
        {"linger_ms": -1},
        {"lingerms": 5},
    ],
)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        kwire.Producer("host", **options)


@pytest.mark.parametrize(
    "arguments",
    [
        {"value": 5},
        {"value": b"", "key": 5},
        {"value": b"", "headers": {"a": 5}},
        {"value": b"", "headers": [(b"a", b"")]},
        {"value": b"", "partition": -1},
        {"value": b"", "timestamp_ms": -1},
        {"topic": ""},
        {"topic": 5},
    ],
)
def test_wrong_arguments(cluster: Cluster, arguments: dict[str, Any]) -> None:
    with kwire.Producer(cluster.bootstrap) as producer, pytest.raises((TypeError, ValueError)):
        producer.send(**{"topic": "t", **arguments})
