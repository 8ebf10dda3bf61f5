"""`ShareRecord`: one acquired record, with what can be done with it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kwire.consumer.record import ConsumerRecord
from kwire.share.acknowledgements import AcknowledgeType

if TYPE_CHECKING:
    from kwire.share.acquired import AcquiredRecords


class ShareRecord(ConsumerRecord):
    """A record that this consumer holds under a lock of the broker, until it is acknowledged or the lock ends.

    >>> with record:                       # doctest: +SKIP
    ...     send_mail(record.value)        # leaves normally: accept; raises: release

    accept    the group is done with the record
    release   the group delivers it again, to this or another consumer
    reject    the group never delivers it again (or moves it to its dead letter queue)
    renew     the lock starts again; the record stays here and is acknowledged later (Kafka 4.2)

    An acknowledgement goes out with the next poll, commit or close, and before the lock ends in any case; until then
    another one may replace it. Pickled, it is a `ConsumerRecord`: the lock cannot be taken along.
    """

    __slots__ = ("_acquired",)

    _acquired: AcquiredRecords

    def __reduce__(self) -> tuple[type[Any], tuple[object, ...]]:
        return ConsumerRecord, self._fields()

    @property
    def delivery_count(self) -> int:
        """Return how often the group has delivered the record, this time included; from 1."""
        return self._acquired.delivery_count(self.offset)

    @property
    def lock_deadline(self) -> float:
        """Return when the lock ends: seconds of `time.monotonic`. A renewal moves it."""
        return self._acquired.lock_deadline(self.offset)

    @property
    def is_lost(self) -> bool:
        """Return whether the lock has ended without an acknowledgement: the group delivers the record again."""
        return self._acquired.is_lost(self.offset)

    def accept(self) -> None:
        """Mark the record as processed. Raises LockLostError if the lock has ended."""
        self._acquired.acknowledge(self.offset, AcknowledgeType.ACCEPT)

    def release(self) -> None:
        """Let the group deliver the record again, now. Raises LockLostError if the lock has ended."""
        self._acquired.acknowledge(self.offset, AcknowledgeType.RELEASE)

    def reject(self) -> None:
        """Let the group never deliver the record again. Raises LockLostError if the lock has ended."""
        self._acquired.acknowledge(self.offset, AcknowledgeType.REJECT)

    def renew(self) -> None:
        """Extend the lock by its full duration; the record is not delivered twice, and must be acknowledged later.

        Raises LockLostError if the lock has ended, UnsupportedVersionError for a broker before Kafka 4.2.
        """
        self._acquired.acknowledge(self.offset, AcknowledgeType.RENEW)

    def or_reject(self) -> OrReject:
        """Return a context manager that accepts the record, or rejects it if the block raises."""
        return OrReject(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._acquired.settle(self.offset, AcknowledgeType.ACCEPT if kind is None else AcknowledgeType.RELEASE)


class OrReject:
    """What `ShareRecord.or_reject` returns."""

    __slots__ = ("_record",)

    def __init__(self, record: ShareRecord) -> None:
        self._record = record

    def __enter__(self) -> ShareRecord:
        return self._record

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        record = self._record
        # Ctrl-C and the like say nothing about the record.
        is_fault = kind is not None and issubclass(kind, Exception)
        interrupted = AcknowledgeType.REJECT if is_fault else AcknowledgeType.RELEASE
        record._acquired.settle(record.offset, AcknowledgeType.ACCEPT if kind is None else interrupted)
