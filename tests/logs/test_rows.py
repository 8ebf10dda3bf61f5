"""Segments as rows: what `kwire dump-log --print-data` says of the same files."""

from __future__ import annotations

import io
import json
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest

from kwire.errors import KwireError
from kwire.logs.files import base_offset_of, is_live_segment, is_segment, kind_of, topic_partition_of
from kwire.logs.rows import LogRow, read_rows
from kwire.protocol import encode_internal_record
from kwire.protocol.internal_topics import InternalRecord
from kwire.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from kwire.protocol.messages.share_state_records import ShareSnapshotKey, ShareSnapshotValue
from kwire.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from kwire.records import encode_batch
from tests.cli.running import run
from tests.cli.test_dump_log import LOG, SEGMENT, STARTS, batch

ORDERS = PurePosixPath(f"/data/orders-0/{SEGMENT}.log")


def read(data: bytes, path: PurePosixPath = ORDERS, topic: str | None = None) -> tuple[list[LogRow], list[KwireError]]:
    found = list(read_rows(io.BytesIO(data), path, topic))
    problems = [one for one in found if isinstance(one, KwireError)]
    return [row for one in found if not isinstance(one, KwireError) for row in one], problems


def test_every_record_is_a_row(tmp_path: Path) -> None:
    rows, problems = read(LOG)
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{SEGMENT}.log").write_bytes(LOG)
    dumped = [one for one in run("dump-log", "--print-data", str(folder)).lines() if one["kind"] == "record"]
    assert not problems
    assert len(rows) == len(dumped) == 31
    for row, line in zip(rows, dumped, strict=True):
        assert (row.offset, row.timestamp_ms) == (line["offset"], line["timestamp_ms"])
        if row.is_control:
            assert row.control is not None
            assert json.loads(row.control) == line["control"]
        else:
            assert (row.key, row.value) == (line["key"].encode(), line["value"].encode())
    assert {(row.topic, row.partition) for row in rows} == {("orders", 0)}


def test_what_the_batch_says() -> None:
    rows, _ = read(LOG)
    assert (rows[0].producer_id, rows[0].sequence, rows[0].is_transactional) == (None, None, False)
    assert (rows[10].compression, rows[10].position) == ("gzip", STARTS[1])
    written = rows[20:30]
    assert [(row.producer_id, row.producer_epoch, row.is_transactional) for row in written] == [(7, 1, True)] * 10
    assert [row.sequence for row in written] == list(range(10))
    end = rows[30]
    assert (end.offset, end.is_control, end.sequence) == (135, True, None)
    assert '"name":"EndTxnMarker"' in (end.control or "")


def test_a_sequence_wraps() -> None:
    rows, _ = read(batch(100, 3, producer_id=1, producer_epoch=0, base_sequence=0x7FFFFFFE))
    assert [row.sequence for row in rows] == [0x7FFFFFFE, 0x7FFFFFFF, 0]


def test_no_timestamp_is_none() -> None:
    rows, _ = read(encode_batch([(-1, b"k", b"v", ())], base_offset=100))
    assert rows[0].timestamp_ms is None


def test_a_damaged_batch_is_a_problem_where_it_is() -> None:
    broken = bytearray(LOG)
    broken[STARTS[1] + 70] ^= 1
    found = list(read_rows(io.BytesIO(bytes(broken)), ORDERS))
    assert [isinstance(one, KwireError) for one in found] == [False, True, False, False]
    problem = found[1]
    assert isinstance(problem, KwireError)
    assert STARTS[1] <= problem.where["offset"] < STARTS[2]  # type: ignore[operator]
    assert [row.offset for row in read(bytes(broken))[0]] == [*range(100, 110), *range(125, 136)]


INTERNAL: list[tuple[str, Any, Any, str]] = [
    ("__consumer_offsets", OffsetCommitKey(group="readers", topic="orders", partition=1),
     OffsetCommitValue(offset=42, metadata="", commit_timestamp=1), '"offset":42'),
    ("__transaction_state", TransactionLogKey(transactional_id="copier"),
     TransactionLogValue(producer_id=4711, producer_epoch=2, transaction_timeout_ms=60_000, transaction_status=1,
                         transaction_partitions=[], transaction_last_update_timestamp_ms=1,
                         transaction_start_timestamp_ms=1), '"producerId":4711'),
    ("__share_group_state", ShareSnapshotKey(group_id="queue", topic_id=UUID(int=1), partition=0),
     ShareSnapshotValue(snapshot_epoch=3, state_epoch=1, leader_epoch=0, start_offset=17, state_batches=[],
                        create_timestamp=1, write_timestamp=1), '"startOffset":17'),
]  # fmt: skip


@pytest.mark.parametrize(("topic", "key", "value", "expected"), INTERNAL, ids=[one[0] for one in INTERNAL])
def test_internal_topics_are_decoded(topic: str, key: Any, value: Any, expected: str) -> None:
    version = 3 if isinstance(value, OffsetCommitValue) else 0
    encoded = encode_internal_record(InternalRecord(key, value, version))
    data = encode_batch([(1, *encoded, ()), (2, encoded[0], None, ())], base_offset=0)
    path = PurePosixPath(f"/data/{topic}-7/{0:020}.log")
    (row, tombstone), problems = read(data, path)
    assert not problems
    assert row.decoded is not None
    assert expected in row.decoded
    assert (row.topic, row.partition, row.key) == (topic, 7, encoded[0])
    assert tombstone.decoded is not None
    assert json.loads(tombstone.decoded)["value"] is None


def test_an_internal_record_that_makes_no_sense() -> None:
    data = encode_batch([(1, b"\xff\xff", b"x", ())], base_offset=0)
    rows, problems = read(data, topic="__consumer_offsets")
    assert [row.decoded for row in rows] == [None]
    assert "of offset 0" in str(problems[-1])


@pytest.mark.parametrize(
    ("name", "kind", "segment", "live", "first"),
    [
        ("orders-0/00000000000000000042.log", "log", True, True, 42),
        ("orders-0/00000000000000000042.log.deleted", "log", True, False, 42),
        (f"orders-0.{'a' * 32}-stray/00000000000000000042.log", "log", True, False, 42),
        ("copied/00000000000000000042.log", "log", True, True, 42),
        ("orders-0/00000000000000000042.timeindex", "timeindex", False, False, 42),
        ("__cluster_metadata-0/00000000000000000042-0000000001.checkpoint", "log", True, True, 0),
        ("orders-0/server.log", "log", False, False, 0),
        ("orders-0/leader-epoch-checkpoint", "text", False, False, 0),
        ("orders-0/readme", None, False, False, 0),
    ],
)
def test_names(name: str, kind: str | None, segment: bool, live: bool, first: int) -> None:
    path = PurePosixPath(name)
    assert (kind_of(path), base_offset_of(path)) == (kind, first)
    assert (is_segment(path), is_live_segment(path)) == (segment, live)


def test_folders() -> None:
    for folder, expected in (
        ("my.topic-with-3-12", ("my.topic-with-3", 12)),
        (f"orders-0.{'a' * 32}-delete", ("orders", 0)),
        ("orders", (None, None)),
    ):
        assert topic_partition_of(PurePosixPath(folder, "0.log")) == expected
