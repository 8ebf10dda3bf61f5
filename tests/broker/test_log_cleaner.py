"""Log compaction: what stays of a log, when it is compacted, and what a restarted broker knows of its producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import kwire
from kwire.broker.log import PartitionLog, Storage
from kwire.broker.log_cleaner import delete_horizon_ms
from kwire.broker.options import INTERNAL_SEGMENT_BYTES, LONG_MAX, Options, TopicSettings
from kwire.errors import BrokerError, ErrorCode
from kwire.records import Batch, Compression, decode_batches, encode_batch
from tests.broker.conftest import StartCluster
from tests.broker.virtual_cluster import WALL_MS, VirtualCluster

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS


def make_log(**configs: object) -> PartitionLog:
    options = Options()
    named = {name.replace("_", "."): str(value) for name, value in configs.items()}
    settings = TopicSettings.parse(options, {"cleanup.policy": "compact", **named})
    return PartitionLog(options, settings, Storage(1 << 20))


def batch_of(*records: tuple[str, str | None], time_ms: int = NOW_MS, **fields: Any) -> Batch:
    rows = [(time_ms, key.encode(), None if value is None else value.encode(), ()) for key, value in records]
    return next(decode_batches(encode_batch(rows, **fields)))


def write(log: PartitionLog, *batches: Batch, now_ms: int = NOW_MS) -> None:
    for batch in batches:
        log.append([batch], leader_epoch=0, now_ms=now_ms)
    log.advance_high_watermark(log.end_offset)


def end_transaction(log: PartitionLog, kind: str, producer_id: int) -> None:
    log.append_marker(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, leader_epoch=0, now_ms=NOW_MS
    )
    log.advance_high_watermark(log.end_offset)


def records(log: PartitionLog) -> list[tuple[int, str, str | None]]:
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for stored in log
        if not stored.is_control
        for batch in decode_batches(stored.data)  # checks the CRC too
        for record in batch.records()
    ]


def batches(log: PartitionLog) -> list[tuple[int, int, int]]:
    """Return (base offset, last offset, number of records) of each batch."""
    found = [next(decode_batches(stored.data)) for stored in log]
    return [(batch.base_offset, batch.last_offset, batch.count) for batch in found]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.LZ4])
def test_the_last_record_of_each_key_stays_at_its_offset(compression: Compression) -> None:
    log = make_log()
    write(log, batch_of(("a", "1"), ("b", "2"), ("a", "3"), compression=compression), batch_of(("c", "4"), ("b", "5")))
    size = log.size_bytes
    log.compact(NOW_MS)
    assert records(log) == [(2, "a", "3"), (3, "c", "4"), (4, "b", "5")]
    assert batches(log) == [(0, 2, 1), (3, 4, 2)]
    assert {stored.compression for stored in log} == {compression, Compression.NONE}
    assert (log.start_offset, log.end_offset) == (0, 5)
    assert log.size_bytes == sum(len(stored.data) for stored in log) < size


def test_a_reader_passes_the_gaps() -> None:
    log = make_log()
    write(log, *(batch_of(("a", str(value))) for value in range(4)), batch_of(("b", "4")))
    log.compact(NOW_MS)
    assert batches(log) == [(3, 3, 1), (4, 4, 1)]
    for offset in range(4):
        assert log.read(offset, max_bytes=1 << 20, upper_bound=5)[0].base_offset == 3
    assert log.find_time(0, upper_bound=5).offset == 3


def test_a_later_cleaning_replaces_what_an_earlier_one_kept() -> None:
    log = make_log()
    write(log, batch_of(("a", "1"), ("b", "2")))
    log.compact(NOW_MS)
    write(log, batch_of(("a", "3")))
    log.compact(NOW_MS)
    assert records(log) == [(1, "b", "2"), (2, "a", "3")]
    assert log.first_dirty_offset == log.end_offset == 3


def test_a_tombstone_stays_until_its_horizon() -> None:
    log = make_log(delete_retention_ms=HOUR_MS)
    write(log, batch_of(("a", "1")), batch_of(("a", None)), batch_of(("z", "")))
    log.compact(NOW_MS)
    assert records(log) == [(1, "a", None), (2, "z", "")]
    assert [delete_horizon_ms(stored.data) for stored in log] == [NOW_MS + HOUR_MS, None]
    log.compact(NOW_MS + HOUR_MS - 1)
    assert records(log) == [(1, "a", None), (2, "z", "")]
    assert [record.timestamp_ms for stored in log for record in stored.batch().records()] == [NOW_MS, NOW_MS]
    log.compact(NOW_MS + HOUR_MS)
    assert records(log) == [(2, "z", "")]


def test_the_last_batch_of_a_cleaning_stays_without_records() -> None:
    log = make_log(delete_retention_ms=0)
    write(log, batch_of(("a", "1")), batch_of(("a", None)))
    log.compact(NOW_MS)
    log.compact(NOW_MS)
    assert batches(log) == [(1, 1, 0)]
    assert log.end_offset == 2


def test_the_last_batch_of_a_producer_stays_without_records() -> None:
    log = make_log()
    sequenced: list[Batch] = [
        batch_of(("a", str(sequence)), producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in range(3)
    ]
    write(log, *sequenced, batch_of(("a", "x")))
    log.compact(NOW_MS)
    assert batches(log) == [(2, 2, 0), (3, 3, 1)]
    log.truncate(log.end_offset - 1)  # it rebuilds the producers from the log
    with pytest.raises(BrokerError) as raised:
        log.append([sequenced[0]], leader_epoch=0, now_ms=NOW_MS)
    assert raised.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def transactional(key: str, value: str, producer_id: int, sequence: int = 0) -> Batch:
    return batch_of(
        (key, value), producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )


def test_records_of_aborted_transactions_go_and_shadow_nothing() -> None:
    log = make_log(delete_retention_ms=HOUR_MS)
    write(log, batch_of(("a", "committed")), transactional("a", "aborted", 7))
    end_transaction(log, "abort", 7)
    write(log, batch_of(("b", "1")))
    log.compact(NOW_MS)
    assert records(log) == [(0, "a", "committed"), (3, "b", "1")]
    # The producer's last data batch and its marker stay.
    assert [(stored.base_offset, stored.is_control) for stored in log] == [
        (0, False),
        (1, False),
        (2, True),
        (3, False),
    ]
    assert [one.producer_id for one in log.aborted_between(0, 3)] == [7]


def test_a_marker_without_records_goes_after_its_horizon() -> None:
    log = make_log(delete_retention_ms=HOUR_MS)
    write(log, transactional("a", "1", 7))
    end_transaction(log, "commit", 7)
    write(log, transactional("a", "2", 7, 1))
    end_transaction(log, "commit", 7)
    write(log, batch_of(("b", "1")))
    log.compact(NOW_MS)
    markers = [stored for stored in log if stored.is_control]
    assert [stored.base_offset for stored in markers] == [1, 3]
    assert [delete_horizon_ms(stored.data) for stored in markers] == [None, None]
    log.compact(NOW_MS)  # now the first marker's transaction has no record
    markers = [stored for stored in log if stored.is_control]
    assert [delete_horizon_ms(stored.data) for stored in markers] == [NOW_MS + HOUR_MS, None]
    log.compact(NOW_MS + HOUR_MS)
    assert [stored.base_offset for stored in log if stored.is_control] == [3]
    assert records(log) == [(2, "a", "2"), (4, "b", "1")]


def test_an_open_transaction_ends_what_is_cleaned() -> None:
    log = small_segments()
    write(log, batch_of(("a", "1")), batch_of(("a", "2")), transactional("b", "open", 7), batch_of(("a", "3")))
    log.compact(NOW_MS)
    assert records(log) == [(1, "a", "2"), (2, "b", "open"), (3, "a", "3")]
    assert log.first_dirty_offset == 2


def test_segments_roll_by_size_and_by_time_of_the_records() -> None:
    size = len(batch_of(("a", "1")).raw)
    log = make_log(internal_segment_bytes=2 * size, segment_ms=HOUR_MS)
    for time_ms in [NOW_MS, NOW_MS, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, NOW_MS + 3 * HOUR_MS]:
        write(log, batch_of(("a", "1"), time_ms=time_ms))
    assert log.segments == [0, 2, 4, 5]


def clean_at(log: PartitionLog, now_ms: int) -> Sequence[tuple[int, str, str | None]]:
    log.maybe_clean(now_ms)
    return records(log)


def small_segments(**configs: object) -> PartitionLog:
    return make_log(internal_segment_bytes=130, **configs)  # each batch gets its own: it has 66 bytes or more


def test_the_active_segment_is_left_alone() -> None:
    log = small_segments()
    write(log, batch_of(("a", "1")), batch_of(("a", "2")), batch_of(("a", "3")))
    assert log.segments == [0, 1, 2]
    assert clean_at(log, NOW_MS) == [(1, "a", "2"), (2, "a", "3")]


def test_a_log_waits_until_it_is_dirty_enough() -> None:
    log = small_segments(min_cleanable_dirty_ratio=0.5)
    write(log, *(batch_of((f"k{number}", "1")) for number in range(4)), batch_of(("x", "0")))
    log.compact(NOW_MS)
    write(log, *(batch_of(("k0", "2")) for _ in range(4)))  # the last one is in the active segment
    assert not log.maybe_clean(NOW_MS)  # 3 of 8 batches are dirty
    write(log, *(batch_of(("k0", "3")) for _ in range(3)))
    assert log.maybe_clean(NOW_MS)  # 6 of 11
    assert not log.maybe_clean(NOW_MS)


def test_a_log_that_is_dirty_for_too_long_is_compacted_whatever_its_ratio() -> None:
    log = small_segments(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=HOUR_MS)
    write(log, *(batch_of(("a", str(number))) for number in range(3)))
    assert not log.maybe_clean(NOW_MS + HOUR_MS)
    assert log.maybe_clean(NOW_MS + HOUR_MS + 1)


def test_young_records_are_not_compacted() -> None:
    log = small_segments(min_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=0)
    write(log, batch_of(("a", "1")), batch_of(("a", "2")))
    write(log, batch_of(("a", "3"), time_ms=NOW_MS + HOUR_MS), batch_of(("a", "4"), time_ms=NOW_MS + HOUR_MS))
    assert len(clean_at(log, NOW_MS + HOUR_MS - 1)) == 4
    assert clean_at(log, NOW_MS + HOUR_MS) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]
    assert clean_at(log, NOW_MS + 2 * HOUR_MS) == [(2, "a", "3"), (3, "a", "4")]


def test_both_policies_together() -> None:
    log = small_segments(cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    write(log, batch_of(("a", "1")), batch_of(("a", "2")), batch_of(("b", "3"), time_ms=NOW_MS + HOUR_MS))
    log.maybe_clean(NOW_MS)
    assert records(log) == [(1, "a", "2"), (2, "b", "3")]
    log.retain(NOW_MS + HOUR_MS + 1)
    assert (records(log), log.start_offset) == ([(2, "b", "3")], 2)


def test_without_the_policy_nothing_is_compacted() -> None:
    log = small_segments(cleanup_policy="delete")
    write(log, *(batch_of(("a", str(number))) for number in range(3)))
    assert not log.maybe_clean(NOW_MS + LONG_MAX // 2)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = small_segments()
    with pytest.raises(BrokerError) as raised:
        write(log, batch_of(("a", "v" * 100)))
    assert raised.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.end_offset == 0


def test_deleting_and_truncating_keep_the_segments_in_order() -> None:
    log = small_segments()
    write(log, *(batch_of((f"k{number}", "1")) for number in range(6)))
    log.delete_before(2)
    log.truncate(5)
    assert log.segments == [2, 3, 4, 5]
    write(log, batch_of(("k", "1")))
    assert log.segments == [2, 3, 4, 5]
    log.compact(NOW_MS)
    assert [offset for offset, _, _ in records(log)] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "half"),
        ("segment.bytes", "1000"),
        (INTERNAL_SEGMENT_BYTES, "13"),
        ("segment.ms", "0"),
        ("delete.retention.ms", "-1"),
        ("max.compaction.lag.ms", "0"),
    ],
)
def test_configs_out_of_range_are_refused(name: str, value: str) -> None:
    with pytest.raises(BrokerError) as raised:
        TopicSettings.parse(Options(), {name: value})
    assert raised.value.code == ErrorCode.INVALID_CONFIG


def test_lags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(BrokerError, match=r"min\.compaction\.lag\.ms"):
        TopicSettings.parse(Options(), {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"})


def test_releases_before_4_have_smaller_segments() -> None:
    assert TopicSettings.parse(Options(version="3.9"), {"segment.bytes": "14"}).segment_bytes == 14


def test_a_cluster_compacts_on_its_own() -> None:
    cluster = VirtualCluster(cleaner_backoff_ms=15_000)
    configs = {"cleanup.policy": "compact", INTERNAL_SEGMENT_BYTES: "130"}
    log = cluster.state.create_topic("t", 1, configs=configs).partitions[0].log
    write(log, *(batch_of(("a", str(number)), time_ms=WALL_MS) for number in range(4)))
    cluster.advance(14.9)
    assert len(records(log)) == 4
    cluster.advance(0.2)
    assert records(log) == [(2, "a", "2"), (3, "a", "3")]


def test_a_consumer_reads_what_compaction_has_left(start: StartCluster) -> None:
    cluster = start(1)
    cluster.create_topic("t", 1, configs={"cleanup.policy": "compact"})
    with kwire.Producer(cluster.bootstrap) as producer:
        for number in range(100):
            producer.send("t", b"%d" % number, key=b"%d" % (number % 3)).result(timeout=30)
    cluster.compact("t")
    assert [record.value for record in cluster.log("t").records()] == [b"97", b"98", b"99"]
    read: list[tuple[int, bytes | None]] = []
    with kwire.Consumer(cluster.bootstrap) as consumer:
        consumer.assign([("t", 0, "earliest")])
        for record in consumer:
            read.append((record.offset, record.value))
            if len(read) == 3:
                break
    assert read == [(97, b"97"), (98, b"98"), (99, b"99")]
