"""Wireshark's Kafka dissector, as tshark has it: what it makes of packets, field by field, with their positions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.conformance import oracle

_TIMEOUT_S = 100
# Characters that are invalid in XML, but that tshark writes.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Shown(NamedTuple):
    """A field that was shown, and the bytes of the packet that it is."""

    name: str
    start: int
    size: int
    text: str


@dataclass
class Dissected:
    """A dissected packet. `complaints` are the errors that the dissector reports."""

    number: int
    fields: list[Shown] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def dissect(capture: Path, ports: Sequence[int]) -> Iterator[Dissected]:
    """Every packet of a capture, whose connections to these ports are Kafka's."""
    text = _run(capture, ports, "-T", "pdml", "-J", "kafka").decode("utf-8", "replace")
    for packet in ElementTree.fromstring(_NOT_XML.sub("?", text)).iter("packet"):
        number = packet.find("./proto[@name='geninfo']/field[@name='num']")
        assert number is not None
        found = Dissected(int(number.attrib["show"]))
        for one in packet.iter():
            name, show = one.get("name", ""), one.get("show", "")
            if name == "_ws.expert.message":
                found.complaints.append(show)
            elif name == "_ws.malformed":
                found.complaints.append("Malformed Packet")
            elif name.startswith("kafka.") and one.get("size", "0") != "0":
                found.fields.append(Shown(name, int(one.attrib["pos"]), int(one.attrib["size"]), show))
        yield found


def columns(capture: Path, ports: Sequence[int], names: Sequence[str]) -> list[list[str]]:
    """These fields of every packet of Kafka; several frames in a packet are separated by commas."""
    options = [option for name in names for option in ("-e", name)]
    lines = _run(capture, ports, "-Y", "kafka", "-T", "fields", *options).decode().splitlines()
    return [line.split("\t") for line in lines]


def _run(capture: Path, ports: Sequence[int], *options: str) -> bytes:
    tshark = oracle.needed("tshark")
    as_kafka = [option for port in ports for option in ("-d", f"tcp.port=={port},kafka")]
    command = [tshark, "-n", "-r", str(capture), *as_kafka, *options]
    done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
