"""Define a contestant's task and its result; both travel as JSON between the contest and its process."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from typing import Any, TextIO

_POOL = 1_000  # different values, so that codecs have something to do and caches are not everything


@dataclass(frozen=True)
class Task:
    """Describe a task. `contestant` is one of `bench.contestants.CONTESTANTS`; `warm_topic` is read for the warm-up."""

    contestant: str
    bootstrap: str
    topic: str
    records: int
    warmup: int = 0
    size: int = 100
    partitions: int = 1
    compression: str = "none"
    keys: int = 0
    warm_topic: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        return cls(**json.loads(text))

    def values(self, count: int) -> list[bytes]:
        return list(islice(cycle(payloads(self.size)), count))

    def key_list(self, count: int) -> list[bytes | None]:
        """Return the keys of `count` records: `keys` different ones, or None for every record if `keys` is 0."""
        if not self.keys:
            return [None] * count
        return list(islice(cycle([b"key-%08d" % number for number in range(self.keys)]), count))

    def check_read(self, seen: int, length: int) -> None:
        """Check the number of records that a consumer read and the total length of their values."""
        if (seen, length) != (self.records, self.records * self.size):
            raise RuntimeError(f"{seen} records of {length} bytes were read, not {self.records} of {self.size} each")


@dataclass(frozen=True)
class Sample:
    """Hold what one contestant needed in one round: CPU seconds, with its children's, and elapsed seconds.

    `measures` are those of the bench, such as latencies and bytes. `arrived` is the broker's count of records.
    """

    records: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    measures: dict[str, float] = field(default_factory=dict)
    version: str = ""
    arrived: int | None = None
    failure: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Sample:
        return cls(**json.loads(text))

    def measure(self, name: str) -> float:
        """Return a measure by name; "per_cpu" and "per_second" are records, "us_cpu" is microseconds."""
        match name:
            case "per_cpu":
                return self.records / self.cpu_s
            case "per_second":
                return self.records / self.wall_s
            case "us_cpu":
                return self.cpu_s / self.records * 1e6
            case _:
                return self.measures[name]


def payloads(size: int) -> list[bytes]:
    """Return values of one size that look like an application's: JSON with numbers and words, equal in every process.

    They have no line ends, because Kafka's tools read them from a file of lines. lz4 halves their size.
    """
    chance = random.Random(20_000 + size)
    words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"]
    pool = []
    for number in range(_POOL):
        parts = [f'{{"id":{number},"at":{chance.getrandbits(40)}']
        while sum(map(len, parts)) < size:
            parts.append(f',"{chance.choice(words)}":"{chance.getrandbits(48):x}"')
        pool.append("".join(parts).encode()[: size - 1] + b"}")
    return pool


class Coordination:
    """Synchronize with the contest: `say("queued")` writes a word and waits for the contest's line."""

    def __init__(self, reads: TextIO, writes: TextIO) -> None:
        self._reads, self._writes = reads, writes

    def say(self, word: str) -> None:
        print(word, file=self._writes, flush=True)
        if not self._reads.readline():
            raise SystemExit("the contest has ended")
