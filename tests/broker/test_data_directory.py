"""A cluster with a data directory: what survives a clean end and a crash, and that other programs read its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kwire
from kwire.broker import Cluster, LogSnapshot
from kwire.broker.cluster_state import ClusterState
from kwire.broker.data_directory import DataDirectory
from kwire.broker.log import StoredBatch
from kwire.broker.segment_files import encode_uuid, index_entries
from kwire.errors import BrokerError, ConfigurationError, ErrorCode, KwireError
from kwire.logs.checkpoints import read_producers, read_text
from kwire.logs.indexes import OffsetCheck, TimeCheck, read_aborted, read_offset_index, read_time_index
from kwire.logs.segments import PositionedBatch, check_order, read_segment
from tests.broker.bench import batch
from tests.broker.conftest import StartCluster
from tests.broker.test_log_cleaner import batch_of, transactional
from tests.broker.virtual_cluster import WALL_MS, VirtualCluster

SMALL = {"internal.segment.bytes": "300"}


def produce(cluster: Cluster, topic: str, values: list[bytes], **options: Any) -> None:
    with kwire.Producer(cluster.bootstrap, **options) as producer:
        for value in values:
            producer.send(topic, value, key=b"k%d" % (len(value) % 3)).result(timeout=60)


def abort(producer: kwire.Producer, topic: str) -> None:
    """Write a record in a transaction, and abort it. Raises ZeroDivisionError."""
    with producer.transaction():
        producer.send(topic, b"aborted").result(timeout=60)
        raise ZeroDivisionError


def same(one: LogSnapshot, other: LogSnapshot) -> None:
    assert [bytes(raw) for raw in one.raw_batches] == [bytes(raw) for raw in other.raw_batches]
    assert (one.start_offset, one.end_offset) == (other.start_offset, other.end_offset)
    assert one.high_watermark == other.high_watermark


def consumed(cluster: Cluster, group: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with kwire.Consumer(cluster.bootstrap, group=group, on_no_offset="earliest") as consumer:
        consumer.subscribe(["t"])
        for record in consumer:
            found.append(record.value)
            if len(found) == count:
                break
    return found


def test_topics_records_and_offsets_survive_a_restart(start: StartCluster, tmp_path: Path) -> None:
    first = start(2, data_dir=tmp_path)
    first.create_topic("t", 2, configs={"retention.ms": "1234567890"})
    first.create_topic("gone", 1)
    produce(first, "t", [b"%d" % number for number in range(10)])
    assert len(consumed(first, "g", 10)) == 10
    committed, id = first.committed("g"), first.call(lambda state, now: state.find_topic("t").id)
    logs = [first.log("t", partition) for partition in range(2)]
    first.delete_topic("gone")
    first.close()

    second = start(2, data_dir=tmp_path, topics={"t": 2})  # a topic that is there already is no error
    for partition, log in enumerate(logs):
        same(second.log("t", partition), log)
    assert second.call(lambda state, now: (state.find_topic("t").id, dict(state.find_topic("t").settings.configs))) == (
        id,
        {"retention.ms": "1234567890"},
    )
    assert sum(committed.values()) == 9  # the loop ended before the last record was processed
    assert second.committed("g") == committed
    assert not (tmp_path / "gone-0").exists()
    produce(second, "t", [b"later"])
    assert set(consumed(second, "g", 2)) == {b"9", b"later"}


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[tuple[VirtualCluster, Path]]:
    """A cluster whose directory is copied before it closes, as a crash would leave it."""
    cluster = VirtualCluster(1)
    directory = DataDirectory(tmp_path / "data")
    directory.load(cluster.state, 0.0)
    yield cluster, tmp_path
    directory.release()


def restarted(path: Path, name: str = "copy") -> tuple[VirtualCluster, DataDirectory]:
    """Start a cluster on a copy of the data directory as it is now."""
    shutil.copytree(path / "data", path / name)
    cluster = VirtualCluster(1)
    directory = DataDirectory(path / name)
    directory.load(cluster.state, 0.0)
    return cluster, directory


def append(cluster: VirtualCluster, *batches: Any) -> None:
    partition = cluster.state.partition("t", 0)
    for one in batches:
        partition.append([one], all_replicas=False, now=cluster.now, wall_ms=WALL_MS)


def raw(state: ClusterState) -> list[bytes]:
    return [bytes(stored.data) for stored in state.partition("t", 0).log]


def test_a_crash_loses_no_batch(crashing: tuple[VirtualCluster, Path]) -> None:
    cluster, path = crashing
    cluster.state.create_topic("t", 1, configs=SMALL)
    append(cluster, *(batch_of(("k", "v" * 50), time_ms=WALL_MS + number) for number in range(9)))
    append(cluster, batch_of(("k", "1"), producer_id=7, producer_epoch=0, base_sequence=0))
    log = cluster.state.partition("t", 0).log
    other, directory = restarted(path)
    restored = other.state.partition("t", 0).log
    assert raw(other.state) == raw(cluster.state)
    assert (restored.segments, restored.end_offset, restored.high_watermark) == (log.segments, 10, 10)
    assert len(log.segments) > 2
    known = restored.producers.get(7)
    assert known is not None
    assert known.last_sequence == 0
    assert other.state.partition("t", 0).leader_epoch > cluster.state.partition("t", 0).leader_epoch
    assert other.state.producer_ids.next_id > 7
    directory.release()


def test_half_a_batch_at_the_end_is_cut_off(
    crashing: tuple[VirtualCluster, Path], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, path = crashing
    cluster.state.create_topic("t", 1)
    append(cluster, *(batch_of(("k", str(number))) for number in range(3)))
    file = path / "data" / "t-0" / f"{0:020}.log"
    whole = file.read_bytes()
    size = len(raw(cluster.state)[-1])
    for number, data in enumerate(
        [whole[:-1], whole[: -size + 20], whole[:-1] + bytes([whole[-1] ^ 1]), whole + b"rubbish", whole + bytes(500)]
    ):
        file.write_bytes(data)
        other, directory = restarted(path, f"copy{number}")
        kept = 2 if number < 3 else 3
        assert raw(other.state) == raw(cluster.state)[:kept]
        assert (path / f"copy{number}" / "t-0" / file.name).stat().st_size == sum(map(len, raw(cluster.state)[:kept]))
        append(other, batch_of(("k", "next")))
        assert other.state.partition("t", 0).log.end_offset == kept + 1
        directory.release()
    assert sum("is cut off" in message for message in caplog.messages) == 4  # zeros are no damage


def test_compaction_deletion_and_truncation_reach_the_files(crashing: tuple[VirtualCluster, Path]) -> None:
    cluster, path = crashing
    cluster.state.create_topic("t", 1, configs={**SMALL, "cleanup.policy": "compact"})
    append(cluster, *(batch_of((f"k{number % 3}", str(number))) for number in range(12)))
    log = cluster.state.partition("t", 0).log
    changes: list[Callable[[], object]] = [
        lambda: log.truncate(11), lambda: log.compact(WALL_MS), lambda: log.delete_before(9),
    ]  # fmt: skip
    for number, change in enumerate(changes):
        change()
        files = {file.name for file in (path / "data" / "t-0").glob("*.log")}
        assert files <= {f"{base:020}.log" for base in log.segments}
        cluster.advance(1)
        state = json.loads((path / "data" / "kwire-cluster.json").read_text())
        assert list(state["topics"]) == []  # nobody saves here: only Cluster does, every second
        other, directory = restarted(path, f"copy{number}")
        assert raw(other.state) == raw(cluster.state)
        directory.release()


def test_an_open_transaction_is_aborted(crashing: tuple[VirtualCluster, Path]) -> None:
    cluster, path = crashing
    cluster.state.create_topic("t", 1)
    append(cluster, transactional("k", "open", 7))
    assert cluster.state.partition("t", 0).log.last_stable_offset == 0
    other, directory = restarted(path)
    log = other.state.partition("t", 0).log
    assert (log.end_offset, log.last_stable_offset) == (2, 2)
    assert [one.producer_id for one in log.aborted_between(0, 1)] == [7]
    directory.release()


def test_a_full_disk_is_a_storage_error(crashing: tuple[VirtualCluster, Path]) -> None:
    cluster, path = crashing
    cluster.state.create_topic("t", 1)
    append(cluster, batch_of(("k", "1")))
    files = cluster.state.partition("t", 0).log.files
    assert files is not None
    files.folder = path / "nowhere"
    with pytest.raises(BrokerError) as raised:
        append(cluster, batch_of(("k", "2")))
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.folder = path / "data" / "t-0"
    assert cluster.state.partition("t", 0).log.end_offset == 1
    append(cluster, batch_of(("k", "3")))
    assert (files.folder / f"{0:020}.log").read_bytes() == b"".join(raw(cluster.state))


def test_a_topic_whose_folder_cannot_be_made_is_not_created(crashing: tuple[VirtualCluster, Path]) -> None:
    cluster, path = crashing
    (path / "data" / "t-1").write_bytes(b"in the way")
    with pytest.raises(BrokerError) as raised:
        cluster.state.create_topic("t", 2)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "t" not in cluster.state.topics
    assert not (path / "data" / "t-0").exists()
    topic = cluster.state.create_topic("t", 1)
    with pytest.raises(BrokerError):
        cluster.state.add_partitions(topic, 2)
    assert len(topic.partitions) == 1
    (path / "data" / "t-1").unlink()
    cluster.state.add_partitions(topic, 2)
    assert len(topic.partitions) == 2


def test_a_directory_that_is_gone_at_the_end_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(1, data_dir=tmp_path / "data", topics={"t": 1, "u": 1}) as cluster:
        shutil.rmtree(tmp_path / "data")
        cluster.delete_topic("u")
    assert not cluster.failures
    assert any("cannot write the last files of" in message for message in caplog.messages)
    (tmp_path / "data").mkdir()
    Cluster(1, data_dir=tmp_path / "data").close()  # the lock was released


def test_indexes_and_checkpoints_that_cannot_be_written_are_logged(
    crashing: tuple[VirtualCluster, Path], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, path = crashing
    cluster.state.create_topic("t", 1, configs=SMALL)
    for name in (f"{0:020}.index", f"{0:020}.index.tmp"):
        (path / "data" / "t-0" / name).mkdir()
    append(cluster, *(batch_of(("k", "v" * 50), time_ms=WALL_MS) for _ in range(5)))
    assert cluster.state.partition("t", 0).log.end_offset == 5
    assert any("cannot write the indexes" in message for message in caplog.messages)
    shutil.rmtree(path / "data" / "t-0")
    directory = DataDirectory(path / "other")
    directory.load(cluster.state, 0.0)
    (path / "other" / "kwire-cluster.json.tmp").mkdir()
    for number in range(3):
        cluster.state.create_topic(f"new{number}", 1)
        directory.save(cluster.state)
    assert sum("kwire-cluster.json" in message for message in caplog.messages) == 1
    (path / "other" / "kwire-cluster.json.tmp").rmdir()
    directory.save(cluster.state)
    assert "new2" in (path / "other" / "kwire-cluster.json").read_text()
    directory.release()


def test_a_folder_of_a_kafka_broker_becomes_a_topic(start: StartCluster, tmp_path: Path) -> None:
    """Only the segments and partition.metadata are needed; a checkpoint says where the log starts."""
    made = start(1, data_dir=tmp_path / "one", topics={"t": 1})
    produce(made, "t", [b"a", b"b", b"c"])
    id = made.call(lambda state, now: state.find_topic("t").id)
    log = made.log("t")
    made.close()
    (tmp_path / "two" / "t-0").mkdir(parents=True)
    for name in (f"{0:020}.log", "partition.metadata"):
        shutil.copy(tmp_path / "one" / "t-0" / name, tmp_path / "two" / "t-0")
    (tmp_path / "two" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    other = start(3, data_dir=tmp_path / "two")
    assert [record.value for record in other.log("t").records()] == [b"b", b"c"]
    assert other.log("t").end_offset == log.end_offset
    assert other.call(lambda state, now: state.find_topic("t").id) == id
    assert encode_uuid(id) in (tmp_path / "two" / "t-0" / "partition.metadata").read_text()
    produce(other, "t", [b"d"])
    assert [record.value for record in other.log("t").records()] == [b"b", b"c", b"d"]


def test_one_directory_has_one_cluster(start: StartCluster, tmp_path: Path) -> None:
    first = start(1, data_dir=tmp_path)
    with pytest.raises(ConfigurationError, match="in use"):
        Cluster(1, data_dir=tmp_path)
    first.close()
    start(1, data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("kwire-cluster.json", "{", "cannot be read"),
        ("kwire-cluster.json", '{"version": 99}', "has version 99"),
        ("kwire-cluster.json", "[]", "cannot be read"),
    ],
)
def test_a_directory_that_cannot_be_read(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigurationError, match=says):
        Cluster(1, data_dir=tmp_path)


def test_a_directory_larger_than_the_storage(start: StartCluster, tmp_path: Path) -> None:
    first = start(1, data_dir=tmp_path, topics={"t": 1})
    produce(first, "t", [b"x" * 1000])
    first.close()
    with pytest.raises(ConfigurationError, match="raise storage_bytes_max"):
        Cluster(1, data_dir=tmp_path, storage_bytes_max=500)


# -- The files, as `kwire dump-log` reads and checks them.


def problems(folder: Path) -> list[Any]:
    """Return what `kwire dump-log` finds wrong in a partition's folder."""
    found: list[Any] = []
    for path in sorted(folder.glob("*.log")):
        base = int(path.stem)
        with path.open("rb") as log:
            found += [one for one in check_order(read_segment(log), base) if not isinstance(one, PositionedBatch)]
        with path.open("rb") as log, path.with_suffix(".index").open("rb") as index:
            offsets = OffsetCheck(log)
            entries = list(read_offset_index(index, base))
            found += [entry if isinstance(entry, KwireError) else offsets.problem(entry) for entry in entries]
        with path.open("rb") as log, path.with_suffix(".timeindex").open("rb") as index:
            times = TimeCheck(log)
            for entry in read_time_index(index, base):
                found.append(entry if isinstance(entry, KwireError) else times.problem(entry))
    for path in folder.glob("*.snapshot"):
        found += [entry for entry in read_producers(path.read_bytes()) if isinstance(entry, KwireError)]
    for path in folder.glob("*.txnindex"):
        with path.open("rb") as file:
            found += [entry for entry in read_aborted(file) if isinstance(entry, KwireError)]
    name = "leader-epoch-checkpoint"
    found += [entry for entry in read_text(name, (folder / name).read_bytes()) if isinstance(entry, KwireError)]
    return [one for one in found if one is not None]


def test_dump_log_finds_no_fault_in_the_files(start: StartCluster, tmp_path: Path) -> None:
    cluster = start(1, data_dir=tmp_path)
    cluster.create_topic("t", 1, configs={"internal.segment.bytes": "20000"})
    produce(cluster, "t", [b"%d" % number * 50 for number in range(200)])
    with kwire.Producer(cluster.bootstrap, transactional_id="tx") as producer:
        with producer.transaction():
            producer.send("t", b"committed")
        with pytest.raises(ZeroDivisionError):
            abort(producer, "t")
    cluster.stop(1)
    cluster.restart(1)
    produce(cluster, "t", [b"after"])
    cluster.close()
    folder = tmp_path / "t-0"
    assert problems(folder) == []
    assert len(list(folder.glob("*.log"))) > 1
    assert any(path.stat().st_size for path in folder.glob("*.index"))
    assert [path.stat().st_size for path in folder.glob("*.txnindex")] == [34]
    end = max(int(path.stem) for path in folder.glob("*.snapshot"))
    producers = list(read_producers((folder / f"{end:020}.snapshot").read_bytes()))
    assert len(producers) == 3
    epochs = list(read_text("leader-epoch-checkpoint", (folder / "leader-epoch-checkpoint").read_bytes()))
    assert len(epochs) == 2


def test_index_entries_are_kafkas() -> None:
    """An entry for each batch that begins more than `interval` bytes after the one before (LogSegment.append)."""
    batches = []
    for number, (size, time_ms) in enumerate([(30, 5), (30, 9), (50, 7), (10, 9), (60, 12)]):
        first = 100 + 2 * number
        stored = StoredBatch(
            memoryview(bytes(size)), first, first + 1, 0, time_ms, 0, -1, -1, -1, -1, False, False, 0
        )  # fmt: skip
        batches.append(stored)
    offsets, times = index_entries(100, batches, 50)
    assert offsets == [(5, 60), (9, 120)]
    assert times == [(9, 3), (12, 9)]


def test_produced_bytes_are_the_file(start: StartCluster, tmp_path: Path) -> None:
    cluster = start(1, data_dir=tmp_path, topics={"t": 1})
    produce(cluster, "t", [b"1", b"2"])
    data = b"".join(cluster.log("t").raw_batches)
    assert (tmp_path / "t-0" / f"{0:020}.log").read_bytes() == data
    assert len(data) > 2 * len(batch(b"1")) - 10
