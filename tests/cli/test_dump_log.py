"""`kwire dump-log` with files made by hand: valid ones, and one for each kind of damage.

tests/conformance/test_real_logs.py compares it with Kafka's own tool on what a broker wrote.
"""

from __future__ import annotations

import io
import os
import re
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from kwire.logs.indexes import read_offset_index, read_time_index
from kwire.logs.segments import Unused, count_zeros, read_segment
from kwire.protocol import encode_internal_record
from kwire.protocol.fields import NO_ID
from kwire.protocol.internal_topics import InternalRecord
from kwire.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from kwire.protocol.messages.metadata_topic_records import TopicRecord
from kwire.protocol.messages.producer_snapshot import ProducerSnapshot
from kwire.records import Compression, encode_batch, encode_control_batch
from kwire.wire.checksums import crc32c
from tests.cli.running import Ran, run
from tests.cli.test_capture_view import GROWTH
from tests.cli.test_process import environment
from tests.conftest import missing

SEGMENT = "00000000000000000100"


def batch(base_offset: int, count: int = 10, *, at_ms: int = 1_700_000_000_000, **options: Any) -> bytes:
    records = [(at_ms + n, b"k%d" % n, b"v" * 50, ()) for n in range(count)]
    return encode_batch(records, base_offset=base_offset, **options)


BATCHES = [
    batch(100),
    batch(110, compression=Compression.GZIP, at_ms=1_700_000_001_000),
    batch(125, at_ms=1_700_000_000_500, producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True),
    encode_control_batch(
        "commit", base_offset=135, producer_id=7, producer_epoch=1, coordinator_epoch=3, timestamp_ms=1_700_000_002_000
    ),
]
LOG = b"".join(BATCHES)
STARTS = [sum(map(len, BATCHES[:index])) for index in range(len(BATCHES))]
TIMES = [1_700_000_000_009, 1_700_000_001_009, 1_700_000_002_000]


def offset_index(entries: Sequence[tuple[int, int]], unused: int = 0) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries) + bytes(8 * unused)


def time_index(entries: Sequence[tuple[int, int]], unused: int = 0) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries) + bytes(12 * unused)


def aborted(entries: Sequence[tuple[int, int, int, int]], version: int = 0) -> bytes:
    return b"".join(struct.pack(">hqqqq", version, *entry) for entry in entries)


def snapshot(count: int = 2) -> bytes:
    entries = [
        ProducerSnapshot.ProducerEntry(
            producer_id=7 + n, epoch=1, last_sequence=9, last_offset=134, offset_delta=9, timestamp=1_700_000_000_000,
            coordinator_epoch=3, current_txn_first_offset=-1,
        )
        for n in range(count)
    ]  # fmt: skip
    data = ProducerSnapshot(crc=0, producer_entries=entries).encode(1)
    return struct.pack(">hI", 1, crc32c(data[4:])) + data[4:]


FILES = {
    f"{SEGMENT}.log": LOG,
    f"{SEGMENT}.index": offset_index([(19, STARTS[1]), (34, STARTS[2])], unused=100),
    f"{SEGMENT}.timeindex": time_index([(TIMES[0], 9), (TIMES[1], 19), (TIMES[2], 35)], unused=100),
    f"{SEGMENT}.txnindex": aborted([(7, 100, 109, 110), (8, 105, 119, 120)]),
    f"{SEGMENT}.snapshot": snapshot(),
    "leader-epoch-checkpoint": b"0\n2\n0 100\n3 120\n",
    "recovery-point-offset-checkpoint": b"0\n1\norders 0 136\n",
    "cleaner-offset-checkpoint": b"",
    "partition.metadata": b"version: 0\ntopic_id: KYnenGz_Sly-OchlWv0VJw\n",
    "meta.properties": b"#a comment\nnode.id=1\nversion=1\n",
    "quorum-state": b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":0}\n',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "orders-0"
    inside.mkdir()
    for name, data in FILES.items():
        (inside / name).write_bytes(data)
    (inside / "server.log").write_text("no log of records")
    return inside


def problems(ran: Ran) -> list[tuple[str, int]]:
    return [(line["message"], line.get("offset", -1)) for line in ran.lines() if line["kind"] == "problem"]


def test_a_folder(folder: Path) -> None:
    ran = run("dump-log", str(folder), "--deep")
    assert (ran.code, ran.stderr) == (0, f"{len(FILES)} files, 0 problems\n")
    lines = ran.lines()
    by_kind = {kind: [line for line in lines if line["kind"] == kind] for kind in {line["kind"] for line in lines}}
    assert [(one["position"], one["base_offset"], one["last_offset"], one["is_valid"]) for one in by_kind["batch"]] == [
        (STARTS[0], 100, 109, True), (STARTS[1], 110, 119, True), (STARTS[2], 125, 134, True),
        (STARTS[3], 135, 135, True),
    ]  # fmt: skip
    assert [one["compression"] for one in by_kind["batch"]] == ["none", "gzip", "none", "none"]
    assert [one["offset"] for one in by_kind["entry"]] == [119, 134, 109, 119, 135]
    assert [one["producer_id"] for one in by_kind["aborted"]] == [7, 8]
    assert [one["last_offset"] for one in by_kind["producer"]] == [134, 134]
    texts = [{name: value for name, value in one.items() if name not in ("file", "kind")} for one in by_kind["line"]]
    assert {"epoch": 3, "start_offset": 120} in texts
    assert {"topic": "orders", "partition": 0, "offset": 136} in texts
    assert {"node.id": "1", "version": "1"} in texts
    assert {"version": "0", "topic_id": "KYnenGz_Sly-OchlWv0VJw"} in texts
    end = next(one for one in by_kind["end"] if one["file"].endswith(".log"))
    assert (end["batches"], end["records"], end["first_offset"], end["last_offset"]) == (4, 31, 100, 135)


def test_a_segment_as_a_table(folder: Path) -> None:
    ran = run("dump-log", str(folder / f"{SEGMENT}.log"), "-f", "table", "--print-data")
    lines = ran.stdout.splitlines()
    assert lines[1].split() == ["position", "offsets", "records", "bytes", "newest", "details"]
    assert lines[2].split()[:3] == ["0", "100-109", "10"]
    assert re.match(r" +@100  2023-11-14 22:13:20\.000Z  k0  v{50}$", lines[3])
    assert any("control EndTxnMarker" in line for line in lines)
    assert any(line.endswith("v2, producer 7/1, sequence 0, transactional") for line in lines)
    assert lines[-2] == f"4 batches of 31 records, offsets 100 to 135, {len(LOG)} bytes, 0 problems"
    table = run("dump-log", str(folder), "-f", "table").stdout
    assert "leader-epoch-checkpoint\nepoch: 0  start_offset: 100\n" in table
    check = run("dump-log", str(folder), "-f", "table", "--check").stdout.splitlines()
    assert len(check) == len(FILES)


def damaged(at: int, data: bytes = LOG) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


CRC = "the batch says that its CRC-32C"
WRONG_LOGS = [
    # The problem, its position, and how many of the four batches are still shown.
    (damaged(STARTS[1] + 70), CRC, STARTS[1], 4),
    (damaged(STARTS[2] + 30), CRC, STARTS[2], 4),
    (LOG[: STARTS[3] + 30], "the file ends inside a batch, after 30 of its 78 bytes", STARTS[3], 3),
    (LOG[: STARTS[3] + 8], "8 bytes are too few for a batch", STARTS[3], 3),
    (LOG[: STARTS[2]] + b"\xff" * 100, "there is no message format v255; 100 bytes from here", STARTS[2], 2),
    (
        LOG[: STARTS[2] + 8] + b"\x7f" + LOG[STARTS[2] + 9 :],
        "2130707071 bytes is not a valid size of a batch of format v2",
        STARTS[2],
        2,
    ),
    (BATCHES[0] + BATCHES[0], "offsets do not ascend: a batch of offsets 100 to 109 where 110", len(BATCHES[0]), 2),
    (batch(99, 1) + LOG, "offsets do not ascend: a batch of offsets 99 to 99 where 100", 0, 5),
]


@pytest.mark.parametrize(("data", "message", "position", "batches"), WRONG_LOGS)
def test_what_is_wrong_with_a_log(data: bytes, message: str, position: int, batches: int, tmp_path: Path) -> None:
    file = tmp_path / f"{SEGMENT}.log"
    file.write_bytes(data)
    ran = run("dump-log", str(file))
    assert ran.code == 4
    ((text, offset),) = problems(ran)
    assert text.startswith(message)
    assert offset == position
    assert len([line for line in ran.lines() if line["kind"] == "batch"]) == batches
    assert f"offset {position}" in run("dump-log", "-f", "table", "--check", str(file)).stdout


def test_wrong_records_with_a_right_checksum(tmp_path: Path) -> None:
    data = bytearray(BATCHES[0])
    data[61] ^= 0x08  # the first record's length
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    file = tmp_path / f"{SEGMENT}.log"
    file.write_bytes(data)
    assert run("dump-log", str(file)).code == 0
    for option in ("--deep", "--print-data"):
        ran = run("dump-log", str(file), option)
        assert (ran.code, len(problems(ran))) == (4, 1)


def test_leader_epochs_that_fall(tmp_path: Path) -> None:
    first, second = bytearray(batch(100)), bytearray(batch(110))
    first[12:16], second[12:16] = struct.pack(">i", 5), struct.pack(">i", 4)
    file = tmp_path / f"{SEGMENT}.log"
    file.write_bytes(first + second)
    assert problems(run("dump-log", str(file))) == [("leader epochs fall: 4 after 5", len(first))]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_old_message_formats(magic: int, codec: Compression, tmp_path: Path) -> None:
    records = [(1_700_000_000_000, b"k", b"v%d" % n, ()) for n in range(5)]
    data = b"".join(encode_batch(records, magic=magic, compression=codec, base_offset=offset) for offset in (100, 105))
    file = tmp_path / f"{SEGMENT}.log"
    file.write_bytes(data)
    ran = run("dump-log", str(file), "--print-data")
    assert ran.code == 0
    assert [line["offset"] for line in ran.lines() if line["kind"] == "record"] == list(range(100, 110))
    file.write_bytes(damaged(len(data) - 3, data))
    assert "CRC-32 is" in problems(run("dump-log", str(file)))[0][0]


def test_preallocated_zeros(tmp_path: Path) -> None:
    file = tmp_path / f"{SEGMENT}.log"
    file.write_bytes(LOG + bytes(5000))
    ran = run("dump-log", str(file))
    assert ran.code == 0
    (unused,) = (line for line in ran.lines() if line["kind"] == "unused")
    assert (unused["position"], unused["size_bytes"]) == (len(LOG), 5000)
    file.write_bytes(LOG + bytes(5000) + b"x")
    assert run("dump-log", str(file)).code == 4


WRONG_FILES = [
    (".index", offset_index([(34, STARTS[2]), (19, STARTS[1])]), "entries do not ascend", 8),
    (".index", offset_index([(19, STARTS[1] + 1)]), f"no batch of the log begins at {STARTS[1] + 1}", 0),
    (".index", offset_index([(19, STARTS[1]), (200, len(LOG))]), "is after the last batch of the log", 8),
    (".index", offset_index([(19, STARTS[2])]), f"offset 119 should be at {STARTS[2]}, where 125 begins", 0),
    (".index", offset_index([(19, STARTS[1])]) + b"\0\0\0", "the file ends inside an entry: 3 of 8 bytes", 8),
    (".timeindex", time_index([(TIMES[1], 19), (TIMES[0], 9)]), "entries do not ascend", 12),
    (".timeindex", time_index([(TIMES[0] + 1, 9)]), "is not the largest timestamp up to offset 109", 0),
    (".timeindex", time_index([(TIMES[2], 36)]), "offset 136 is after the last batch", 0),
    (".timeindex", time_index([(TIMES[0], 9)]) + b"\1", "the file ends inside an entry: 1 of 12", 12),
    (".txnindex", aborted([(7, 109, 100, 110)]), "a transaction of offsets 109 to 100", 0),
    (".txnindex", aborted([(7, 100, 109, 110), (7, 100, 109, 110)]), "a transaction of offsets 100 to 109 after", 34),
    (".txnindex", aborted([(7, 100, 109, 110)], version=1), "unknown version 1 of an entry", 0),
    (".txnindex", aborted([(7, 100, 109, 110)])[:-1], "the file ends inside an entry: 33 of 34", 0),
    (".snapshot", damaged(30, snapshot()), "the snapshot's CRC-32C is", 2),
    (".snapshot", snapshot()[:-1], "2 elements of at least", 6),
    (".snapshot", b"\0\7" + snapshot()[2:], "unknown version 7 of a producer snapshot", 0),
    (".snapshot", b"", "unknown version 0 of a producer snapshot", 0),
    ("leader-epoch-checkpoint", b"0\n2\n3 100\n3 120\n", "epochs do not ascend", 10),
    ("leader-epoch-checkpoint", b"0\n3\n0 100\n3 120\n", "the file has 2 lines, but its count says 3", 2),
    ("leader-epoch-checkpoint", b"0\n1\n0 x\n", "cannot parse the line '0 x'", 4),
    ("leader-epoch-checkpoint", b"1\n1\n0 0\n", "unknown version 1 of a checkpoint", 0),
    ("leader-epoch-checkpoint", b"\0\0\0\0", "the first two lines are not a version and a count", 0),
    ("replication-offset-checkpoint", b"0\n1\n0 1\n", "cannot parse the line", 4),
    ("quorum-state", b"{", "not JSON", 0),
    ("partition.metadata", b"\xff\xfe", "not text", 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "message", "position"), WRONG_FILES)
def test_what_is_wrong_with_indexes_and_checkpoints(
    name: str, data: bytes, message: str, position: int, folder: Path
) -> None:
    file = folder / (SEGMENT + name if name.startswith(".") else name)
    file.write_bytes(data)
    ran = run("dump-log", str(file))
    assert ran.code == 4
    text, offset = problems(ran)[0]
    assert message in text
    assert offset == position


@pytest.mark.parametrize("suffix", ["", ".deleted"])
def test_an_index_without_its_log(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"{SEGMENT}.index{suffix}"
    file.write_bytes(offset_index([(19, 5)], unused=3))
    assert run("dump-log", str(file)).code == 0
    (tmp_path / f"{SEGMENT}.log{suffix}").write_bytes(LOG)
    assert run("dump-log", str(file)).code == 4
    file.write_bytes(bytes(80))
    assert [line["kind"] for line in run("dump-log", str(file)).lines()] == ["end"]


def test_the_records_of_kafkas_own_topics(tmp_path: Path) -> None:
    key, value = encode_internal_record(
        InternalRecord(
            OffsetCommitKey(group="g", topic="orders", partition=3),
            OffsetCommitValue(offset=42, metadata="", commit_timestamp=1),
            3,
        )
    )
    folder = tmp_path / "__consumer_offsets-7"
    folder.mkdir()
    file = folder / "00000000000000000000.log"
    file.write_bytes(encode_batch([(1, key, value, ()), (2, key, None, ()), (3, b"\0\1bad", b"", ())]))
    ran = run("dump-log", str(file), "--print-data")
    assert ran.code == 4
    committed, deleted, unread = (line for line in ran.lines() if line["kind"] == "record")
    assert committed["key"] == {"type": "OffsetCommit", "data": {"group": "g", "topic": "orders", "partition": 3}}
    assert (committed["value"]["type"], committed["value"]["version"]) == ("OffsetCommit", 3)
    assert committed["value"]["data"]["offset"] == 42
    assert (deleted["key"], deleted["value"]) == (committed["key"], None)
    assert unread["key"] == "\0\1bad"
    assert [position for _, position in problems(ran)] == [0]
    # Another folder does not name the topic.
    copy = tmp_path / "00000000000000000000.log"
    copy.write_bytes(file.read_bytes())
    assert isinstance(next(x for x in run("dump-log", str(copy), "--print-data").lines() if "key" in x)["key"], str)
    lines = run("dump-log", str(copy), "--print-data", "--topic", "__consumer_offsets").lines()
    assert next(x for x in lines if "key" in x)["key"]["type"] == "OffsetCommit"
    table = run("dump-log", "-f", "table", "--print-data", str(file)).stdout
    assert "@0  1970-01-01 00:00:00.001Z  OffsetCommit {" in table


def test_a_snapshot_of_the_metadata(tmp_path: Path) -> None:
    _, value = encode_internal_record(InternalRecord(None, TopicRecord(name="orders", topic_id=NO_ID), 0))
    file = tmp_path / "00000000000000000005-0000000002.checkpoint"
    file.write_bytes(encode_batch([(1, None, value, ())]))
    (record,) = (line for line in run("dump-log", str(file), "--print-data").lines() if line["kind"] == "record")
    assert record["value"]["type"] == "TopicRecord"
    assert record["value"]["data"]["name"] == "orders"


@pytest.mark.parametrize(
    ("name", "says"), [("notes.txt", "is not the name of a broker's file"), ("empty", "has no log files")]
)
def test_other_files_are_errors(name: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.mkdir() if name == "empty" else path.write_text("x")
    ran = run("dump-log", str(path))
    assert (ran.code, ran.stdout) == (2, "")
    assert says in ran.stderr
    assert run("dump-log", str(tmp_path / "nosuch")).code == 2
    assert run("dump-log", str(tmp_path), "--topic", "__nosuch").code == 2


def test_memory_does_not_grow_with_the_segment(tmp_path: Path) -> None:
    """The peak memory for a segment of 48 MB is the same as for one of 4 MB."""
    one = encode_batch([(1_700_000_000_000, b"k", b"v" * 1000, ())] * 100)
    peaks = []
    for megabytes in (4, 48):
        file = tmp_path / "00000000000000000000.log"
        with file.open("wb") as log:
            for number in range(megabytes * 1_000_000 // len(one)):
                log.write(struct.pack(">q", number * 100) + one[8:])
        command = [sys.executable, "-c", GROWTH, "dump-log", "--deep", "-f", "json", str(file)]
        with Popen(command, stdout=PIPE, stderr=PIPE, env=environment()) as process:
            out, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        peaks.append(int(re.findall(rb"peak (\d+) KiB", said)[0]))
        assert out.count(b'"kind": "batch"') == megabytes * 1_000_000 // len(one)
    assert peaks[1] - peaks[0] < 10 * 1024, peaks


class CountedFile(io.FileIO):
    """A file that counts the bytes read from it."""

    bytes_read = 0

    def readinto(self, buffer: Any, /) -> int:
        size = super().readinto(buffer) or 0
        self.bytes_read += size
        return size


INDEXES: dict[str, Any] = {"index": read_offset_index, "timeindex": read_time_index}


@pytest.mark.parametrize("suffix", ["index", "timeindex", "log"])
def test_a_hole_is_not_read(suffix: str) -> None:
    """A preallocated file is a hole of 10 MB and more, and a log directory has two such files for each partition.

    A file in memory has holes on any Linux, whatever the file system of temporary files can do.
    """
    if not hasattr(os, "memfd_create"):
        missing("files in memory need Linux")
    with CountedFile(os.memfd_create(suffix), "rb") as raw:
        os.truncate(raw.fileno(), 64 * 1024 * 1024)
        file = io.BufferedReader(raw)
        found: list[Any] = list(read_segment(file) if suffix == "log" else INDEXES[suffix](file, 0))
        assert found == ([Unused(0, 64 * 1024 * 1024)] if suffix == "log" else [])
        assert raw.bytes_read < 1024 * 1024


def test_data_behind_a_hole_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as made:
        made.seek(8 * 1024 * 1024)
        made.write(b"x")
    with path.open("rb") as file:
        file.read(17)
        assert count_zeros(file) is None
        assert file.tell() == 17
    assert count_zeros(io.BytesIO(bytes(100))) == 100
    assert count_zeros(io.BytesIO(bytes(100) + b"x")) is None
