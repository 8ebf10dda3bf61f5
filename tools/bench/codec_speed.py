"""Compare the codecs of record batches with those of kafka-python and aiokafka, interleaved in one process.

confluent-kafka and Java do not expose their codecs: compare them with `produce --compression` and `consume
--compression`. All codecs get the same data, one batch of JSON. The bench first checks that each library reads what
the others compressed. Each library uses its default level, so the table shows sizes too.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from bench.contest import Result, Tell
from bench.task import Sample, payloads
from kwire.records.compression import Compression, compress, decompress

_SAMPLE_S = 0.05  # a call is repeated for this long


class Codec(NamedTuple):
    encode: Callable[[bytes], bytes]
    decode: Callable[[bytes], bytes | bytearray | memoryview]


def codecs(name: str) -> dict[str, Codec]:
    own = Compression.of(name)
    found = {"kwire": Codec(lambda data: compress(own, data), lambda data: decompress(own, data))}
    for peer, module in (("kafka-python", "kafka.codec"), ("aiokafka", "aiokafka.codec")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs: Any = import_module(module)
        found[peer] = Codec(_as_bytes(getattr(theirs, f"{name}_encode")), _as_bytes(getattr(theirs, f"{name}_decode")))
    return found


def compression(options: argparse.Namespace, tell: Tell) -> Iterator[Result]:
    for size in options.sizes:
        data = b"".join(payloads(size))[: options.bytes]
        for name in ("gzip", "snappy", "lz4", "zstd"):
            contenders = codecs(name)
            packed = {who: codec.encode(data) for who, codec in contenders.items()}
            for who, codec in contenders.items():
                for whose, one in packed.items():
                    if codec.decode(one) != data:
                        raise RuntimeError(f"{who} cannot read {whose}'s {name}")
            for way in ("encode", "decode"):
                tell(f"{name}, {way}")
                title = f"{name}, {way}, {len(data):,} bytes of {size} B values"
                result = Result(title, {who: [] for who in contenders})
                for _ in range(options.rounds):
                    for who, codec in contenders.items():
                        call, given = (codec.encode, data) if way == "encode" else (codec.decode, packed[who])
                        measures = {"mb_s": len(data) / _seconds(call, given) / 1e6, "size": len(packed[who])}
                        result.samples[who].append(Sample(measures=measures))
                yield result


def _as_bytes(call: Callable[[bytes], Any]) -> Callable[[bytes], bytes]:
    """Convert the result to bytes, because aiokafka's codecs return buffers and a batch consists of bytes."""
    return lambda data: bytes(call(data))


def _seconds(call: Callable[[bytes], object], data: bytes) -> float:
    """Return the CPU seconds of one call."""
    times, start = 0, time.process_time()
    while (spent := time.process_time() - start) < _SAMPLE_S:
        call(data)
        times += 1
    return spent / times
