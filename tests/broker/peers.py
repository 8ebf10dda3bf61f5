"""Clients that are independent of kwire, all with the same methods, so that one test can run with each of them.

`write` sends records to a topic and returns when they are acknowledged. `read` reads a topic from the beginning until
it has `count` records. A record is (key, value, headers).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import os
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka as kafka
import kafka.admin
from brokers.java import program_command

from tests.conftest import fetched, missing

Item = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.5
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def run(command: Sequence[str], input: str | None = None, **environment: str) -> str:
    """Run a program that must succeed, and return its standard output."""
    done = subprocess.run(
        command, input=input, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


class Confluent:
    """confluent-kafka: librdkafka."""

    codecs: Sequence[str] = CODECS
    has_headers = True
    has_null_headers = True

    def producer(self, bootstrap: str, **options: Any) -> Any:
        quiet = {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5, "enable.idempotence": True}
        return confluent_kafka.Producer({**quiet, **{name.replace("_", "."): value for name, value in options.items()}})

    def consumer(self, bootstrap: str, **options: Any) -> Any:
        quiet = {
            "bootstrap.servers": bootstrap, "log_level": 0, "group.id": "unused", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 100,
        }  # fmt: skip
        return confluent_kafka.Consumer({**quiet, **{name.replace("_", "."): value for name, value in options.items()}})

    def write(self, bootstrap: str, topic: str, items: Sequence[Item], *, codec: str, idempotent: bool) -> None:
        producer = self.producer(bootstrap, compression_type=codec, enable_idempotence=idempotent)
        errors: list[Any] = []
        for key, value, headers in items:
            producer.produce(
                topic, key=key, value=value, headers=list(headers), partition=0,
                on_delivery=lambda error, message: errors.append(error),
            )  # fmt: skip
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert errors == [None] * len(items)

    def read(self, bootstrap: str, topic: str, count: int) -> list[Item]:
        consumer = self.consumer(bootstrap)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[Item] = []
        while len(found) < count:
            batch = consumer.consume(count, PATIENCE_SECONDS)
            assert batch, f"only {len(found)} of {count}"
            for message in batch:
                assert message.error() is None, message.error()
                found.append((message.key(), message.value(), tuple(message.headers() or ())))
        consumer.close()
        return found


@contextlib.contextmanager
def leaks() -> Iterator[None]:
    """Collect the sockets that kafka-python leaves to the garbage collector, so that no other test is blamed for
    them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


class KafkaPython:
    """kafka-python. It rejects headers without a value."""

    codecs: Sequence[str] = CODECS
    has_headers = True
    has_null_headers = False

    @leaks()
    def write(self, bootstrap: str, topic: str, items: Sequence[Item], *, codec: str, idempotent: bool) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent, linger_ms=5,
        )  # fmt: skip
        with contextlib.closing(producer):
            futures = [
                producer.send(topic, key=key, value=value, headers=list(headers), partition=0)
                for key, value, headers in items
            ]
            for future in futures:
                future.get(PATIENCE_SECONDS)

    @leaks()
    def read(self, bootstrap: str, topic: str, count: int) -> list[Item]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        found: list[Item] = []
        with contextlib.closing(consumer):
            consumer.assign([kafka.TopicPartition(topic, 0)])
            while len(found) < count:
                batch = consumer.poll(1000 * PATIENCE_SECONDS)
                assert batch, f"only {len(found)} of {count}"
                for records in batch.values():
                    found += [(record.key, record.value, tuple(record.headers)) for record in records]
        return found


class AioKafka:
    """aiokafka."""

    codecs: Sequence[str] = CODECS
    has_headers = True
    has_null_headers = True

    def write(self, bootstrap: str, topic: str, items: Sequence[Item], *, codec: str, idempotent: bool) -> None:
        async def write() -> None:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent, linger_ms=5,
            ) as producer:  # fmt: skip
                futures = [
                    await producer.send(topic, key=key, value=value, headers=list(headers), partition=0)
                    for key, value, headers in items
                ]
                await asyncio.wait_for(asyncio.gather(*futures), PATIENCE_SECONDS)

        asyncio.run(write())

    def read(self, bootstrap: str, topic: str, count: int) -> list[Item]:
        async def read() -> list[Item]:
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
            await consumer.start()
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            found: list[Item] = []
            try:
                while len(found) < count:
                    batch = await consumer.getmany(timeout_ms=int(1000 * PATIENCE_SECONDS))
                    assert batch, f"only {len(found)} of {count}"
                    for records in batch.values():
                        found += [(record.key, record.value, tuple(record.headers)) for record in records]
            finally:
                await consumer.stop()
            return found

        return asyncio.run(read())


class Kcat:
    """kcat. A line is a record, so keys and values are text and never null."""

    codecs: Sequence[str] = CODECS
    has_headers = False

    def __init__(self) -> None:
        if shutil.which("kcat") is None:
            missing("kcat is not on PATH: tools/env peers")

    def write(self, bootstrap: str, topic: str, items: Sequence[Item], *, codec: str, idempotent: bool) -> None:
        lines = "".join(f"{(key or b'').decode()}\t{(value or b'').decode()}\n" for key, value, _ in items)
        options = ["-X", f"enable.idempotence={str(idempotent).lower()}", "-z", codec, "-K", "\t", "-p", "0"]
        run(["kcat", "-P", "-b", bootstrap, "-t", topic, *options], lines)

    def read(self, bootstrap: str, topic: str, count: int) -> list[Item]:
        output = run(["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-c", str(count), "-q", "-K", "\t"])
        return items_of(output)


class Console:
    """Kafka's own console tools, of any version, run from its jars."""

    codecs: Sequence[str] = CODECS
    has_headers = False

    def __init__(self, version: str = "4.3.1") -> None:
        if shutil.which("java") is None or shutil.which("mvn") is None:
            missing("java and mvn are needed: tools/env java maven")
        self.java = program_command(fetched("kafka", version))
        self.version = tuple(int(part) for part in version.split("."))

    def write(self, bootstrap: str, topic: str, items: Sequence[Item], *, codec: str, idempotent: bool) -> None:
        new = self.version >= (4,)
        command = [
            *self.java,
            "org.apache.kafka.tools.ConsoleProducer" if new else "kafka.tools.ConsoleProducer",
            "--bootstrap-server" if new else "--broker-list", bootstrap, "--topic", topic,
            "--compression-codec", codec, "--property" if not new else "--reader-property", "parse.key=true",
        ]  # fmt: skip
        if new:
            command += ["--command-property", f"enable.idempotence={str(idempotent).lower()}"]
        lines = "".join(f"{(key or b'').decode()}\t{(value or b'').decode()}\n" for key, value, _ in items)
        run(command, lines)

    def read(self, bootstrap: str, topic: str, count: int, *more: str) -> list[Item]:
        new = self.version >= (4,)
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer" if new else "kafka.tools.ConsoleConsumer"
        command = [*self.java, tool, "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"]
        prints = ["--formatter-property" if new else "--property", "print.key=true"]
        return items_of(run([*command, "--max-messages", str(count), *prints, *more]))


class _Program:
    """A producer and a consumer in another language. A line is a record, so keys and values are text and never null.

    The options of `send` and `receive` are those of the program, which its first lines describe.
    """

    has_headers = False

    def __init__(self, command: Sequence[str], **environment: str) -> None:
        self._command = command
        self._environment = environment

    def write(self, bootstrap: str, topic: str, items: Sequence[Item], *, codec: str, idempotent: bool) -> None:
        self.send(bootstrap, topic, items, codec=codec, idempotent=idempotent, partition=0)

    def read(self, bootstrap: str, topic: str, count: int) -> list[Item]:
        return self.receive(bootstrap, topic, count)

    def send(self, bootstrap: str, topic: str, items: Sequence[Item], **options: Any) -> None:
        lines = "".join(f"{(key or b'').decode()}\t{(value or b'').decode()}\n" for key, value, _ in items)
        self._run(lines, bootstrap=bootstrap, topic=topic, role="write", **options)

    def receive(self, bootstrap: str, topic: str, count: int, **options: Any) -> list[Item]:
        return items_of(self._run(None, bootstrap=bootstrap, topic=topic, role="read", count=count, **options))

    def _run(self, input: str | None, **options: Any) -> str:
        return run([*self._command, json.dumps(options)], input, **self._environment)


class FranzGo(_Program):
    """franz-go."""

    codecs = CODECS

    def __init__(self) -> None:
        super().__init__([built_franz_go("peer")])


class KafkaJs(_Program):
    """kafkajs, which reads only as a member of a group."""

    codecs = ("none", "gzip")

    def __init__(self) -> None:
        source = Path(__file__).parent / "kafkajs"
        super().__init__(["node", str(source / "peer.js")], NODE_PATH=str(installed(source, "kafkajs")))

    def read(self, bootstrap: str, topic: str, count: int) -> list[Item]:
        return self.receive(bootstrap, topic, count, group="readers")


def built_franz_go(program: str) -> str:
    """Build a program of tests/franzgo, and return its path; skip the test where there is no Go."""
    return built_go(ROOT / "tests" / "franzgo" / program, f"franzgo-{program}")


@functools.cache
def built_go(source: Path, name: str) -> str:
    """Build the program in a folder, and return its path; skip the test where there is no Go."""
    go = shutil.which("go")
    if go is None:
        missing("go is not on PATH: tools/env go")
    built = ROOT / ".cache" / name
    # A test builds these once and runs them for seconds: half the work is inlining, debug information, collecting the
    # compiler's garbage, and cgo.
    options = ["-ldflags=-s -w", "-gcflags=all=-l -dwarf=false"]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOGC": "800"}
    done = subprocess.run(
        [go, "build", *options, "-o", str(built), "."], cwd=source, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return str(built)


@functools.cache
def installed(source: Path, package: str) -> Path:
    """Install the packages of a folder's package.json at their first use, and return the folder with their modules.

    Skip the test where there is no Node.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing("node and npm are not on PATH: tools/env node")
    folder = ROOT / ".cache" / package.replace("@", "").replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = (source / "package.json").read_text()
    manifest = folder / "package.json"
    modules = folder / "node_modules"
    if not (modules / package).is_dir() or manifest.read_text() != wanted:
        manifest.write_text(wanted)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            missing(f"{package} could not be installed: {done.stderr.strip()[-300:]}")
    return modules


def items_of(output: str) -> list[Item]:
    pairs = [line.split("\t", 1) for line in output.splitlines()]
    return [(key.encode(), value.encode(), ()) for key, value in pairs]
