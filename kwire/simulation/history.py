"""What happened in a run: what producers sent, how each record resolved, what readers read, what logs hold.

It is the only evidence of the checker. The value of a record names the record, so that it is recognized in any log.
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
    """A record: its producer, its topic, and its number among the records of this producer and topic."""

    producer: str
    topic: str
    number: int

    def value(self, size: int) -> bytes:
        """Return the record's value: its name, padded to `size` bytes."""
        return f"{self.producer}/{self.topic}/{self.number}/".encode().ljust(size, _PADDING)

    @classmethod
    def of(cls, value: bytes | None) -> RecordId | None:
        """Return the record of a value from a log; None if no producer sent it."""
        parts = (value or b"").rstrip(_PADDING).split(b"/")
        if len(parts) != 4 or not parts[2].isdigit():
            return None
        return cls(parts[0].decode(), parts[1].decode(), int(parts[2]))


class Resolution(NamedTuple):
    """How a response resolved. `number` counts all resolutions of the run."""

    number: int
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
    """A record that `send` accepted. `partition` and `key` are the arguments of `send`."""

    id: RecordId
    at: float
    partition: int | None
    key: bytes | None
    timeout: float | None = None  # of this record, in seconds
    resolutions: list[Resolution] = field(default_factory=list)

    @property
    def partitioned_by(self) -> str:
        """Return how the record got its partition: order is promised only among records that got it in the same way."""
        if self.partition is not None:
            return "explicit"
        return "unkeyed" if self.key is None else "keyed"

    @property
    def acknowledged(self) -> RecordMetadata | None:
        return self.resolutions[0].metadata if self.resolutions else None

    @property
    def reported_partition(self) -> int | None:
        """Return the partition that the resolution names."""
        if self.acknowledged is not None:
            return self.acknowledged.partition
        if isinstance(self.error, TransactionError):  # its partition is where the transaction failed
            return None
        found = self.error.where.get("partition") if self.error is not None else None
        return found if isinstance(found, int) else None

    @property
    def error(self) -> KwireError | None:
        return self.resolutions[0].error if self.resolutions else None


@dataclass(frozen=True, slots=True)
class LogCopy:
    """A partition's log at the end of the run, or when the topic was deleted.

    `topic_id` separates topics of the same name. `open_from` is the first offset of a transaction without an end.
    """

    topic: str
    topic_id: UUID
    partition: int
    records: tuple[tuple[int, bytes | None], ...]  # (offset, value)
    is_deleted: bool = False
    open_from: int | None = None


@dataclass(slots=True, eq=False)
class SentTransaction:
    """A transaction, as its user sees it. With `is_commit_requested` alone it may be committed or aborted."""

    producer: str
    number: int
    records: list[RecordId] = field(default_factory=list)
    is_commit_requested: bool = False
    is_committed: bool = False
    is_aborted: bool = False

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.producer}"


@dataclass(frozen=True, slots=True)
class ReadCopy:
    """What a reader with read_committed got from a partition, in its order."""

    reader: str
    topic: str
    partition: int
    records: tuple[tuple[int, bytes | None], ...]


@dataclass(slots=True)
class History:
    """Everything that the checker may look at."""

    transactions: list[SentTransaction] = field(default_factory=list)
    reads: list[ReadCopy] = field(default_factory=list)
    sent: dict[RecordId, Sent] = field(default_factory=dict)
    logs: list[LogCopy] = field(default_factory=list)
    truncated: Counter[RecordId] = field(default_factory=Counter)  # lost from a log with its leader
    unclean: Counter[RecordId] = field(default_factory=Counter)  # lost by an unclean election
    gave_up_early: list[str] = field(default_factory=list)  # errors that ended a transaction needlessly
    refused: int = 0  # calls of `send` that raised
    resolved_count: int = 0
    flushes_requested: int = 0
    flushes_done: int = 0

    def add_sent(self, sent: Sent) -> None:
        assert sent.id not in self.sent
        self.sent[sent.id] = sent

    def resolved(self, id: RecordId, response: ProduceResponse, now: float) -> None:
        error = response.exception(0)
        metadata = response.result(0) if error is None else None
        self.sent[id].resolutions.append(Resolution(self.resolved_count, now, metadata, error))
        self.resolved_count += 1

    @property
    def unresolved(self) -> list[Sent]:
        return [sent for sent in self.sent.values() if not sent.resolutions]
