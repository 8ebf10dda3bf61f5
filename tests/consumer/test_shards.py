"""The order in which records are processed in parallel, and what of a partition is complete."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from kwire.consumer.progress import PartitionProgress
from kwire.consumer.record import ConsumerRecord
from kwire.consumer.shards import Order, ShardQueue, Work

T = ("t", 0)
U = ("u", 0)


def record(offset: int, key: bytes | None = None, topic: str = "t") -> ConsumerRecord:
    return ConsumerRecord(topic, 0, offset, key=key)


def records(*keys: bytes | None, start: int = 0, topic: str = "t") -> list[ConsumerRecord]:
    return [record(start + at, key, topic) for at, key in enumerate(keys)]


def queue(
    order: Order = "key", *, batch: int = 1, batch_wait: float = 0.0, partitions: Iterable[tuple[str, int]] = (T,)
) -> ShardQueue:
    made = ShardQueue(order, batch=batch, batch_wait=batch_wait)
    for key in partitions:
        made.add_partition(key, PartitionProgress(0))
    return made


def offsets(works: Iterable[Work]) -> list[list[int]]:
    return [[one.offset for one in work.records] for work in works]


def progress(made: ShardQueue, key: tuple[str, int] = T) -> PartitionProgress:
    partition = made.get(key)
    assert partition is not None
    assert isinstance(partition.progress, PartitionProgress)
    return partition.progress


# -- order


def test_records_of_a_key_are_processed_one_after_the_other() -> None:
    made = queue()
    made.add(T, records(b"a", b"b", b"a", b"a"))
    first = made.take(0.0, 10)
    assert offsets(first) == [[0], [1]]
    assert made.take(0.0, 10) == [], "the next record of a key waits for the one before it"
    made.succeed([first[0]])
    assert offsets(made.take(0.0, 10)) == [[2]]


def test_records_without_a_key_have_no_order() -> None:
    made = queue()
    made.add(T, records(None, None, None))
    assert offsets(made.take(0.0, 10)) == [[0], [1], [2]]


def test_a_partition_is_processed_in_order() -> None:
    made = queue("partition", partitions=(T, U))
    made.add(T, records(b"a", b"b"))
    made.add(U, records(b"a", topic="u"))
    first = made.take(0.0, 10)
    assert offsets(first) == [[0], [0]]
    made.succeed(first)
    assert offsets(made.take(0.0, 10)) == [[1]]


def test_without_an_order_equal_keys_run_at_once() -> None:
    made = queue("none")
    made.add(T, records(b"a", b"a", b"a"))
    assert offsets(made.take(0.0, 2)) == [[0], [1]]


def test_equal_keys_of_two_partitions_are_two_shards() -> None:
    made = queue(partitions=(T, U))
    made.add(T, records(b"a"))
    made.add(U, records(b"a", topic="u"))
    assert len(made.take(0.0, 10)) == 2


def test_partitions_take_turns() -> None:
    made = queue("none", partitions=(T, U))
    made.add(T, records(*[None] * 100))
    made.add(U, records(None, None, topic="u"))
    topics = [work.records[0].topic for work in made.take(0.0, 4)]
    assert topics == ["t", "u", "t", "u"]


def test_a_batch_has_records_of_one_shard_or_records_without_order() -> None:
    made = queue("key", batch=3)
    made.add(T, records(b"a", b"b", b"a", b"a", b"a"))
    first = made.take(0.0, 10)
    assert offsets(first) == [[0, 2, 3], [1]]
    made.succeed(first)
    assert offsets(made.take(0.0, 10)) == [[4]]
    made = queue("none", batch=3)
    made.add(T, records(None, None, None, None))
    assert offsets(made.take(0.0, 10)) == [[0, 1, 2], [3]]


# -- retries


def test_a_failed_record_holds_up_its_key_and_no_other() -> None:
    made = queue()
    made.add(T, records(b"a", b"a", b"b"))
    a, b = made.take(0.0, 10)
    assert made.retry(a, 5.0)
    made.succeed([b])
    assert made.take(4.9, 10) == []
    assert made.next_due() == 5.0
    (again,) = made.take(5.0, 10)
    assert (again.records[0].offset, again.attempt) == (0, 2)
    made.succeed([again])
    assert offsets(made.take(5.0, 10)) == [[1]]


def test_work_that_was_not_begun_comes_back_first() -> None:
    made = queue("none")
    made.add(T, records(None, None, None))
    taken = made.take(0.0, 2)
    made.put_back(taken[1:])
    assert offsets(made.take(0.0, 10)) == [[1], [2]]
    assert [work.attempt for work in taken] == [1, 1]


# -- partitions that go


def test_results_of_a_dropped_partition_are_ignored() -> None:
    made = queue()
    made.add(T, records(b"a", b"b"))
    first, second = made.take(0.0, 2)
    before = progress(made)
    made.drop_partition(T)
    assert made.take(0.0, 10) == []
    made.succeed([first])
    assert not made.retry(second, 1.0)
    assert (before.base, made.running_count, made.next_due()) == (0, 0, None)


def test_s36_a_key_waits_for_the_call_of_its_dropped_partition() -> None:
    made = queue()
    made.add(T, records(b"a", b"b"))
    (running,) = made.take(0.0, 1)
    made.drop_partition(T)
    made.add_partition(T, PartitionProgress(0))
    made.add(T, records(b"a", b"b"))
    assert offsets(made.take(0.0, 10)) == [[1]], "the first record's key still runs"
    made.succeed([running])
    assert offsets(made.take(0.0, 10)) == [[0]]


def test_a_stopped_partition_counts_what_runs_and_gives_no_more() -> None:
    made = queue()
    made.add(T, records(b"a", b"a", b"b"))
    (running,) = made.take(0.0, 1)
    made.stop_partition(T)
    assert made.take(0.0, 10) == []
    made.succeed([running])
    assert progress(made).base == 1
    assert made.take(0.0, 10) == []


# -- progress


def test_the_base_is_the_first_offset_that_is_not_complete() -> None:
    made = PartitionProgress(10)
    for offset in (10, 12, 13, 20):
        assert made.begin([record(offset)])
    made.complete(12)
    made.complete(20)
    assert (made.base, made.ahead, made.incomplete) == (10, 11, 2)
    assert made.complete_ranges() == [range(11, 13), range(14, 21)]
    made.complete(10)
    assert (made.base, made.complete_ranges()) == (13, [range(14, 21)])
    made.complete(13)
    made.read_to(25)
    assert (made.base, made.complete_ranges(), made.incomplete) == (25, [], 0)


def test_remembered_offsets_are_not_processed_again() -> None:
    made = PartitionProgress(10, [range(11, 13), range(15, 17)])
    assert [offset for offset in range(10, 18) if made.begin([record(offset)])] == [10, 13, 14, 17]
    made.complete(10)
    assert made.base == 13


def test_what_is_remembered_and_not_yet_read_again_stays_remembered() -> None:
    made = PartitionProgress(10, [range(11, 13), range(15, 17)])
    made.begin([record(10)])
    assert made.complete_ranges() == [range(11, 13), range(15, 17)]


@pytest.mark.parametrize("seed", range(30))
def test_progress_is_that_of_a_plain_set(seed: int) -> None:
    random = Random(seed)
    base = random.randrange(100)
    made, begun, complete = PartitionProgress(base), [], set[int]()
    offset = base
    for _ in range(300):
        if random.random() < 0.6:
            offset += random.choice((0, 0, 0, 1, 5))
            assert made.begin([record(offset)])
            begun.append(offset)
            offset += 1
        elif open_ones := [one for one in begun if one not in complete]:
            one = random.choice(open_ones)
            made.complete(one)
            complete.add(one)
        left = [one for one in begun if one not in complete]
        assert made.base == (left[0] if left else made.next_offset)
        assert made.incomplete == len(left)
        above = {one for chunk in made.complete_ranges() for one in chunk}
        assert above == set(range(made.base, made.next_offset)) - set(left)


@pytest.mark.parametrize("order", ["key", "partition", "none"])
@pytest.mark.parametrize("seed", range(10))
def test_every_record_runs_once_and_in_order(order: Order, seed: int) -> None:
    random = Random(seed)
    made = queue(order, batch=random.choice((1, 3)), partitions=(T, U))
    added = {T: 0, U: 0}
    running: list[Work] = []
    seen: dict[tuple[str, object], list[int]] = {}
    done = 0
    now = 0.0
    while done < max(200, sum(added.values())):
        now += 0.1
        key = random.choice((T, U))
        if sum(added.values()) < 200 and random.random() < 0.5:
            keys = [random.choice((None, b"a", b"b", b"c")) for _ in range(random.randrange(1, 8))]
            made.add(key, records(*keys, start=added[key], topic=key[0]))
            added[key] += len(keys)
        running += made.take(now, random.randrange(1, 5))
        if running:
            work = running.pop(random.randrange(len(running)))
            if random.random() < 0.2:
                made.retry(work, now + random.random())
                continue
            for one in work.records:
                seen.setdefault((one.topic, one.key if order == "key" else None), []).append(one.offset)
            made.succeed([work])
            done += len(work.records)
    assert sum(map(len, seen.values())) == sum(added.values())
    if order != "none":
        for (_, key_or_none), found in seen.items():
            if order == "partition" or key_or_none is not None:
                assert found == sorted(found)
    assert [progress(made, key).base for key in (T, U)] == [added[T], added[U]]


# -- batches that wait


@pytest.mark.parametrize("key", [b"a", None])
def test_records_wait_for_a_full_batch_but_not_for_ever(key: bytes | None) -> None:
    made = queue(batch=3, batch_wait=1.0)
    made.add(T, records(key, key), now=0.0)
    assert made.take(0.9) == []
    assert made.next_due() == 1.0
    assert offsets(made.take(1.0)) == [[0, 1]]


@pytest.mark.parametrize("key", [b"a", None])
def test_a_full_batch_does_not_wait(key: bytes | None) -> None:
    made = queue(batch=3, batch_wait=1.0)
    made.add(T, records(key, key), now=0.0)
    made.add(T, records(key, key, start=2), now=0.5)
    assert offsets(made.take(0.5, 9)) == [[0, 1, 2]]


def test_what_is_left_of_a_key_waits_from_when_it_came() -> None:
    made = queue(batch=3, batch_wait=1.0)
    made.add(T, records(b"a", b"a", b"a", b"a"), now=0.0)
    works = made.take(0.0, 9)
    assert offsets(works) == [[0, 1, 2]]
    made.succeed(works)
    assert made.take(0.9) == []
    assert offsets(made.take(1.0)) == [[3]]


def test_a_batch_that_got_full_is_not_given_out_again_when_its_wait_ends() -> None:
    made = queue(batch=2, batch_wait=1.0)
    made.add(T, records(b"a"), now=0.0)
    made.add(T, records(b"a", start=1), now=0.0)
    works = made.take(0.0, 9)
    made.add(T, records(b"a", start=2), now=0.0)
    assert made.take(1.0, 9) == [], "the key's first call still runs"
    made.succeed(works)
    assert offsets(made.take(1.0, 9)) == [[2]]


def test_a_stopped_partition_waits_for_no_batch() -> None:
    made = queue(batch=3, batch_wait=1.0)
    made.add(T, records(b"a", None), now=0.0)
    made.stop_partition(T)
    assert made.next_due() is None
    assert made.take(9.0, 9) == []


def test_batches_that_are_due_at_once_are_all_announced() -> None:
    made = queue(batch=3, batch_wait=1.0)
    announced: list[int] = []
    made.add(T, records(b"a", b"b"), now=0.0)
    made.on_ready = lambda: announced.append(made.ready_count)
    assert offsets(made.take(1.0)) == [[0]]
    assert announced == [1], "another worker can take the second"
