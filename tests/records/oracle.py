"""Kafka's own record code as the reference: RecordsOracle.java, run with a list of requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from brokers.jars import fetch_jars

from kwire.records import NO_LEADER_EPOCH, Record
from kwire.records.rows import NewRecord
from tests.java_program import JavaProgram

from .cases import APPENDED, Case

VERSIONS = ("3.9.1", "4.4.0")
_HERE = Path(__file__).resolve().parent
_SOURCE = _HERE / "RecordsOracle.java"


class Oracle:
    """A version of kafka-clients; Maven downloads missing jars. The caller closes it."""

    def __init__(self, version: str, scratch: Path) -> None:
        source = scratch / "RecordsOracle.java"
        text = _SOURCE.read_text()
        if version.startswith("4.4"):
            text = re.sub(r"(import org\.apache\.kafka\.common\.record\.)(?!TimestampType)", r"\1internal.", text)
        source.write_text(text)
        self._program = JavaProgram(fetch_jars("kafka-clients", version), source)

    def ask(self, requests: Iterable[str]) -> list[list[str]]:
        """Return the fields of each response."""
        return [line.split("\t") for line in self._program.ask([*requests])]

    def close(self) -> None:
        self._program.close()


def written(data: bytes | bytearray | memoryview | None) -> str:
    return "-" if data is None else data.hex() or "."


def parsed(text: str) -> bytes | None:
    return None if text == "-" else b"" if text == "." else bytes.fromhex(text)


def build_requests(case: Case) -> list[str]:
    fields = case.fields
    head = [
        "build", case.name, case.magic, case.codec.name.lower(), case.timestamp_type, case.base_offset,
        APPENDED if case.timestamp_type else -1, fields.get("producer_id", -1), fields.get("producer_epoch", -1),
        fields.get("base_sequence", -1), int(fields.get("is_transactional", False)), NO_LEADER_EPOCH,
    ]  # fmt: skip
    return ["\t".join(map(str, head)), *map(_record_line, case.new_records), "end"]


def _record_line(record: NewRecord) -> str:
    timestamp, key, value, headers = record
    pairs = ",".join(f"{written(name.encode())}={written(content)}" for name, content in headers)
    return f"record\t{timestamp}\t{written(key)}\t{written(value)}\t{pairs}"


def records_read(responses: Iterable[Sequence[str]]) -> dict[str, list[Record] | str]:
    """Return the records that Kafka read, or its error, by name."""
    found: dict[str, list[Record] | str] = {}
    records: list[Record] = []
    for kind, *fields in responses:
        if kind == "record":
            offset, timestamp, key, value, headers = fields
            pairs = [pair.split("=") for pair in headers.split(",") if pair]
            named = tuple(((parsed(name) or b"").decode(), parsed(content)) for name, content in pairs)
            records.append(Record(int(offset), int(timestamp), parsed(key), parsed(value), named))
        elif kind in ("end", "failed"):
            found[fields[0]] = records if kind == "end" else fields[1]
            records = []
    return found
