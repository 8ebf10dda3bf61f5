"""The record code of kafka-python and aiokafka: each reads kwire's batches, and kwire reads theirs."""

from __future__ import annotations

import warnings
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.records import Compression, Record, decode_batches

from .cases import CASES, Case, seen
from .test_kafka_samples import encoded

pytestmark = pytest.mark.usefixtures("loops")

MODULES = ("memory_records", "default_records", "legacy_records")


def record_modules(package: str) -> SimpleNamespace:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a peer deprecates of the standard library is its own affair
        return SimpleNamespace(**{name: import_module(f"{package}.record.{name}") for name in MODULES})


PEERS = {name: record_modules(package) for name, package in {"kafka-python": "kafka", "aiokafka": "aiokafka"}.items()}

# lz4 as message sets of v0 want it is more than they know; samples/ has Kafka's.
READABLE = [case for case in CASES if (case.magic, case.codec) != (0, Compression.LZ4)]

each_peer = pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)


def read_by(peer: Any, data: bytes) -> list[Record]:
    batches = peer.memory_records.MemoryRecords(data)
    records = []
    while (batch := batches.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
            headers = tuple((name, None if part is None else bytes(part)) for name, part in record.headers)
            timestamp = -1 if record.timestamp is None else record.timestamp
            records.append(Record(record.offset, timestamp, key, value, headers))
    return records


def written_by(peer: Any, case: Case) -> bytes:
    """Offsets from 0 on, as clients produce."""
    size = 1 << 20
    if case.magic == 2:
        builder = peer.default_records.DefaultRecordBatchBuilder(
            magic=2, compression_type=int(case.codec), is_transactional=False, producer_id=-1, producer_epoch=-1,
            base_sequence=-1, batch_size=size,
        )  # fmt: skip
    else:
        builder = peer.legacy_records.LegacyRecordBatchBuilder(
            magic=case.magic, compression_type=int(case.codec), batch_size=size
        )
    for offset, (timestamp, key, value, headers) in enumerate(case.new_records):
        assert builder.append(offset, timestamp=timestamp, key=key, value=value, headers=list(headers)) is not None
    return bytes(builder.build())


@each_peer
@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.name)
def test_reads_ours(peer: Any, case: Case) -> None:
    assert read_by(peer, encoded(case)) == case.expected()


@each_peer
@pytest.mark.parametrize("case", [case for case in READABLE if case.timestamp_type == 0], ids=lambda case: case.name)
def test_ours_reads(peer: Any, case: Case) -> None:
    expected = [record._replace(offset=index) for index, record in enumerate(case.expected())]
    assert seen(decode_batches(written_by(peer, case))) == expected
