"""A builder's size is exactly its batch's size: at each varint boundary, for each way to append."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from kwire.producer.accumulator import ManyColumns
from kwire.records import decode_batches
from kwire.records.encoder import lead_bytes, record_bytes
from kwire.records.rows import BATCH_OVERHEAD_BYTES, NewRecord, record_bytes_max
from tests.producer.test_accumulator import Accumulators
from tests.wire.speedups import CAN_COMPILE, python, speedups

NOW = 1_700_000_000_000
EDGES = [0, 1, 63, 64, 65, 8_191, 8_192, 8_193]  # of one byte and of two
FURTHER = [*EDGES, 1 << 20, (1 << 20) - 1, 1 << 27, (1 << 27) - 1, 1 << 34, 1 << 41, 1 << 48, 1 << 55]


@pytest.fixture(params=["python", *(["c"] if CAN_COMPILE else [])])
def made(request: pytest.FixtureRequest) -> Any:
    return python if request.param == "python" else speedups()


def rows_of(*rows: tuple[bytes | None, bytes | None], times: list[int] | None = None) -> list[NewRecord]:
    return [(NOW + (times[at] if times else 0), key, value, ()) for at, (key, value) in enumerate(rows)]


STORIES: dict[str, list[NewRecord]] = {
    "values": rows_of(*((None, bytes(size)) for size in EDGES)),
    "keys": rows_of(*((bytes(size), b"v") for size in EDGES)),
    "keys and values": rows_of(*((bytes(size), bytes(8_192 - size)) for size in EDGES[:-1])),
    "nothing": rows_of(*[(None, None)] * 3),
    "a record of just another byte": rows_of(*((None, bytes(size)) for size in range(40, 70))),
    "and of one more": rows_of(*((None, bytes(size)) for size in range(8_170, 8_200))),
    "large": rows_of((None, bytes(1 << 20)), (bytes((1 << 20) - 1), None)),
    "offsets": rows_of(*[(None, b"")] * 8_300),
    "offsets, with keys": rows_of(*[(b"k", b"")] * 8_300),
    "times": rows_of(*[(None, b"v")] * len(FURTHER), times=FURTHER),
    "times back": rows_of(*[(None, b"v")] * 8, times=[0, -1, -64, -65, -8_192, -8_193, -(1 << 20), -(1 << 20) - 1]),
    "headers": [
        (NOW, None, b"v", tuple((name, content) for name in ("", "n" * size, "é")) + (("none", None),) * count)
        for size in EDGES for count in (0, 60, 61) for content in (bytes(size), None)
    ],
}  # fmt: skip


def size_of(rows: list[NewRecord]) -> int:
    base_timestamp = rows[0][0]
    return BATCH_OVERHEAD_BYTES + sum(
        record_bytes(lead_bytes(timestamp - base_timestamp, number), key, value, headers)
        for number, (timestamp, key, value, headers) in enumerate(rows)
    )


def is_of_values_alone(rows: list[NewRecord]) -> bool:
    return all(key is None and not headers and timestamp == NOW for timestamp, key, _, headers in rows)


WAYS = [
    *((story, way) for story in STORIES for way in ("append", "send", "append_many")),
    *((story, "values") for story, rows in STORIES.items() if is_of_values_alone(rows)),
]


@pytest.mark.parametrize(("story", "way"), WAYS)
def test_a_builder_has_the_size_of_its_batch(made: Any, story: str, way: str) -> None:
    rows = STORIES[story]
    accumulators = Accumulators(made, batch_bytes=1 << 30, bytes_max=1 << 30, record_bytes_max=1 << 30)
    accumulators.know(count=1)
    timestamps, keys, contents, headers = map(list, zip(*rows, strict=True))
    if way == "values":
        accumulators.accumulator.append_many("t", ManyColumns(contents, None, None, timestamps[0], None), 0, len(rows))
    elif way == "append_many":
        given = ManyColumns(contents, keys, headers, array("q", timestamps), None)
        accumulators.accumulator.append_many("t", given, 0, len(rows))
    for timestamp, key, value, pairs in rows if way in ("append", "send") else ():
        if way == "append" or pairs:
            size = record_bytes_max(key, value, pairs)
            accumulators.accumulator.append("t", None, timestamp, key, value, pairs, size, None)
        else:
            assert accumulators.accumulator.send("t", value, key, timestamp_ms=timestamp) != "referred"
    (run,) = accumulators.accumulator.take()
    run.close()
    assert len(run) == len(rows)
    assert run.buffered_bytes == sum(record_bytes_max(key, value, headers) for _, key, value, headers in rows)
    assert run.size_bytes == size_of(rows)
    assert run.size_bytes == len(run.batch(0, -1, -1, -1))


@pytest.mark.parametrize("value", [b"", bytes(10), bytes(100), bytes(8_192)], ids=len)
def test_a_batch_reaches_its_maximum_size_and_never_exceeds_it(made: Any, value: bytes) -> None:
    """For any record size, the free rest is smaller than a record's upper bound."""
    batch_bytes, counted = 20_000, record_bytes_max(None, value)
    accumulators = Accumulators(made, batch_bytes=batch_bytes, record_bytes_max=1 << 30, bytes_max=1 << 30)
    accumulators.know(count=1)
    count = 5 * batch_bytes // len(value or b"0000000")
    accumulators.accumulator.append_many("t", ManyColumns([value] * count, None, None, NOW, None), 0, count)
    *full, _ = accumulators.accumulator.take()
    assert len(full) >= 3
    for run in full:
        (batch,) = decode_batches(bytes(run.batch(0, -1, -1, -1)))
        assert batch_bytes - counted < batch.size_bytes == run.size_bytes <= batch_bytes
