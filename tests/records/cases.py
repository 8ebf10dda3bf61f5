"""Record lists, and batches of them, that Kafka and kwire write for each other to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kwire.records import CREATE_TIME, LOG_APPEND_TIME, Batch, Compression, Record
from kwire.records.rows import NewRecord

NOON = 1_700_000_000_000
APPENDED = NOON + 5_000

MIXED: list[NewRecord] = [
    (NOON, b"key", b"value", ()),
    (NOON + 1, None, b"no key", ()),
    (NOON - 70, b"tombstone", None, ()),
    (NOON + 100_000, b"", b"", ()),
    (NOON, None, None, ()),
    (NOON + 9_000, bytes(range(256)), "\N{SNOWMAN}".encode() * 100, ()),
]
WITH_HEADERS: list[NewRecord] = [
    (NOON, b"k", b"v", (("one", b"1"),)),
    (NOON, None, b"v", (("", b""), ("null", None), ("twice", b"a"), ("twice", b"b"))),
    *MIXED,
    (NOON + 3, b"k", b"v" * 200, (("\N{SNOWMAN}", bytes(200)),)),
]
ALIKE: list[NewRecord] = [(NOON + n // 9, None, b"measured %03d" % n, ()) for n in range(90)]
ALIKE_KEYED: list[NewRecord] = [(NOON + 8 * n, b"sensor %02d" % (n % 50), b"%06d" % n, ()) for n in range(90)]
LARGE: list[NewRecord] = [(NOON, b"large", b"kwire " * 6_000, ()), (NOON, None, bytes(70_000), ())]

LISTS: dict[str, list[NewRecord]] = {
    "mixed": MIXED,
    "with_headers": WITH_HEADERS,
    "alike": ALIKE,
    "alike_keyed": ALIKE_KEYED,
    "large": LARGE,
}


@dataclass(frozen=True)
class Case:
    """A batch to write; `name` is unique and lists all its options."""

    records: str
    magic: int
    codec: Compression
    timestamp_type: int
    base_offset: int = 0
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        kind = "append" if self.timestamp_type == LOG_APPEND_TIME else "create"
        extra = "-transactional" if self.fields else ""
        return f"v{self.magic}-{self.codec.name.lower()}-{kind}-{self.records}{extra}"

    @property
    def new_records(self) -> list[NewRecord]:
        return LISTS[self.records]

    def expected(self) -> list[Record]:
        """Return the records that a reader must return."""
        return [
            Record(
                self.base_offset + index,
                -1 if self.magic == 0 else APPENDED if self.timestamp_type == LOG_APPEND_TIME else timestamp,
                None if key is None else bytes(key),
                None if value is None else bytes(value),
                tuple(headers),
            )
            for index, (timestamp, key, value, headers) in enumerate(self.new_records)
        ]

    def for_encoder(self) -> list[NewRecord]:
        """Return the records as stored by a broker, which replaces all timestamps under log append time."""
        if self.timestamp_type == CREATE_TIME:
            return self.new_records
        return [(APPENDED, *record[1:]) for record in self.new_records]


TRANSACTIONAL = {"producer_id": 1 << 40, "producer_epoch": 7, "base_sequence": 2**31 - 2, "is_transactional": True}


def _cases() -> list[Case]:
    cases = []
    for magic in (0, 1, 2):
        for codec in Compression:
            if magic < 2 and codec is Compression.ZSTD:
                continue
            for timestamp_type in (CREATE_TIME, LOG_APPEND_TIME) if magic else (CREATE_TIME,):
                for name in LISTS:
                    if (name == "with_headers" and magic < 2) or (name == "large" and codec is Compression.NONE):
                        continue
                    if name in ("alike", "alike_keyed", "large") and timestamp_type == LOG_APPEND_TIME:
                        continue
                    cases.append(Case(name, magic, codec, timestamp_type, base_offset=1_000_000_000_000))
    cases.append(Case("mixed", 2, Compression.NONE, CREATE_TIME, fields=TRANSACTIONAL))
    cases.append(Case("mixed", 2, Compression.LZ4, CREATE_TIME, fields=TRANSACTIONAL))
    return cases


CASES = _cases()


def seen(batches: Iterable[Batch]) -> list[Record]:
    return [record for batch in batches for record in batch.records()]
