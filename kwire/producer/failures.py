"""Failed records: each caller gets its own copy of the error, and failures that no caller has seen are counted.

A caller sees a failure by calling the response's `result` or `exception`, by awaiting it, or by adding a callback; for
many records, by doing so with their `BulkResponse`. Records that are delivered cost nothing here.
"""

from __future__ import annotations

import copy
import threading

from kwire.errors import DeliveryError, KwireError, UndeliveredError

# How many unseen failures are kept, so that `take` can name the cause of one.
_CAUSES_MAX = 16


class Failure(Exception):  # noqa: N818  # a holder of an error, not an error
    """The error of records that failed together, and which of them a caller has seen.

    Never raised. It is an exception because a batch builder stores one as the result of its records.
    """

    def __init__(self, error: KwireError, topic: str, count: int, failures: Failures | None) -> None:
        super().__init__(error)
        self.error = error
        self.topic = topic
        self.unseen = count
        self.seen: dict[int, set[int]] = {}  # record numbers, by the id of their batch builder
        self.epoch = 0
        self._failures = failures
        if failures is not None:
            failures.add(self)

    def own(self) -> KwireError:
        """Return a copy of the error, which a caller may raise or change."""
        return own_copy(self.error)

    def see(self, run: object, start: int, end: int) -> None:
        """Mark the records start .. end - 1 of `run` as seen."""
        if self._failures is not None:
            self._failures.see(self, id(run), start, end)


class Failures:
    """The failed records of one producer that no caller has seen. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a finalizer may run here and read a response
        self._epoch = 0  # failures of an earlier epoch no longer count
        self._by_topic: dict[str, int] = {}
        self._causes: dict[Failure, None] = {}  # the first unseen failures, in order
        self._is_unsure = False

    def add(self, failure: Failure) -> None:
        """Count the records of a failure."""
        with self._lock:
            failure.epoch = self._epoch
            self._by_topic[failure.topic] = self._by_topic.get(failure.topic, 0) + failure.unseen
            self._is_unsure |= isinstance(failure.error, DeliveryError) and failure.error.possibly_persisted
            if len(self._causes) < _CAUSES_MAX:
                self._causes[failure] = None

    def see(self, failure: Failure, run_id: int, start: int, end: int) -> None:
        """Subtract those records of a failure from the count, each once."""
        with self._lock:
            if failure.epoch != self._epoch or not failure.unseen:
                return
            numbers = failure.seen.setdefault(run_id, set())
            before = len(numbers)
            numbers.update(range(start, end))
            newly = min(len(numbers) - before, failure.unseen)
            failure.unseen -= newly
            self._by_topic[failure.topic] -= newly
            if not self._by_topic[failure.topic]:
                del self._by_topic[failure.topic]
            if not failure.unseen:
                failure.seen.clear()
                self._causes.pop(failure, None)

    def clear(self) -> None:
        """Forget all failures so far: the caller got an error about them."""
        with self._lock:
            self._epoch += 1
            self._by_topic, self._causes, self._is_unsure = {}, {}, False

    def take(self, why_late: KwireError | None) -> UndeliveredError | None:
        """Return an error about the failed records that no caller has seen, and forget them; None if there are none.

        `why_late` is the cause why records were not delivered in time, if one is known.
        """
        with self._lock:
            by_topic, unsure = dict(self._by_topic), self._is_unsure
            cause = why_late or next((own_copy(failure.error) for failure in self._causes), None)
            self.clear()
        if not by_topic:
            return None
        count = sum(by_topic.values())
        topics = ", ".join(f"{number:,} of {topic}" for topic, number in by_topic.items())
        error = UndeliveredError(
            f"{count:,} record{'s were' if count > 1 else ' was'} not delivered, and nobody looked at the "
            f"response{'s' if count > 1 else ''}: {topics}" + (f"; the first cause: {cause}" if cause else ""),
            records=by_topic,
            possibly_persisted=unsure,
            remedy="look at each response (`result`, `exception`, await or a callback) before the producer is closed, "
            "and see to the cause",
        )
        error.__cause__ = cause
        return error


def own_copy(error: KwireError) -> KwireError:
    """Return a copy without a traceback: an object raised repeatedly would extend it and keep its frames alive."""
    copied = copy.copy(error)
    if error.__cause__ is not None:
        copied.__cause__ = error.__cause__
    notes = getattr(error, "__notes__", None)
    if notes is not None:
        copied.__notes__ = list(notes)
    return copied
