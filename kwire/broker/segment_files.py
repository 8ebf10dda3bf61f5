"""The files of one partition in Kafka's own format: segments, indexes, producer snapshots, leader epochs.

    00000000000000000000.log         the batches, as Fetch sends them
    00000000000000000000.index       offset -> position, every 4 KiB; .timeindex: timestamp -> offset
    00000000000000000000.txnindex    aborted transactions
    00000000000000000042.snapshot    the producers at that offset
    leader-epoch-checkpoint, partition.metadata

A batch is in its .log before it is acknowledged, without fsync: it survives the process, not the machine. The rest is
written when a segment is closed or the broker ends. Everything but .log and partition.metadata is rebuilt from the
batches, so a broker that was killed loses nothing of a log; half a batch at its end is cut off, as Kafka does.
"""

from __future__ import annotations

import os
import re
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import UUID

from kwire.broker.diagnostics import logger
from kwire.errors import CorruptRecordsError, ErrorCode, broker_error
from kwire.protocol.messages.aborted_txn import AbortedTxn
from kwire.protocol.messages.producer_snapshot import ProducerSnapshot
from kwire.records import BATCH_OVERHEAD_BYTES, Batch, convert, decode_batches
from kwire.wire.checksums import crc32c

if TYPE_CHECKING:
    from kwire.broker.log import PartitionLog, StoredBatch

INDEX_INTERVAL_BYTES = 4096
_HEAD = struct.Struct(">qi")
_OFFSET_ENTRY, _TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")
_VERSION = struct.Struct(">h")
_MAGIC_AT = 16
_SIZE_MIN = 14 + _HEAD.size  # of a message of format v0
_SEGMENT = re.compile(r"\d{20}\.log")
_OF_SEGMENTS = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)")
_OPEN_FILES_MAX = 64


class OpenFiles:
    """The .log files that are open for writing, the last used ones of all partitions."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, IO[bytes]] = OrderedDict()

    def get(self, path: Path) -> IO[bytes]:
        """Return a file, opened to append without a buffer."""
        file = self._files.pop(path, None)
        if file is None:
            if len(self._files) >= _OPEN_FILES_MAX:
                self._files.popitem(last=False)[1].close()
            file = path.open("ab", buffering=0)
        self._files[path] = file
        return file

    def close(self, path: Path) -> None:
        """Close a file, if it is open."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


class SegmentFiles:
    """The folder of a partition. Its log calls it after each change, and before a batch is acknowledged."""

    def __init__(self, folder: Path, open_files: OpenFiles) -> None:
        self.folder = folder
        self._open = open_files

    def create(self, topic_id: UUID) -> None:
        """Make the folder and partition.metadata, unless they are there."""
        self.folder.mkdir(exist_ok=True)
        metadata = self.folder / "partition.metadata"
        if not metadata.exists():
            write_whole(metadata, f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode())

    def append(self, base_offset: int, data: bytes | memoryview) -> None:
        """Write a batch to the segment of this base offset. Raises KAFKA_STORAGE_ERROR; the file is then as before."""
        path = self._path(base_offset, "log")
        try:
            file = self._open.get(path)
            size = file.seek(0, os.SEEK_END)
            written = file.write(data)
            if written != len(data):
                file.truncate(size)
                raise OSError(f"only {written} of {len(data)} bytes were written")
        except OSError as error:
            why = f"cannot write {path}: {error}"
            logger.error("%s: free some space, or check the permissions of the directory", why)
            raise broker_error(ErrorCode.KAFKA_STORAGE_ERROR, why) from error

    def close_segment(self, log: PartitionLog, index: int) -> None:
        """Write the indexes of a segment that gets no more batches, and the producers at its end.

        A failure is logged: all of this can be made from the batches again.
        """
        end = log.segments[index + 1] if index + 1 < len(log.segments) else log.end_offset
        try:
            self._write_indexes(log, index)
            self._write_snapshot(log, end)
        except OSError as error:
            logger.error("cannot write the indexes of %s: %s", self._path(log.segments[index], "log"), error)

    def rewrite(self, log: PartitionLog) -> None:
        """Write all segments anew: the log was compacted or truncated."""
        wanted = {f"{base:020}.log" for base in log.segments}
        for index, base in enumerate(log.segments):
            path = self._path(base, "log")
            data = b"".join(stored.data for stored in log.segment_batches(index))
            if not path.exists() or path.stat().st_size != len(data) or path.read_bytes() != data:
                self._open.close(path)
                write_whole(path, data)
            self._write_indexes(log, index)
        self._remove(wanted, log.end_offset)
        self.write_epochs(log)

    def trim(self, log: PartitionLog) -> None:
        """Remove the segments before the start of the log, and from the first one left the batches before it."""
        self._remove({f"{base:020}.log" for base in log.segments}, log.end_offset)
        path = self._path(log.segments[0], "log")
        data = b"".join(stored.data for stored in log.segment_batches(0))
        if path.exists() and path.stat().st_size != len(data):
            self._open.close(path)
            write_whole(path, data)

    def write_epochs(self, log: PartitionLog) -> None:
        """Write leader-epoch-checkpoint."""
        lines = [f"{epoch} {start}" for epoch, start in log.epochs]
        write_whole(self.folder / "leader-epoch-checkpoint", checkpoint(lines))

    def close(self, log: PartitionLog) -> None:
        """Write what belongs to the active segment: the broker ends."""
        path = self._path(log.segments[-1], "log")
        if not path.exists():
            path.touch()
        self.close_segment(log, len(log.segments) - 1)
        self.write_epochs(log)
        self._open.close(path)

    def delete(self) -> None:
        """Remove the folder: the topic is deleted. A failure is logged."""
        try:
            self._remove(set(), -1)
            for name in ("leader-epoch-checkpoint", "partition.metadata"):
                (self.folder / name).unlink(missing_ok=True)
        except FileNotFoundError:  # the folder is gone already
            return
        except OSError as error:
            logger.error("cannot remove %s: %s: remove it, or the topic comes back", self.folder, error)
        with suppress(OSError):  # somebody else's file stays, and its folder
            self.folder.rmdir()

    def _remove(self, wanted: set[str], end: int) -> None:
        """Remove all files of segments that are not wanted, and snapshots after `end`."""
        for path in self.folder.iterdir():
            if not _OF_SEGMENTS.fullmatch(path.name):
                continue
            is_old = f"{path.stem}.log" not in wanted and not (path.suffix == ".snapshot" and int(path.stem) == end)
            if is_old:
                self._open.close(path)
                path.unlink(missing_ok=True)

    def _path(self, base_offset: int, kind: str) -> Path:
        return self.folder / f"{base_offset:020}.{kind}"

    def _write_indexes(self, log: PartitionLog, index: int) -> None:
        base, batches = log.segments[index], log.segment_batches(index)
        offsets, times = index_entries(base, batches)
        write_whole(self._path(base, "index"), b"".join(_OFFSET_ENTRY.pack(*entry) for entry in offsets))
        write_whole(self._path(base, "timeindex"), b"".join(_TIME_ENTRY.pack(*entry) for entry in times))
        aborted = log.aborted_between(base, batches[-1].last_offset) if batches else []
        path = self._path(base, "txnindex")
        if aborted:
            entries = [
                AbortedTxn(
                    producer_id=one.producer_id, first_offset=one.first_offset, last_offset=one.last_offset,
                    last_stable_offset=one.last_offset + 1,
                )
                for one in sorted(aborted, key=lambda one: one.last_offset)
                if one.last_offset <= batches[-1].last_offset
            ]  # fmt: skip
            write_whole(path, b"".join(_VERSION.pack(0) + entry.encode(0) for entry in entries))
        else:
            path.unlink(missing_ok=True)

    def _write_snapshot(self, log: PartitionLog, offset: int) -> None:
        """Write the producers as of `offset`, which is the end of the log."""
        entries = []
        for producer in log.producers:
            last = producer.batches[-1] if producer.batches else None
            opened = log.producers.open_transaction_offset(producer.producer_id)
            entries.append(
                ProducerSnapshot.ProducerEntry(
                    producer_id=producer.producer_id, epoch=producer.epoch, last_sequence=producer.last_sequence,
                    last_offset=-1 if last is None else last.last_offset,
                    offset_delta=0 if last is None else last.last_offset - last.base_offset,
                    timestamp=producer.last_ms, coordinator_epoch=producer.coordinator_epoch,
                    current_txn_first_offset=-1 if opened is None else opened,
                )
            )  # fmt: skip
        body = ProducerSnapshot(crc=0, producer_entries=entries).encode(1)[4:]
        write_whole(self._path(offset, "snapshot"), _VERSION.pack(1) + crc32c(body).to_bytes(4, "big") + body)

    # Reading.

    def read(self) -> Iterator[tuple[int, list[Batch]]]:
        """Yield (base offset, batches) of each segment. What follows a damaged batch is cut off and logged."""
        names = sorted(path.name for path in self.folder.iterdir() if _SEGMENT.fullmatch(path.name))
        for index, name in enumerate(names):
            path = self.folder / name
            data = path.read_bytes()
            batches, end = _decode(data)
            yield int(path.stem), batches
            if end < len(data):
                if any(data[end:]):  # zeros are preallocated
                    left = [*names[index + 1 :]]
                    more = f"; the segments after it too: {', '.join(left)}" if left else ""
                    logger.warning("%s is cut off at %d of %d bytes, as in Kafka%s", path, end, len(data), more)
                    for later in left:
                        (self.folder / later).unlink()
                with path.open("r+b") as file:
                    file.truncate(end)
                if any(data[end:]):
                    return

    def read_epochs(self) -> list[tuple[int, int]]:
        """Return (leader epoch, first offset) of leader-epoch-checkpoint, [] if there is none."""
        return [(int(line[0]), int(line[1])) for line in read_checkpoint(self.folder / "leader-epoch-checkpoint", 2)]

    def read_topic_id(self) -> UUID | None:
        """Return the topic's id from partition.metadata, None if it is not there."""
        path = self.folder / "partition.metadata"
        found = re.search(r"topic_id:\s*(\S+)", path.read_text()) if path.exists() else None
        return None if found is None else decode_uuid(found[1])


def index_entries(
    base: int, batches: Sequence[StoredBatch], interval: int = INDEX_INTERVAL_BYTES
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the entries of .index (offset - base, position) and .timeindex (timestamp, offset - base).

    There is one every `interval` bytes, and a last one of the largest timestamp (Kafka's LogSegment.append).
    """
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    position = since = 0
    largest = -1, base
    for stored in batches:
        if stored.max_timestamp_ms > largest[0]:
            largest = stored.max_timestamp_ms, stored.last_offset
        if since > interval:
            offsets.append((stored.last_offset - base, position))
            _add_time(times, largest, base)
            since = 0
        size = len(stored.data)
        position += size
        since += size
    _add_time(times, largest, base)
    return offsets, times


def _add_time(times: list[tuple[int, int]], largest: tuple[int, int], base: int) -> None:
    if largest[0] >= 0 and (not times or largest[0] > times[-1][0]):
        times.append((largest[0], largest[1] - base))


def _decode(data: bytes) -> tuple[list[Batch], int]:
    """Return the intact batches of a segment, those of old formats converted, and where they end."""
    view, at = memoryview(data), 0
    batches: list[Batch] = []
    while at + BATCH_OVERHEAD_BYTES <= len(data) or (at + _SIZE_MIN <= len(data) and data[at + _MAGIC_AT] < 2):
        size = _HEAD.unpack_from(data, at)[1] + _HEAD.size
        if size < _SIZE_MIN or at + size > len(data):
            break
        try:
            if data[at + _MAGIC_AT] < 2:
                batches += decode_batches(convert(view[at : at + size], 2))
            else:
                batches += decode_batches(view[at : at + size])
        except CorruptRecordsError:
            break
        at += size
    return batches, at


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file at once: a reader sees the old content or the new one."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def checkpoint(lines: Sequence[str]) -> bytes:
    """Return a checkpoint file: its version, the number of lines, the lines."""
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def read_checkpoint(path: Path, words: int) -> list[list[str]]:
    """Return the lines of a checkpoint that have this number of words; [] if there is no such file."""
    if not path.exists():
        return []
    return [line.split() for line in path.read_text().splitlines()[2:] if len(line.split()) == words]


def encode_uuid(id: UUID) -> str:
    """Return an id as Kafka's Uuid prints it: base64 for URLs without padding."""
    return urlsafe_b64encode(id.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    """Read an id as Kafka's Uuid prints it."""
    return UUID(bytes=urlsafe_b64decode(f"{text}=="))
