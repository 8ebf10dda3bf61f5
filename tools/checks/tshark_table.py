"""Count the Kafka frames that tshark and kwire read in the same captures.

tools/tshark-table [CAPTURE...]

Without captures it makes one for each client: kwire, librdkafka, kafka-python, aiokafka, franz-go, kafkajs and Java's
console tools use a real broker through `kwire tap`, which records them. Prints a table in Markdown.

A frame is a request or a response. kwire has read it if it shows all fields; tshark has unless it complains of it:
malformed, request missing, version not supported, wrong length. The exit code is 1 if kwire left a frame unread.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import aiokafka
import confluent_kafka
import kafka
from brokers.cluster import NEWEST, KafkaCluster
from rich.console import Console

import kwire
from kwire.capture import read_exchanges
from kwire.tap import Tap
from tests.broker.peers import FranzGo, Item, KafkaJs

_TOPIC = "orders"
_VALUE = b"a value of some length, number %d"
# Characters that XML does not allow, but that tshark writes.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Count(NamedTuple):
    """What a program made of a capture. `complaints` counts frames by the reason why they are not read."""

    frames: int
    complaints: Counter[str]

    @property
    def read(self) -> int:
        return self.frames - self.complaints.total()


# -- what reads


def count_by_kwire(capture: Path) -> tuple[Count, set[int]]:
    """Return kwire's count, and the ports of the brokers."""
    frames, complaints, ports = 0, Counter[str](), set[int]()
    for exchange in read_exchanges(capture):
        ports.add(int(exchange.connection.broker.rpartition(":")[2]))
        for frame in (exchange.request, exchange.response):
            if frame is not None:
                frames += 1
                if not frame.is_whole:
                    complaints[str(frame.problems[0]) if frame.problems else f"{frame.name}: no body"] += 1
    return Count(frames, complaints), ports


def tshark_command(capture: Path, ports: set[int], *form: str) -> list[str]:
    """Return the command that shows the Kafka frames of brokers on these ports, in the form of -T."""
    as_kafka = [option for port in sorted(ports) for option in ("-d", f"tcp.port=={port},kafka")]
    return ["tshark", "-n", "-r", str(capture), *as_kafka, "-Y", "kafka", "-T", *form]


def count_by_tshark(capture: Path, ports: set[int]) -> Count:
    command = tshark_command(capture, ports, "pdml")
    text = subprocess.run(command, capture_output=True, check=True).stdout.decode("utf-8", "replace")
    return count_pdml(_NOT_XML.sub("?", text))


def count_pdml(text: str) -> Count:
    """Count the frames in tshark's XML, each by its first complaint."""
    frames, complaints = 0, Counter[str]()
    for packet in ElementTree.fromstring(text).iter("packet"):
        of_packet: list[str] = []
        for proto in packet.iter("proto"):
            if proto.get("name") == "kafka":
                frames += 1
                of_packet.append(_complaint(proto))
            elif proto.get("name") == "_ws.malformed" and of_packet:  # it stands behind the frame
                of_packet[-1] = "Malformed"
        complaints.update(one for one in of_packet if one)
    return Count(frames, complaints)


def _complaint(proto: ElementTree.Element) -> str:
    """Return what tshark says against a frame; an empty text if nothing."""
    for one in proto.iter("field"):
        if one.get("name") == "_ws.expert.message":
            text = one.get("show", "")
            return "Unsupported version" if text.startswith("Unsupported") else re.sub(r"[\d.]+", "N", text)
        if one.get("name") == "_ws.malformed":
            return "Malformed"
    return ""


# -- what is read: each client writes a topic, and reads it in a group


def _with_kwire(bootstrap: str, number: int) -> None:
    with kwire.Producer(bootstrap, transactional_id="orders-writer") as producer, producer.transaction():
        for index in range(number):
            producer.send(_TOPIC, _VALUE % index)
    for protocol in ("classic", "consumer"):
        with kwire.Consumer(
            bootstrap, group=f"kwire-{protocol}", group_protocol=protocol, isolation="read_committed"
        ) as consumer:
            consumer.subscribe([_TOPIC])
            _read(lambda: len(consumer.poll(timeout=20)), number)
            consumer.commit()


def _with_librdkafka(bootstrap: str, number: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "orders-writer"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for index in range(number):
        producer.produce(_TOPIC, _VALUE % index)
    producer.commit_transaction(20)
    for protocol in ("classic", "consumer"):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"librdkafka-{protocol}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([_TOPIC])
        _read(lambda used=consumer: len(used.consume(500, 20)), number)  # type: ignore[misc]
        consumer.close()


def _with_kafka_python(bootstrap: str, number: int) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    for index in range(number):
        producer.send(_TOPIC, _VALUE % index)
    producer.close(20)
    consumer = kafka.KafkaConsumer(
        _TOPIC, bootstrap_servers=bootstrap, group_id="kafka-python", auto_offset_reset="earliest"
    )
    _read(lambda: sum(map(len, consumer.poll(20_000).values())), number)
    consumer.close()


def _with_aiokafka(bootstrap: str, number: int) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await asyncio.gather(*[await producer.send(_TOPIC, _VALUE % index) for index in range(number)])
        consumer = aiokafka.AIOKafkaConsumer(
            _TOPIC, bootstrap_servers=bootstrap, group_id="aiokafka", auto_offset_reset="earliest"
        )
        async with consumer:
            found = 0
            while found < number:
                found += sum(map(len, (await consumer.getmany(timeout_ms=20_000)).values()))

    asyncio.run(run())


def _with_franz_go(bootstrap: str, number: int) -> None:
    peer = FranzGo()
    peer.send(bootstrap, _TOPIC, _items(number), idempotent=True, transaction="orders-writer")
    for protocol in ("classic", "consumer"):
        peer.receive(bootstrap, _TOPIC, number, group=f"franz-go-{protocol}", protocol=protocol)


def _with_kafkajs(bootstrap: str, number: int) -> None:
    peer = KafkaJs()
    peer.send(bootstrap, _TOPIC, _items(number), transaction="orders-writer")
    peer.receive(bootstrap, _TOPIC, number, group="kafkajs")


def _items(number: int) -> list[Item]:
    return [(b"%d" % index, _VALUE % index, ()) for index in range(number)]


def _with_java(cluster: KafkaCluster, bootstrap: str, number: int) -> None:
    lines = b"".join(_VALUE % index + b"\n" for index in range(number))
    cluster.run(
        "org.apache.kafka.tools.ConsoleProducer", ["--bootstrap-server", bootstrap, "--topic", _TOPIC], stdin=lines
    )
    for protocol in ("classic", "consumer"):
        cluster.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            [
                "--bootstrap-server", bootstrap, "--topic", _TOPIC, "--group", f"java-{protocol}", "--from-beginning",
                "--max-messages", str(number), "--command-property", f"group.protocol={protocol}",
            ],
        )  # fmt: skip
    cluster.run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        ["--bootstrap-server", bootstrap, "--describe", "--all-groups"],
    )


def _read(poll: Callable[[], int], number: int) -> None:
    found = 0
    while found < number:
        found += poll()


def record(folder: Path, number: int, console: Console) -> dict[str, Path]:
    """Return a capture of each client."""
    captures: dict[str, Path] = {}
    with KafkaCluster(NEWEST, nodes=1) as cluster:
        clients: Mapping[str, Callable[[str, int], None]] = {
            "kwire": _with_kwire,
            "librdkafka": _with_librdkafka,
            "kafka-python": _with_kafka_python,
            "aiokafka": _with_aiokafka,
            "franz-go": _with_franz_go,
            "kafkajs": _with_kafkajs,
            "Java": lambda bootstrap, number: _with_java(cluster, bootstrap, number),
        }
        for name, use in clients.items():
            console.print(f"{name} ...", style="dim")
            captures[name] = folder / f"{name}.pcapng"
            with Tap(cluster.bootstrap, record=captures[name]) as tap:
                use(tap.address, number)
    return captures


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tools/tshark-table", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captures", nargs="*", type=Path, metavar="CAPTURE", help="pcap or pcapng")
    parser.add_argument("--records", type=int, default=1_000, help="that each client writes (1,000)")
    options = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory() as folder:
        captures = {path.name: path for path in options.captures} or record(Path(folder), options.records, console)
        return _print(console, captures)


def _print(console: Console, captures: Mapping[str, Path]) -> int:
    """Print a table in Markdown."""
    version = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    console.print(f"| capture | frames | read by kwire | read by tshark {version} | what tshark says of the others |")
    console.print("|---|---|---|---|---|")
    unread: Counter[str] = Counter()
    for name, path in captures.items():
        own, ports = count_by_kwire(path)
        other = count_by_tshark(path, ports)
        unread += own.complaints
        reasons = ", ".join(f"{text}: {count}" for text, count in other.complaints.most_common())
        console.print(f"| {name} | {own.frames} | {own.read} | {other.read} of {other.frames} | {reasons} |")
    for text, count in unread.most_common():
        console.print(f"kwire: {count} x {text}")
    return 1 if unread else 0
