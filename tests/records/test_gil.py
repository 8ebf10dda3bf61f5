"""Long operations in C release the GIL: other threads run while C reads a batch's bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kwire.records import encode_batch
from tests.net.test_channel import another_thread
from tests.producer.test_accumulator import NOW
from tests.wire.speedups import accelerated, needs_c, python, speedups

from .test_reader import wire

pytestmark = needs_c

LARGE = [(NOW, b"key", bytes(1_000), ())] * 400


def crc() -> Callable[[], object]:
    data = bytes(400_000)
    return lambda: speedups().crc32c(data)


def a_batch_of_a_run() -> Callable[[], object]:
    def work() -> None:
        builder = speedups().BatchBuilder("t", 0, 1 << 20)
        for record in LARGE:
            builder.append(*record, 1_050)
        builder.close()
        builder.batch(0, 1, 2, 3)

    return work


def batches_opened() -> Callable[[], object]:
    data, kind = encode_batch(LARGE, base_offset=0), wire("c").kind
    return lambda: speedups().open_batches(kind, "t", 0, 0, data, 0, True, 1)


def columns() -> Callable[[], object]:
    data, kind = python.encode_records(LARGE, NOW), wire("c").kind

    def work() -> None:
        cursor = accelerated().open_reader(kind, "t", 0, 0, 0, 400, data, 0, 400, 0, NOW, 400, None)
        accelerated().columns([cursor.cut(400)], True)

    return work


@pytest.mark.parametrize("made", [crc, a_batch_of_a_run, batches_opened, columns])
def test_others_run_meanwhile(made: Callable[[], Callable[[], object]]) -> None:
    work = made()
    with another_thread() as has_run:
        for _ in range(10_000):
            work()
            if has_run():
                break
        assert has_run()
