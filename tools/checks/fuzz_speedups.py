"""Give the C accelerator and the pure Python code the same damaged input; both must return the same result.

A seed makes a case of one of four kinds: damaged records, recorded (fixtures/) or random, often with the length and the
checksum corrected so that they are decoded; buffers that claim to be columns; a sequence of calls of an accumulator; a
damaged message. `tools/sanitize fuzz` runs this on a build that ends the process on an invalid memory access. A failing
case is not reduced.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from tests.wire.speedups import accelerated, python, speedups  # noqa: E402

# All of kwire must use the C code compiled for the tests, whichever the environment has installed.
sys.modules["kwire.wire._speedups"] = speedups()

from checks import fuzz_protocol  # noqa: E402
from kwire.errors import KwireError  # noqa: E402
from kwire.producer.accumulator import ManyColumns  # noqa: E402
from kwire.protocol.headers import decode_request, decode_response  # noqa: E402
from kwire.protocol.messages.fetch import FetchRequest  # noqa: E402
from kwire.records import Compression, decode_batches, encode_batch, v2  # noqa: E402
from kwire.wire.checksums import crc32c  # noqa: E402
from tests.producer.accumulator_stories import Story  # noqa: E402

NOW = 1_700_000_000_000
FIELDS = ("topic", "partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")
STORY_STEPS = 60
_SIZE_AT, _CRC_AT, _CHECKED_AT = 8, 17, 21
_TOGETHER = (1, 300, 1 << 18)
_REFUSED = (ValueError, TypeError, IndexError, OverflowError)


class DisagreementError(AssertionError):
    """The C code and the pure Python code return different results."""


def check(seed: int) -> None:
    """Run the case of a seed. Raises DisagreementError, or the error of the case, with the seed."""
    kind = Random(seed).choice([_records, _records, _records, _columns, _story, fuzz_protocol.check])
    try:
        kind(seed)
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


# ---- records --------------------------------------------------------------------------------------------------------


@cache
def recorded() -> list[bytes]:
    """Return the records of all partitions in the frames of fixtures/."""
    found = []
    for path in sorted(ROOT.glob("fixtures/*/produce_v*_request.bin")):
        request: Any = decode_request(path.read_bytes())[1]
        found += [one.records for topic in request.topic_data for one in topic.partition_data]
    for path in sorted(ROOT.glob("fixtures/*/fetch_v*_response.bin")):
        version = int(path.stem.split("_")[1].removeprefix("v"))
        response: Any = decode_response(path.read_bytes(), FetchRequest, version)[1]
        found += [one.records for topic in response.responses for one in topic.partitions]
    return [bytes(records) for records in found if records]


def _records(seed: int) -> None:
    random = Random(seed)
    data = random.choice(recorded()) if random.random() < 0.5 else _made(random)
    for _ in range(random.choice([0, 1, 1, 2, 4])):
        data = random.choice(fuzz_protocol.MUTATIONS)(data, random)
    if random.random() < 0.7:
        data = _put_right(data)
    how = random.choice([0, 0, 3, 1 << 40]), random.random() < 0.7, random.choice(_TOGETHER), random.randrange(1 << 30)
    c = _read(accelerated(), data, *how)
    with _specification():
        expected = _read(python, data, *how)
    if c != expected:
        raise DisagreementError(f"{how} of {data.hex()}:\n{c}\n{expected}")


@contextmanager
def _specification() -> Iterator[None]:
    """Open batches with the pure Python code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(v2, "open_reader", python.open_reader)
        yield


def _made(random: Random) -> bytes:
    """Return consecutive batches of varied random records."""
    batches, offset = [], random.choice([0, 0, 1 << 62])
    for _ in range(random.choice([1, 1, 2, 5])):
        records = [
            (
                NOW + random.choice([0, 0, 1, -5, 1 << 40]), _cell(random), _cell(random),
                tuple((random.choice(["", "h", "\N{SNOWMAN}"]), _cell(random)) for _ in range(random.choice([0, 2]))),
            )
            for _ in range(random.choice([1, 2, 9]))
        ]  # fmt: skip
        codec = random.choice([Compression.NONE] * 4 + [Compression.LZ4, Compression.GZIP])
        batches.append(encode_batch(records, base_offset=offset, compression=codec))
        offset += len(records)
    return b"".join(batches)


def _cell(random: Random) -> bytes | None:
    return random.choice([None, b"", b"v", bytes(63), bytes(64), random.randbytes(200)])


def _put_right(data: bytes) -> bytes:
    """Correct the length and the checksum of the first batch, if the data may be one."""
    if len(data) <= _CHECKED_AT or data[16] != 2:
        return data
    changed = bytearray(data)
    size = struct.unpack_from(">i", data, _SIZE_AT)[0]
    if not 49 <= size <= len(data) - 12:
        size = len(data) - 12
        struct.pack_into(">i", changed, _SIZE_AT, size)
    struct.pack_into(">I", changed, _CRC_AT, crc32c(memoryview(changed)[_CHECKED_AT : 12 + size]))
    return bytes(changed)


@cache
def _kind(loops: Any) -> type[Any]:
    kind: type[Any] = loops.record_class(type("Kind", (loops.RecordFields,), {"__slots__": ()}))
    return kind


def _read(loops: Any, data: bytes, position: int, check_crc: bool, enough: int, ways: int) -> tuple[Any, ...]:
    """Return all records, read as columns or in different ways for each cursor, and the error at the end."""
    random = Random(ways)
    are_columns = random.random() < 0.3
    kept: list[Any] = []
    pieces: list[Any] = []
    end: Any = None
    try:
        for cursor in _cursors(loops, data, position, check_crc, enough):
            if are_columns:
                pieces.append(cursor.cut(1 << 20))
            for count in (1, random.choice([0, 5, 1 << 20])):
                kept += cursor.take(count)
            kept += cursor
            if random.random() < 0.5:
                cursor.detach()
            end = cursor.position, cursor.stop()
    except KwireError as error:
        end = end, type(error), str(error), error.where
    return [_seen(record) for record in kept], _in_bytes(loops.columns(pieces, True)), end


def _in_bytes(found: Any) -> Any:
    """Convert values to bytes, because large values are views of bytes in C."""
    return tuple(
        _in_bytes(one) if isinstance(one, tuple) else one if one is None or isinstance(one, int) else bytes(one)
        for one in found
    )


def _cursors(loops: Any, data: bytes, position: int, check_crc: bool, enough: int) -> Iterator[Any]:
    """Yield cursors as a consumer reads them. C opens several batches at once, Python one at a time."""
    at = 0
    while True:
        found = loops.open_batches(_kind(loops), "t", 0, position, data, at, check_crc, enough)
        if found is not None:
            cursor, at = found
        else:
            batch = next(decode_batches(data, start=at, check_crc=check_crc, max_decompressed_bytes=1 << 20), None)
            if batch is None:
                return
            at += batch.size_bytes
            cursor = batch.cursor(_kind(loops), "t", 0, position)
        yield cursor


def _seen(record: Any) -> tuple[object, ...]:
    return tuple(getattr(record, field) for field in FIELDS)


# ---- columns --------------------------------------------------------------------------------------------------------


def _columns(seed: int) -> None:
    """Append random columns to both accumulators and compare the results."""
    random = Random(seed)
    count = random.choice([1, 2, 7, 40])
    timestamps = array("q", [random.choice([0, NOW, (1 << 63) - 1]) for _ in range(count)])
    partitions = array("i", [random.choice([-1, 0, 3, 65_535]) for _ in range(count)])
    given = ManyColumns(
        _cells(random, count), _cells(random, count) if random.random() < 0.5 else None, None,
        NOW if random.random() < 0.5 else timestamps, partitions if random.random() < 0.5 else random.choice([None, 0]),
    )  # fmt: skip
    c, expected = (_put(made, given, count) for made in (speedups(), python))
    if expected == "refused":  # C accepts the records before the invalid one
        is_alike = c == "refused" or c[0] < count
    else:
        is_alike = c == expected
    if not is_alike:
        raise DisagreementError(f"{given}:\n{c}\n{expected}")


def _cells(random: Random, count: int) -> Any:
    if random.random() < 0.3:
        return [_cell(random) for _ in range(count)]
    is_wide = random.random() < 0.5
    content = random.randbytes(random.choice([0, 1, 50, 3_000]))
    edges = [0, len(content), len(content) + 1, -1, (1 << 31) - 1, *([1 << 62] if is_wide else [])]
    ends = sorted(random.randint(0, len(content)) for _ in range(count + 9))
    for _ in range(random.choice([0, 0, 1, 3])):
        ends[random.randrange(len(ends))] = random.choice(edges)
    validity = None if random.random() < 0.5 else random.randbytes(count // 8 + 3)
    return validity, array("q" if is_wide else "i", ends).tobytes(), content, is_wide, random.randrange(8)


def _put(made: Any, given: ManyColumns, count: int) -> Any:
    """Return the contents of an accumulator after it got the columns, or "refused"."""

    def unused(*arguments: Any) -> Any:
        raise AssertionError

    accumulator = made.RecordAccumulator(
        future_class=made.RecordFuture,
        dispatch=None,
        batch_bytes=500,
        bytes_max=1 << 20,
        record_bytes_max=2_000,
        key_hash="murmur2",
        may_share=unused,
        time_ms=lambda: NOW,
        wakeup=int,
        slow_path=unused,
        by_system=False,
        sums=True,
    )
    accumulator.is_open = True
    accumulator.route("t", 4, range(4), (), False)
    try:
        after, too_large, *_ = accumulator.append_many("t", given, 0, count)
    except _REFUSED:
        return "refused"
    runs = accumulator.take()
    for run in runs:
        run.close()
    return after, too_large, [(run.partition, bytes(run.body())) for run in runs], accumulator.used_bytes


def _story(seed: int) -> None:
    Story(seed, (python, speedups())).go(STORY_STEPS)


def main(arguments: list[str]) -> int:
    options = fuzz_protocol.options_of(
        arguments, "tools/sanitize fuzz", "Hand broken input to the C accelerator.", 10.0
    )
    if options.seed is not None:
        check(options.seed)
        print("C and its specification agree")
        return 0
    first, count, _ = fuzz_protocol.run(check, options.minutes)
    print(f"{count} cases from seed {first}: C and its specification agree in all of them")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
