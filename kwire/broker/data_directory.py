"""What a cluster keeps on a disk: its topics with their logs, committed offsets, and the next producer id.

All brokers of a cluster share one directory, laid out as the log directory of one Kafka broker (`segment_files`), with
Kafka's checkpoints, and `kwire-cluster.json` for what Kafka has in its metadata log and in __consumer_offsets. A folder
`TOPIC-PARTITION` that is not in that file is loaded too: a copy from a Kafka broker becomes a topic.

Users, access rules, quotas, members of groups and share groups are not kept. A transaction that was open is aborted.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID, uuid4

from kwire.broker.diagnostics import logger
from kwire.broker.log import PartitionLog, Storage
from kwire.broker.offsets import OffsetAndMetadata
from kwire.broker.partition import NO_LEADER, Partition
from kwire.broker.segment_files import (
    OpenFiles,
    SegmentFiles,
    checkpoint,
    encode_uuid,
    read_checkpoint,
    write_whole,
)
from kwire.errors import BrokerError, ConfigurationError, ErrorCode, broker_error

if TYPE_CHECKING:
    from kwire.broker.cluster_state import ClusterState, Topic

SAVE_INTERVAL_MS = 1_000
_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_STATE = "kwire-cluster.json"
_VERSION = 1
_START, _HIGH, _RECOVERY, _CLEANER = (
    "log-start-offset-checkpoint", "replication-offset-checkpoint", "recovery-point-offset-checkpoint",
    "cleaner-offset-checkpoint",
)  # fmt: skip
# Producer ids up to here after the last saved one may have been given out before a crash (Kafka's block of ids).
_PRODUCER_ID_BLOCK = 1_000


class DataDirectory:
    """One directory, locked until `close`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Make the directory if need be. Raises ConfigurationError if it cannot be used, or is in use."""
        self.path = Path(path)
        self._open = OpenFiles()
        self._saved: dict[str, bytes] = {}  # what was written last, by file name
        self._failed: set[str] = set()  # files whose last write failed
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.path / ".lock")
        except OSError as error:
            remedy = "give a directory where this user may write"
            raise ConfigurationError(f"data_dir {self.path}: {error}", remedy=remedy) from None

    # Loading.

    def load(self, state: ClusterState, now: float) -> None:
        """Make the topics and offsets of the directory, and keep every later change of them.

        Raises ConfigurationError for what cannot be loaded.
        """
        try:
            saved = self._read_state()
            folders = self._folders()
            for name, partitions in folders.items():
                self._load_topic(state, name, partitions, saved.get("topics", {}).get(name, {}), now)
        except OSError as error:
            raise ConfigurationError(f"data_dir {self.path}: {error}") from None
        _check_space(state.storage, self.path)
        self._load_offsets(state, saved.get("offsets", []), now)
        seen = [producer.producer_id + 1 for one in state.partitions() for producer in one.log.producers]
        next_id = saved["next_producer_id"] + _PRODUCER_ID_BLOCK if saved else 0
        state.producer_ids.skip_to(max([next_id, *seen]))
        state.on_partitions = self._attach_new
        state.log_dir = str(self.path.absolute())
        metadata = self.path / "meta.properties"
        if not metadata.exists():
            lines = (
                "version=1",
                f"cluster.id={state.options.cluster_id}",
                "node.id=1",
                f"directory.id={encode_uuid(uuid4())}",
            )
            write_whole(metadata, "".join(f"{line}\n" for line in lines).encode())
        self.save(state)

    def _read_state(self) -> dict[str, Any]:
        path = self.path / _STATE
        if not path.exists():
            return {}
        try:
            found = json.loads(path.read_text())
            version = found["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error!r}", remedy="restore it, or delete it") from None
        if version != _VERSION:
            raise ConfigurationError(
                f"{path} has version {version}", remedy="use the kwire that wrote it, or a later one"
            )
        return dict(found)

    def _folders(self) -> dict[str, list[int]]:
        """Return the partitions of each topic that has folders here."""
        found: dict[str, list[int]] = {}
        for path in sorted(self.path.iterdir()):
            matched = _FOLDER.fullmatch(path.name)
            if matched is not None and path.is_dir():
                found.setdefault(matched["topic"], []).append(int(matched["partition"]))
        return found

    def _load_topic(
        self, state: ClusterState, name: str, partitions: list[int], saved: Mapping[str, Any], now: float
    ) -> None:
        count = max([*partitions, len(saved.get("partitions", ())) - 1]) + 1
        files = [SegmentFiles(self.path / f"{name}-{index}", self._open) for index in range(count)]
        id = (
            UUID(saved["id"])
            if "id" in saved
            else next(filter(None, (files[one].read_topic_id() for one in partitions)), None)
        )
        assignments = {index: one["replicas"] for index, one in enumerate(saved.get("partitions", ()))}
        nodes = {node for replicas in assignments.values() for node in replicas}
        if len(assignments) != count or not nodes <= state.nodes.keys():
            assignments = {}  # another number of brokers than before
        try:
            topic = state.create_topic(
                name, count, configs=saved.get("configs", {}), assignments=assignments or None, topic_id=id
            )
        except BrokerError as error:
            raise ConfigurationError(f"data_dir {self.path}: topic {name}: {error.message}") from None
        starts = self._offsets_of(_START, name)
        cleaned = self._offsets_of(_CLEANER, name)
        for partition, own in zip(topic.partitions, files, strict=True):
            own.create(topic.id)
            log = partition.log
            log.restore(
                own.read(),
                start_offset=starts.get(partition.index),
                epochs=own.read_epochs(),
                now_ms=state.wall_ms(now),
            )
            log.first_dirty_offset = min(max(cleaned.get(partition.index, 0), log.start_offset), log.end_offset)
            log.files = own
            epochs = [epoch for epoch, _ in log.epochs]
            partition.restore(max([*epochs, self._saved_epoch(saved, partition.index)], default=-1) + 1, now)
            self._abort_open(state, partition, now)

    @staticmethod
    def _saved_epoch(saved: Mapping[str, Any], index: int) -> int:
        partitions = saved.get("partitions", ())
        return int(partitions[index]["leader_epoch"]) if index < len(partitions) else -1

    @staticmethod
    def _abort_open(state: ClusterState, partition: Partition, now: float) -> None:
        """Abort the transactions that were open: their coordinator has forgotten them."""
        if partition.leader == NO_LEADER:
            return
        for producer in list(partition.log.producers):
            if partition.log.producers.has_open_transaction(producer.producer_id, producer.epoch):
                partition.append_marker(
                    "abort", producer_id=producer.producer_id, producer_epoch=producer.epoch,
                    coordinator_epoch=max(producer.coordinator_epoch, 0), now=now, wall_ms=state.wall_ms(now),
                )  # fmt: skip

    def _offsets_of(self, name: str, topic: str) -> dict[int, int]:
        lines = read_checkpoint(self.path / name, 3)
        return {int(partition): int(offset) for of, partition, offset in lines if of == topic}

    def _load_offsets(self, state: ClusterState, saved: list[dict[str, Any]], now: float) -> None:
        for one in saved:
            if state.groups.get_or_create(one["group"]) is None:
                continue
            committed = OffsetAndMetadata(one["offset"], one["leader_epoch"], one["metadata"], now)
            state.offsets.commit(one["group"], (one["topic"], one["partition"]), committed)

    def _attach_new(self, topic: Topic, partitions: list[Partition]) -> None:
        """Make the folders of new partitions. Raises KAFKA_STORAGE_ERROR, and leaves no folder then."""
        made: list[SegmentFiles] = []
        try:
            for partition in partitions:
                made.append(SegmentFiles(self.path / f"{topic.name}-{partition.index}", self._open))
                made[-1].create(topic.id)
        except OSError as error:
            for files in made:
                files.delete()
            why = f"cannot make {made[-1].folder}: {error}"
            logger.error("%s: free some space, or check the permissions of the directory", why)
            raise broker_error(ErrorCode.KAFKA_STORAGE_ERROR, why) from error
        for partition, files in zip(partitions, made, strict=True):
            partition.log.files = files

    # Saving.

    def save(self, state: ClusterState) -> None:
        """Write what has changed of the topics, offsets and checkpoints."""
        offsets = [
            {
                "group": group, "topic": topic, "partition": partition, "offset": one.offset,
                "leader_epoch": one.leader_epoch, "metadata": one.metadata,
            }
            for group in state.offsets.groups()
            for (topic, partition), one in state.offsets.of(group).items()
        ]  # fmt: skip
        topics = {
            topic.name: {
                "id": str(topic.id),
                "configs": dict(topic.settings.configs),
                "partitions": [
                    {"replicas": list(one.replicas), "leader_epoch": one.leader_epoch} for one in topic.partitions
                ],
            }
            for topic in state.topics.values()
        }
        whole = {
            "version": _VERSION, "next_producer_id": state.producer_ids.next_id, "topics": topics, "offsets": offsets,
        }  # fmt: skip
        self._write(_STATE, json.dumps(whole, indent=1).encode())
        logs = [(f"{one.topic} {one.index}", one.log) for one in state.partitions()]
        for name, lines in (
            (_START, [f"{at} {log.start_offset}" for at, log in logs if log.start_offset]),
            (_HIGH, [f"{at} {log.high_watermark}" for at, log in logs]),
            (_RECOVERY, [f"{at} {log.end_offset}" for at, log in logs]),
            (_CLEANER, [f"{at} {log.first_dirty_offset}" for at, log in logs if log.settings.is_compacted]),
        ):
            self._write(name, checkpoint(lines))

    def _write(self, name: str, data: bytes) -> None:
        """Write a file that has changed. A failure is logged once, and tried again at the next save."""
        if self._saved.get(name) == data:
            return
        try:
            write_whole(self.path / name, data)
        except OSError as error:
            if name not in self._failed:
                logger.error("cannot write %s: %s; it is tried again every second", self.path / name, error)
            self._failed.add(name)
            return
        self._failed.discard(name)
        self._saved[name] = data

    def close(self, state: ClusterState) -> None:
        """Write everything, close all files, and let others use the directory."""
        try:
            for partition in state.partitions():
                if partition.log.files is not None:
                    self._close_log(partition.log, partition.log.files)
            self.save(state)
        finally:
            self.release()

    @staticmethod
    def _close_log(log: PartitionLog, files: SegmentFiles) -> None:
        try:
            files.close(log)
        except OSError as error:  # the batches are there; the rest can be made from them
            logger.error("cannot write the last files of %s: %s", files.folder, error)

    def release(self) -> None:
        """Close all files, and let others use the directory."""
        self._open.close_all()
        self._lock.close()


def _check_space(storage: Storage, path: Path) -> None:
    if storage.used_bytes > storage.max_bytes:
        why = f"data_dir {path} has {storage.used_bytes} bytes of records, storage_bytes_max is {storage.max_bytes}"
        raise ConfigurationError(why, remedy="raise storage_bytes_max: all records are in memory, too")


def _lock(path: Path) -> IO[bytes]:
    """Lock a file until it is closed; elsewhere than on Unix it is only opened."""
    file = path.open("ab")
    try:
        import fcntl
    except ImportError:
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ConfigurationError(f"data_dir {path.parent} is in use", remedy="close the other cluster") from None
    return file
