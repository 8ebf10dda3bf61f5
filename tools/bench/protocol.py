"""Compare decoding and encoding of messages with kafka-python 3 and kio (whose reader is Rust), in one run.

    tools/bench/run protocol [rounds] [--startup]

For each message it prints our median in microseconds and how many times as long each peer took (median and quartiles
of the rounds' ratios). Times are CPU times, so that other processes matter less. It first checks that all three read
the same bytes and write them again. Then it measures the start: `import kwire`, a first message, and all message
classes (`--startup`: only that). It needs the extra `bench`.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from kwire.protocol import Message
from kwire.protocol.messages.api_versions import ApiVersionsResponse
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.metadata import MetadataResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse

ROUNDS = 15
SAMPLE_S = 0.004  # a call is repeated for this long


class Contender(NamedTuple):
    """Pair one library's function that reads the bytes with the one that writes the object it has read."""

    name: str
    decode: Callable[[], object]
    encode: Callable[[], object]


def metadata(topics: int, partitions: int) -> MetadataResponse:
    broker, topic = MetadataResponse.Broker, MetadataResponse.Topic
    return MetadataResponse(
        brokers=[broker(node_id=n, host=f"broker-{n}.example.com", port=9092, rack=None) for n in range(3)],
        cluster_id="cluster-id-0123456789ab", controller_id=1,
        topics=[
            topic(error_code=0, name=f"topic-{n}", is_internal=False, partitions=[
                topic.Partition(
                    error_code=0, partition_index=p, leader_id=p % 3, leader_epoch=5, replica_nodes=[0, 1, 2],
                    isr_nodes=[0, 1, 2], offline_replicas=[],
                )
                for p in range(partitions)
            ])
            for n in range(topics)
        ],
    )  # fmt: skip


def fetched(topics: int, partitions: int, size: int) -> FetchResponse:
    topic = FetchResponse.Topic
    return FetchResponse(responses=[
        topic(topic=f"topic-{n}", partitions=[
            topic.Partition(
                partition_index=p, error_code=0, high_watermark=1_000_000, last_stable_offset=1_000_000,
                log_start_offset=0, aborted_transactions=None, records=bytes(size),
            )
            for p in range(partitions)
        ])
        for n in range(topics)
    ])  # fmt: skip


def asked(topics: int, partitions: int) -> FetchRequest:
    topic = FetchRequest.Topic
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[
        topic(topic=f"topic-{n}", partitions=[
            topic.Partition(partition=p, fetch_offset=1_000_000, partition_max_bytes=1 << 20)
            for p in range(partitions)
        ])
        for n in range(topics)
    ])  # fmt: skip


def produced(topics: int, partitions: int, size: int) -> ProduceRequest:
    topic = ProduceRequest.Topic
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[
        topic(name=f"topic-{n}", partition_data=[
            topic.Partition(index=p, records=bytes(size)) for p in range(partitions)
        ])
        for n in range(topics)
    ])  # fmt: skip


def acknowledged(topics: int, partitions: int) -> ProduceResponse:
    topic = ProduceResponse.Topic
    return ProduceResponse(responses=[
        topic(name=f"topic-{n}", partition_responses=[
            topic.Partition(index=p, error_code=0, base_offset=1_000_000) for p in range(partitions)
        ])
        for n in range(topics)
    ])  # fmt: skip


VERSIONS = ApiVersionsResponse(
    error_code=0,
    api_keys=[ApiVersionsResponse.ApiVersion(api_key=n, min_version=0, max_version=5) for n in range(75)],
)

CASES: list[tuple[str, Message, int]] = [
    ("MetadataResponse, 10 topics of 20", metadata(10, 20), 12),
    ("MetadataResponse, 10 topics of 20", metadata(10, 20), 8),
    ("MetadataResponse, 2,000 topics of 3", metadata(2000, 3), 12),
    ("FetchResponse, 10 of 10, 16 KiB each", fetched(10, 10, 16_384), 12),
    ("FetchResponse, one of 1 MiB", fetched(1, 1, 1 << 20), 12),
    ("FetchRequest, 10 topics of 10", asked(10, 10), 12),
    ("ProduceRequest, 10 of 10, 16 KiB each", produced(10, 10, 16_384), 9),
    ("ProduceRequest, one of 100 bytes", produced(1, 1, 100), 9),
    ("ProduceResponse, 10 topics of 10", acknowledged(10, 10), 9),
    ("ApiVersionsResponse, 75 APIs", VERSIONS, 3),
]


def contenders(message: Message, version: int) -> Iterator[Contender]:
    cls, data = type(message), message.encode(version)
    ours = cls.decode(data, version)
    assert ours.encode(version) == data
    yield Contender("kwire", lambda: cls.decode(data, version), lambda: ours.encode_parts(version))
    yield kafka_python(cls.__name__, data, version)
    yield kio(cls.__name__, data, version)


def kafka_python(name: str, data: bytes, version: int) -> Contender:
    api = name.removesuffix("Request").removesuffix("Response")
    file = {"Metadata": "metadata", "ApiVersions": "metadata", "Fetch": "consumer", "Produce": "producer"}[api]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cls: Any = getattr(import_module(f"kafka.protocol.{file}"), name)
    theirs = cls.decode(data, version=version)
    theirs._header = None  # it encodes a decoded message only with this set
    assert theirs.encode(version=version) == data
    return Contender("kafka-python", lambda: cls.decode(data, version=version), lambda: theirs.encode(version=version))


def kio(name: str, data: bytes, version: int) -> Contender:
    serial: Any = import_module("kio.serial")
    kind = "Request" if name.endswith("Request") else "Response"
    api = name.removesuffix(kind)
    file = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api).lstrip("_")
    cls: Any = getattr(import_module(f"kio.schema.{file}.v{version}.{kind.lower()}"), name)
    read, write = serial.entity_reader(cls), serial.entity_writer(cls)
    theirs, _ = read(data, 0)

    def encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, theirs)
        return buffer.getvalue()

    assert encode() == data
    return Contender("kio", lambda: read(data, 0), encode)


def repeats(call: Callable[[], object]) -> int:
    """Return the number of calls for one sample."""
    for _ in range(20):
        call()  # compiles, fills caches
    start = time.process_time()
    call()
    return max(1, round(SAMPLE_S / (time.process_time() - start)))


def microseconds(call: Callable[[], object], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times * 1e6


def compare(calls: list[Callable[[], object]], rounds: int) -> tuple[float, list[list[float]]]:
    """Return (our median, each peer's ratios); each round calls all of them once."""
    times = [repeats(call) for call in calls]
    table = [[microseconds(call, n) for call, n in zip(calls, times, strict=True)] for _ in range(rounds)]
    ours = statistics.median(row[0] for row in table)
    return ours, [[row[peer] / row[0] for row in table] for peer in range(1, len(calls))]


def shown(ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:5.2f}x ({low:.2f} to {high:.2f})"


def bench_messages(rounds: int) -> None:
    print(f"{'':12}{'kwire':>15}   {'kafka-python':24}kio")
    for name, message, version in CASES:
        all_three = list(contenders(message, version))
        print(f"{name}, v{version}")
        for what in ("decode", "encode"):
            ours, ratios = compare([getattr(one, what) for one in all_three], rounds)
            print(f"  {what:10}{ours:12.1f} us   {'   '.join(map(shown, ratios))}")


STARTUP = {
    "import kwire": "import kwire",
    "first message": (
        "from kwire.protocol.messages.metadata import MetadataRequest\nMetadataRequest(topics=None).encode(12)"
    ),
    "every class": (
        "from kwire.protocol.api import OTHER_MESSAGES, ApiKey, message_class\n"
        "for key in ApiKey: message_class(key.api_name + 'Request')\n"
        "for name in OTHER_MESSAGES: message_class(name)"
    ),
}


def bench_startup(rounds: int) -> None:
    """Measure CPU time and the number of imported modules in fresh interpreters.

    The modules' bytecode is on disk, as it is in an installed kwire.
    """
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        for name, code in STARTUP.items():
            program = (
                "import sys, time; before = len(sys.modules); start = time.process_time()\n"
                f"{code}\n"
                "print((time.process_time() - start) * 1e3, len(sys.modules) - before)"
            )
            command = [sys.executable, "-c", program]
            samples = [subprocess.check_output(command, env=environment, text=True).split() for _ in range(rounds + 1)]
            times = [float(milliseconds) for milliseconds, _ in samples[1:]]
            low, middle, high = statistics.quantiles(times, n=4)
            print(f"{name:15}{middle:6.1f} ms ({low:.1f} to {high:.1f}), {samples[0][1]} modules")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--startup", action="store_true", help="only the cost of the start")


def run(options: argparse.Namespace) -> None:
    if not options.startup:
        bench_messages(options.rounds)
    bench_startup(options.rounds)
