"""`Consumer.process` on the embedded cluster: order, retries, dead letters, gaps, rebalances, the end."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import kwire
from kwire.broker import Cluster
from kwire.cluster import Backoff
from kwire.consumer import Consumer, ConsumerRecord
from kwire.consumer.dead_letters import to_topic
from kwire.consumer.processor import Processor
from kwire.errors import ConfigurationError, ProcessingError
from kwire.protocol import ApiKey
from tests.waiting import PATIENCE_SECONDS, wait_until

FAST = Backoff(1, 1)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"orders": 4, "dead": 1}) as running:
        yield running


def fill(cluster: Cluster, count: int, *, keys: int = 10, partition: int | None = None) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        for number in range(count):
            producer.send("orders", str(number), key=f"key {number % keys}", partition=partition)


def consumer_of(cluster: Cluster, group: str = "g", **options: Any) -> Consumer:
    consumer = Consumer(cluster.bootstrap, group=group, commit="marks", **options)
    consumer.subscribe(["orders"])
    return consumer


def committed(cluster: Cluster, group: str = "g") -> dict[int, int]:
    with kwire.Admin(cluster.bootstrap) as admin:
        return {partition: one.offset for (_, partition), one in admin.groups.offsets(group).items()}


class Recorder:
    """A function that notes what it got, and stops the processor after `count` records."""

    def __init__(self, count: int, action: Callable[[ConsumerRecord], object] = lambda record: None) -> None:
        self.records: list[ConsumerRecord] = []
        self.processor: Any = None
        self._count = count
        self._action = action
        self._lock = threading.Lock()

    def __call__(self, record: ConsumerRecord) -> None:
        self._action(record)
        with self._lock:
            self.records.append(record)
            if len(self.records) == self._count:
                self.processor.stop()

    def run(self, consumer: Consumer, **options: Any) -> Processor:
        self.processor = consumer.process(self, **options)
        self.processor.run()
        return self.processor  # type: ignore[no-any-return]

    def by(self, name: Callable[[ConsumerRecord], object]) -> dict[object, list[int]]:
        found: dict[object, list[int]] = defaultdict(list)
        for record in self.records:
            found[name(record)].append(record.offset)
        return found


def test_records_of_a_key_are_processed_in_order_and_everything_is_committed(cluster: Cluster) -> None:
    fill(cluster, 500)
    recorder = Recorder(500)
    processor = recorder.run(consumer_of(cluster), concurrency=8)
    assert len({(one.partition, one.offset) for one in recorder.records}) == 500
    for offsets in recorder.by(lambda record: (record.partition, record.key)).values():
        assert offsets == sorted(offsets)
    assert sum(committed(cluster).values()) == 500
    metrics = processor.metrics()
    assert (metrics.processed, metrics.waiting, metrics.running) == (500, 0, 0)


def test_calls_run_at_the_same_time(cluster: Cluster) -> None:
    fill(cluster, 4, keys=4)
    together = threading.Barrier(4)  # the calls wait for each other
    recorder = Recorder(4, lambda record: together.wait(PATIENCE_SECONDS))
    recorder.run(consumer_of(cluster), order="none", concurrency=4)
    assert not together.broken


def test_a_record_that_fails_is_tried_again_before_the_next_of_its_key(cluster: Cluster) -> None:
    fill(cluster, 60, keys=3, partition=0)
    failures: dict[int, int] = defaultdict(int)

    def fail_twice(record: ConsumerRecord) -> None:
        if record.offset % 10 == 0 and failures[record.offset] < 2:
            failures[record.offset] += 1
            raise ValueError("not yet")

    recorder = Recorder(60, fail_twice)
    processor = recorder.run(consumer_of(cluster), retries=2, backoff=FAST)
    for offsets in recorder.by(lambda record: record.key).values():
        assert offsets == sorted(offsets)
    assert processor.metrics().failed == 12
    assert committed(cluster)[0] == 60


def test_what_cannot_be_processed_goes_to_dead_letters(cluster: Cluster) -> None:
    fill(cluster, 10, partition=0)

    def refuse(record: ConsumerRecord) -> None:
        if record.offset == 3:
            raise ValueError("cannot be read")

    processor = consumer_of(cluster).process(refuse, retries=1, backoff=FAST, dead_letters=to_topic("dead"))
    thread = threading.Thread(target=processor.run)
    thread.start()
    wait_until(lambda: processor.metrics().processed == 10)
    processor.stop()
    thread.join(PATIENCE_SECONDS)
    assert committed(cluster)[0] == 10
    assert processor.metrics().dead == 1
    with Consumer(cluster.bootstrap) as reader:
        reader.assign([("dead", 0, "earliest")])
        (dead,) = reader.poll(timeout=PATIENCE_SECONDS)
    assert (dead.key, dead.value) == (b"key 3", b"3")
    headers = dict(dead.headers)
    assert headers["__dlq.errors.offset"] == b"3"
    assert headers["__dlq.errors.message"] == b"ValueError: cannot be read"


def test_without_dead_letters_the_error_ends_the_processor(cluster: Cluster) -> None:
    fill(cluster, 10, keys=1, partition=0)

    def refuse(record: ConsumerRecord) -> None:
        if record.offset == 3:
            raise ValueError("cannot be read")

    with pytest.raises(ProcessingError, match="cannot be read") as caught:
        Recorder(10, refuse).run(consumer_of(cluster), retries=0)
    assert isinstance(caught.value.__cause__, ValueError)
    assert [record.offset for record in caught.value.records] == [3]
    assert committed(cluster)[0] == 3, "what came before it is committed, and it is not"


def test_an_error_waits_for_the_other_calls(cluster: Cluster) -> None:
    fill(cluster, 2, keys=2, partition=0)
    started, release = threading.Event(), threading.Event()

    def work(record: ConsumerRecord) -> None:
        if record.offset == 0:
            started.set()
            assert release.wait(PATIENCE_SECONDS)
        else:
            started.wait(PATIENCE_SECONDS)
            raise ValueError("cannot be read")

    processor = consumer_of(cluster).process(work, concurrency=2, retries=0)

    def release_when_awaited() -> None:
        wait_until(lambda: processor._queue.on_ended is not None or release.is_set())
        release.set()

    thread = threading.Thread(target=release_when_awaited)
    thread.start()
    with pytest.raises(ProcessingError, match="cannot be read"):
        processor.run()
    release.set()
    thread.join()
    assert committed(cluster).get(0) == 1


@pytest.mark.parametrize("what", ["retry_if", "dead_letters"])
def test_a_failure_that_cannot_be_handled_ends_the_processor(cluster: Cluster, what: str) -> None:
    fill(cluster, 1, partition=0)

    def refuse(record: ConsumerRecord) -> None:
        raise ValueError("cannot be read")

    def broken(*args: object) -> Any:
        raise KeyError("broken")

    with pytest.raises(ProcessingError, match="KeyError: 'broken'"):
        Recorder(9, refuse).run(consumer_of(cluster), retries=0, **{what: broken})
    assert committed(cluster).get(0, 0) == 0


def test_dead_letters_of_tasks_are_awaited(cluster: Cluster) -> None:
    fill(cluster, 2, keys=2, partition=0)

    async def refuse(record: ConsumerRecord) -> None:
        if record.offset == 1:
            processor.stop()
        raise ValueError("cannot be read")

    def put_aside(record: ConsumerRecord, error: BaseException) -> Future[None]:
        future: Future[None] = Future()
        future.set_exception(OSError("not stored"))
        return future

    processor: Any = consumer_of(cluster).process(refuse, concurrency=1, retries=0, dead_letters=put_aside)
    with pytest.raises(ProcessingError, match="not stored"):
        processor.run()
    assert committed(cluster).get(0, 0) == 0


def test_retry_if_decides_what_is_tried_again(cluster: Cluster) -> None:
    fill(cluster, 1, partition=0)
    attempts: list[int] = []

    def refuse(record: ConsumerRecord) -> None:
        attempts.append(record.offset)
        raise KeyError("never")

    with pytest.raises(ProcessingError):
        Recorder(1, refuse).run(consumer_of(cluster), retries=5, retry_if=lambda error: not isinstance(error, KeyError))
    assert attempts == [0]


def process_all_but_5(cluster: Cluster) -> None:
    """Process offsets 0 to 19 of partition 0, except 5, and leave the group."""
    fill(cluster, 20, keys=20, partition=0)
    release = threading.Event()
    started = threading.Event()
    seen: list[int] = []

    def stick(record: ConsumerRecord) -> None:
        if record.offset == 5 and not release.is_set():
            started.set()
            release.wait(PATIENCE_SECONDS)
        seen.append(record.offset)

    processor = consumer_of(cluster).process(stick, concurrency=4)
    thread = threading.Thread(target=processor.run)
    thread.start()
    assert started.wait(PATIENCE_SECONDS)
    wait_until(lambda: len(seen) == 19)
    processor.stop(drain=0)
    thread.join(PATIENCE_SECONDS)
    assert committed(cluster)[0] == 5
    release.set()


@pytest.mark.parametrize("is_assigned_before", [False, True])
def test_what_is_complete_above_a_gap_does_not_run_again(cluster: Cluster, is_assigned_before: bool) -> None:
    process_all_but_5(cluster)
    recorder, consumer = Recorder(1), consumer_of(cluster)
    if is_assigned_before:
        wait_until(lambda: len(consumer.assignment()) == 4)
    recorder.run(consumer)
    assert [record.offset for record in recorder.records] == [5]
    assert committed(cluster)[0] == 20


def test_gaps_are_remembered_by_a_consumer_that_assigns(cluster: Cluster) -> None:
    process_all_but_5(cluster)
    recorder, consumer = Recorder(1), Consumer(cluster.bootstrap, group="g", commit="marks")
    consumer.assign([("orders", 0, 5)])
    recorder.run(consumer)
    assert [record.offset for record in recorder.records] == [5]


def test_all_records_run_again_after_a_seek(cluster: Cluster) -> None:
    process_all_but_5(cluster)
    recorder, consumer = Recorder(13), consumer_of(cluster)
    wait_until(lambda: len(consumer.assignment()) == 4)
    consumer.seek("orders", 0, 7)
    recorder.run(consumer, order="partition")
    assert [record.offset for record in recorder.records] == list(range(7, 20))


@pytest.mark.slow
def test_commits_while_workers_complete_records(cluster: Cluster) -> None:
    """Commits read on the loop thread what workers change."""
    fill(cluster, 40_000, keys=40_000, partition=0)
    passed = [threading.Event() for _ in range(40)]

    def hold(record: ConsumerRecord) -> None:
        thousand, rest = divmod(record.offset, 1_000)
        if rest == 900:
            passed[thousand].set()
        elif rest == 3:  # so that many records are complete above the offset to commit
            assert passed[thousand].wait(PATIENCE_SECONDS)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        recorder = Recorder(40_000, hold)
        recorder.run(consumer_of(cluster, commit_interval_ms=1), concurrency=4)
    finally:
        sys.setswitchinterval(interval)
    assert committed(cluster)[0] == 40_000


def test_gaps_can_be_left_out_of_commits(cluster: Cluster) -> None:
    fill(cluster, 5, keys=5, partition=0)

    def refuse(record: ConsumerRecord) -> None:
        if record.offset == 2:
            raise ValueError

    with pytest.raises(ProcessingError):
        Recorder(9, refuse).run(consumer_of(cluster), retries=0, remember_gaps=False)
    recorder = Recorder(3)
    recorder.run(consumer_of(cluster), order="partition")
    assert [record.offset for record in recorder.records] == [2, 3, 4]


def test_a_second_member_takes_over_without_loss_or_repetition(cluster: Cluster) -> None:
    fill(cluster, 2_000, keys=50)
    lock, seen = threading.Lock(), defaultdict[tuple[int, int], int](int)
    total = threading.Event()

    def work(record: ConsumerRecord) -> None:
        with lock:
            seen[record.partition, record.offset] += 1
            if len(seen) == 2_000:
                total.set()

    running: list[tuple[Processor, threading.Thread]] = []
    for _ in range(2):
        processor = consumer_of(cluster).process(work, concurrency=4, max_ahead=100)
        running.append((processor, threading.Thread(target=processor.run)))
        running[-1][1].start()
        wait_until(lambda: len(seen) > 100)
    assert total.wait(PATIENCE_SECONDS)
    for one, thread in running:
        one.stop()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert set(seen.values()) == {1}, "every call had ended, and was committed, before its partition moved"
    assert sum(committed(cluster).values()) == 2_000


def test_a_rebalance_waits_for_calls_that_run(cluster: Cluster) -> None:
    fill(cluster, 4, keys=1, partition=0)
    started, release = threading.Event(), threading.Event()
    revoked: list[dict[int, int]] = []

    def stick(record: ConsumerRecord) -> None:
        if record.offset == 0:
            started.set()
            release.wait(PATIENCE_SECONDS)

    consumer = Consumer(cluster.bootstrap, group="g", commit="marks", assignors=["range"])
    consumer.subscribe(["orders"], on_revoked=lambda partitions: revoked.append(committed(cluster)))
    first = consumer.process(stick, concurrency=1)
    stop_partition = first._queue.stop_partition

    def stopped(key: tuple[str, int]) -> None:
        stop_partition(key)
        release.set()  # the call ends only when the rebalance has started to wait for it

    first._queue.stop_partition = stopped  # type: ignore[method-assign]
    thread = threading.Thread(target=first.run)
    thread.start()
    assert started.wait(PATIENCE_SECONDS)
    second = Consumer(cluster.bootstrap, group="g", assignors=["range"])  # eager: everything is revoked when it joins
    second.subscribe(["orders"])
    wait_until(lambda: bool(second.poll(timeout=0.01)) or bool(revoked))
    assert revoked[0][0] == 1, "the call that ran was awaited, and its record committed"
    first.stop()
    thread.join(PATIENCE_SECONDS)
    second.close()


def test_coroutine_functions_run_as_tasks(cluster: Cluster) -> None:
    fill(cluster, 200)
    seen: list[tuple[int, int]] = []
    most = running = 0
    processor: Any = None

    async def work(record: ConsumerRecord) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        seen.append((record.partition, record.offset))
        if len(seen) == 200:
            processor.stop()

    processor = consumer_of(cluster).process(work, concurrency=8)
    processor.run()
    assert len(set(seen)) == 200
    assert 1 < most <= 8
    assert sum(committed(cluster).values()) == 200


def test_the_processor_of_asyncio(cluster: Cluster) -> None:
    fill(cluster, 200)

    async def main() -> int:
        seen: list[int] = []

        async def work(record: ConsumerRecord) -> None:
            await asyncio.sleep(0)
            seen.append(record.offset)
            if len(seen) == 200:
                processor.stop()

        async with kwire.aio.Consumer(cluster.bootstrap, group="g", commit="marks") as consumer:
            await consumer.subscribe(["orders"])
            processor = consumer.process(work, concurrency=50)
            await processor.run()
        return len(seen)

    assert asyncio.run(main()) == 200
    assert sum(committed(cluster).values()) == 200


def test_a_call_that_takes_too_long_has_failed(cluster: Cluster) -> None:
    fill(cluster, 1, partition=0)
    attempts: list[int] = []

    async def stick(record: ConsumerRecord) -> None:
        attempts.append(record.offset)
        if len(attempts) == 1:
            await asyncio.Event().wait()
        processor.stop()

    processor = consumer_of(cluster).process(stick, timeout=0.05, backoff=FAST)
    processor.run()
    assert attempts == [0, 0]
    assert processor.metrics().failed == 1


def test_batches_have_records_of_one_key(cluster: Cluster) -> None:
    fill(cluster, 100, keys=3, partition=0)
    batches: list[list[ConsumerRecord]] = []

    def work(records: list[ConsumerRecord]) -> None:
        batches.append(records)
        if sum(map(len, batches)) == 100:
            processor.stop()

    processor = consumer_of(cluster).process(work, batch=10, concurrency=2)
    processor.run()
    assert all(len({record.key for record in batch}) == 1 for batch in batches)
    assert max(map(len, batches)) == 10
    assert sum(committed(cluster).values()) == 100


def test_records_wait_for_a_full_batch(cluster: Cluster) -> None:
    fill(cluster, 25, keys=1, partition=0)
    sizes: list[int] = []

    def work(records: list[ConsumerRecord]) -> None:
        sizes.append(len(records))
        if sum(sizes) == 25:
            processor.stop()

    processor = consumer_of(cluster).process(work, batch=10, batch_wait_ms=300, concurrency=2)
    processor.run()
    assert sizes == [10, 10, 5]
    assert committed(cluster)[0] == 25


def test_tasks_wait_for_full_batches_of_many_keys(cluster: Cluster) -> None:
    fill(cluster, 20, keys=10, partition=0)
    sizes: list[int] = []

    async def work(records: list[ConsumerRecord]) -> None:
        sizes.append(len(records))
        if sum(sizes) == 20:
            processor.stop()

    processor: Any = consumer_of(cluster).process(work, batch=10, batch_wait_ms=300, concurrency=4)
    processor.run()
    assert sizes == [2] * 10


def square(record: ConsumerRecord) -> None:
    """Run in another process: it must be at the top of a module."""
    if record.value == b"7":
        raise ValueError("seven")


def process_started() -> None:
    """Have a process import this module."""


@pytest.mark.slow
def test_processes_run_the_function(cluster: Cluster) -> None:
    fill(cluster, 20, partition=0)
    dead: list[int] = []

    def put_aside(record: ConsumerRecord, error: BaseException) -> None:
        dead.append(record.offset)

    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for started in [pool.submit(process_started) for _ in range(2)]:
            started.result()  # on a busy machine the processes take longer to start than calls may take
        processor = consumer_of(cluster).process(
            square, executor=pool, concurrency=2, retries=0, dead_letters=put_aside
        )
        thread = threading.Thread(target=processor.run)
        thread.start()
        wait_until(lambda: processor.metrics().processed == 20)
        processor.stop()
        thread.join(PATIENCE_SECONDS)
    assert dead == [7]
    assert committed(cluster)[0] == 20


def test_partitions_are_paused_when_enough_waits(cluster: Cluster) -> None:
    fill(cluster, 3_000, keys=1, partition=0)
    gate = threading.Event()

    def stick(record: ConsumerRecord) -> None:
        gate.wait(PATIENCE_SECONDS)
        if record.offset == 2_999:
            processor.stop()

    processor = consumer_of(cluster).process(stick, concurrency=1, max_ahead=500)
    thread = threading.Thread(target=processor.run)
    thread.start()
    wait_until(lambda: processor.metrics().paused == (("orders", 0),))
    assert processor.metrics().waiting <= 2_000, "one poll beyond max_ahead at most"
    gate.set()
    thread.join(PATIENCE_SECONDS)
    assert committed(cluster)[0] == 3_000


@pytest.mark.slow
def test_s42_a_call_that_is_stuck_stalls_neither_other_partitions_nor_the_membership() -> None:
    """S42 (sarama #1608): for many sessions and poll intervals, with more records than may wait."""
    stuck, lost = threading.Event(), list[Any]()
    counts = Counter[int]()
    with Cluster(brokers=1, topics={"orders": 4}, group_min_session_timeout_ms=100) as cluster:
        fill(cluster, 500, partition=0)
        consumer = Consumer(
            cluster.bootstrap, group="g", commit="marks", session_timeout_ms=2_000, heartbeat_interval_ms=200,
            max_poll_interval_ms=2_000,
        )  # fmt: skip
        consumer.subscribe(["orders"], on_lost=lost.extend)

        def work(record: ConsumerRecord) -> None:
            if record.partition == 0:
                stuck.wait(PATIENCE_SECONDS)
            counts[record.partition] += 1

        processor = consumer.process(work, order="partition", concurrency=4, max_ahead=100)
        thread = threading.Thread(target=processor.run)
        thread.start()
        wait_until(lambda: processor.metrics().paused == (("orders", 0),))
        epoch = consumer.member.epoch
        for number in range(1, 5):
            for partition in (1, 2, 3):
                fill(cluster, 50, partition=partition)
            wait_until(lambda number=number: all(counts[one] == 50 * number for one in (1, 2, 3)))  # type: ignore[misc]
            beats = cluster.requests()[ApiKey.HEARTBEAT]
            wait_until(lambda beats=beats: cluster.requests()[ApiKey.HEARTBEAT] > beats + 5)  # type: ignore[misc]
        assert (counts[0], lost, consumer.member.epoch) == (0, [], epoch)
        stuck.set()
        wait_until(lambda: counts[0] == 500)
        processor.stop()
        thread.join(PATIENCE_SECONDS)
        assert committed(cluster) == {0: 500, 1: 200, 2: 200, 3: 200}


def test_wrong_arguments_are_refused(cluster: Cluster) -> None:
    with consumer_of(cluster) as consumer:
        wrong: Any = consumer.process
        with pytest.raises(TypeError, match="give a function"):
            wrong("handle")
        with pytest.raises(ConfigurationError, match="concurrency"):
            wrong(print, workers=3)
        with pytest.raises(ConfigurationError, match="coroutine function"):
            wrong(print, dead_letters=asyncio.sleep)
        with pytest.raises(ConfigurationError, match="order"):
            wrong(print, order="offset")
        processor = consumer.process(print)
        with pytest.raises(ConfigurationError, match="has a processor"):
            consumer.process(print)
        processor.stop()
        processor.run()
        with pytest.raises(ConfigurationError, match="runs once"):
            processor.run()
    with Consumer(cluster.bootstrap) as consumer, pytest.raises(ConfigurationError, match="no group"):
        consumer.process(print)
    with (
        Consumer(cluster.bootstrap, group="g", commit="manual") as consumer,
        pytest.raises(ConfigurationError, match="marks"),
    ):
        consumer.process(print)
