"""Compare encoding and decoding of record batches with kafka-python's builder and reader, interleaved in one run.

    tools/bench/run records [records a batch] [bytes a value]

It prints medians of 9 in microseconds a record, and how many times faster kwire is. kafka-python runs with our CRC-32C,
because its own in Python would take most of its time, and also as installed, where `crc32c` may be missing.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kwire.records import decode_batches, encode_batch
from kwire.records.rows import NewRecord
from kwire.wire.accel import IMPLEMENTATION
from kwire.wire.checksums import crc32c

NOON = 1_700_000_000_000
ROUNDS = 9

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    peer: Any = import_module("kafka.record.default_records")


def cases(count: int, size: int) -> dict[str, list[NewRecord]]:
    values = [bytes([n % 251]) * size for n in range(count)]
    times = [NOON + n // 250 for n in range(count)]
    half = size // 2
    return {
        "values of one size": [(when, None, value, ()) for when, value in zip(times, values, strict=True)],
        "... and keys": [(when, b"key %d" % (n % 5000), values[n], ()) for n, when in enumerate(times)],
        "values of many sizes": [(when, None, values[n][: half + n % half], ()) for n, when in enumerate(times)],
        "one header": [(when, None, value, (("h", b"v"),)) for when, value in zip(times, values, strict=True)],
    }


def peer_encode(records: list[NewRecord]) -> bytes:
    builder = peer.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for offset, (timestamp, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, list(headers))
    return bytes(builder.build())


def peer_decode(data: bytes) -> list[object]:
    batch = peer.DefaultRecordBatch(bytearray(data))
    assert batch.validate_crc()
    return list(batch)


def microseconds(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) / count * 1e6


def compare(name: str, records: list[NewRecord]) -> None:
    data = encode_batch(records)
    calls: list[Callable[[], object]] = [
        lambda: encode_batch(records),
        lambda: peer_encode(records),
        lambda: [batch.rows() for batch in decode_batches(data)],
        lambda: [batch.records() for batch in decode_batches(data)],
        lambda: peer_decode(data),
    ]
    rounds = [[microseconds(call, len(records)) for call in calls] for _ in range(ROUNDS)]
    encode, their_encode, rows, named, their_decode = (
        statistics.median(column) for column in zip(*rounds, strict=True)
    )
    print(
        f"  {name:22} encode {encode:5.2f} ({their_encode / encode:4.1f}x)   rows {rows:5.2f} "
        f"({their_decode / rows:4.1f}x)   records {named:5.2f} ({their_decode / named:4.1f}x)"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("count", nargs="?", type=int, default=5000, help="records in a batch (default: 5000)")
    parser.add_argument("size", nargs="?", type=int, default=100, help="bytes of a value (default: 100)")


def run(options: argparse.Namespace) -> None:
    count, size = options.count, options.size
    print(f"{count} records of {size} bytes; kwire's loops in {IMPLEMENTATION}; microseconds a record, in (): ratio")
    own = peer.calc_crc32c
    for title, crc in (("kafka-python with our CRC-32C", crc32c), ("kafka-python as installed", own)):
        peer.calc_crc32c = crc
        print(title)
        for name, records in cases(count, size).items():
            compare(name, records)
