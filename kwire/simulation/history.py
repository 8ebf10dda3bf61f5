"""What happened in a run, as its users and the logs saw it: the checker's only evidence.

Owns the records that were sent with what became of each, and copies of every log that there was. A record says in its
value who it is, so that it is known wherever it turns up. It judges nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kwire.errors import DeliveryError, KwireError, TransactionError
from kwire.producer.futures import ProduceResponse, RecordMetadata

_PADDING = b"."


class RecordId(NamedTuple):
    """A record: who sent it, where to, and its number among all that this producer sent."""

    producer: str
    topic: str
    number: int

    def value(self, size: int) -> bytes:
        """What the record carries: its name, padded to `size` bytes."""
        return f"{self.producer}/{self.topic}/{self.number}/".encode().ljust(size, _PADDING)

    @classmethod
    def of(cls, value: bytes | None) -> RecordId | None:
        """Who a value found in a log is; None for one that nobody sent."""
        parts = (value or b"").rstrip(_PADDING).split(b"/")
        if len(parts) != 4 or not parts[2].isdigit():
            return None
        return cls(parts[0].decode(), parts[1].decode(), int(parts[2]))


class Outcome(NamedTuple):
    """How a response resolved, and as which of all responses of the run."""

    place: int
    at: float
    metadata: RecordMetadata | None
    error: KwireError | None

    @property
    def may_be_stored(self) -> bool:
        if self.error is None:
            return True
        return isinstance(self.error, DeliveryError) and self.error.possibly_persisted


@dataclass(slots=True, eq=False)
class Sent:
    """A record that was handed over. `partition` and `key` are as the user gave them."""

    id: RecordId
    at: float
    partition: int | None
    key: bytes | None
    timeout: float | None = None  # its own time limit, in seconds
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def lane(self) -> str:
        """Order is promised within a partition for records that got their partition in the same way."""
        if self.partition is not None:
            return "explicit"
        return "unkeyed" if self.key is None else "keyed"

    @property
    def acknowledged(self) -> RecordMetadata | None:
        return self.outcomes[0].metadata if self.outcomes else None

    @property
    def told_partition(self) -> int | None:
        """Where the outcome says that it is, or was to go."""
        if self.acknowledged is not None:
            return self.acknowledged.partition
        if isinstance(self.error, TransactionError):  # it says where the transaction failed, perhaps elsewhere
            return None
        found = self.error.where.get("partition") if self.error is not None else None
        return found if isinstance(found, int) else None

    @property
    def error(self) -> KwireError | None:
        return self.outcomes[0].error if self.outcomes else None


@dataclass(frozen=True, slots=True)
class LogCopy:
    """A partition's log at its end: of the run, or of the topic. `topic_id` tells topics of one name apart, `open_from`
    is where the first transaction begins that has no end."""

    topic: str
    topic_id: UUID
    partition: int
    records: tuple[tuple[int, bytes | None], ...]  # (offset, value)
    is_deleted: bool = False
    open_from: int | None = None


@dataclass(slots=True, eq=False)
class Transacted:
    """A transaction, as its user knows it. `is_commit_asked` but neither end known: it may have gone either way."""

    producer: str
    number: int
    records: list[RecordId] = field(default_factory=list)
    is_commit_asked: bool = False
    is_committed: bool = False
    is_aborted: bool = False

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.producer}"


@dataclass(frozen=True, slots=True)
class ReadCopy:
    """What a reader with read_committed was given of a partition, in its order."""

    reader: str
    topic: str
    partition: int
    records: tuple[tuple[int, bytes | None], ...]


@dataclass(slots=True)
class History:
    transactions: list[Transacted] = field(default_factory=list)
    reads: list[ReadCopy] = field(default_factory=list)
    sent: dict[RecordId, Sent] = field(default_factory=dict)
    logs: list[LogCopy] = field(default_factory=list)
    truncated: Counter[RecordId] = field(default_factory=Counter)  # were in a log, and lost with its leader
    unclean: Counter[RecordId] = field(default_factory=Counter)  # were lost by an unclean election
    gave_way: list[str] = field(default_factory=list)  # what ended transactions that waiting would have cured
    refused: int = 0  # sends that raised at once
    resolutions: int = 0
    flushes_asked: int = 0
    flushes_done: int = 0

    def hand_over(self, sent: Sent) -> None:
        assert sent.id not in self.sent
        self.sent[sent.id] = sent

    def resolved(self, id: RecordId, response: ProduceResponse, now: float) -> None:
        error = response.exception(0)
        metadata = response.result(0) if error is None else None
        self.sent[id].outcomes.append(Outcome(self.resolutions, now, metadata, error))
        self.resolutions += 1

    @property
    def unresolved(self) -> list[Sent]:
        return [sent for sent in self.sent.values() if not sent.outcomes]
