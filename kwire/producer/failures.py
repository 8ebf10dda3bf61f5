"""Failed records: everybody who looks gets an error object of his own, and those that nobody looked at are counted.

Only failures are counted, which are rare: a record that is delivered costs nothing here. To look at a record is to call
its response's `result` or `exception`, to await it, or to give it a callback; for many records, to do so with their
`BulkResponse`.
"""

from __future__ import annotations

import copy
import threading

from kwire.errors import DeliveryError, KwireError, UndeliveredError

# So many failures that nobody looked at are kept, so that a report can name the cause of one.
_CAUSES_MAX = 16


class Failure(Exception):  # noqa: N818  # it is no error, but has one
    """What a run keeps of records that failed together: their error, and which of them somebody has looked at.

    Never raised. An exception, since that is what a run keeps as an outcome.
    """

    def __init__(self, error: KwireError, topic: str, count: int, failures: Failures | None) -> None:
        super().__init__(error)
        self.error = error
        self.topic = topic
        self.unseen = count
        self.seen: dict[int, set[int]] = {}  # numbers of records, by the id of the run that a response names
        self.epoch = 0
        self._failures = failures
        if failures is not None:
            failures.add(self)

    def own(self) -> KwireError:
        """Return a new object with the same contents, to be raised or changed without effect on others."""
        return own_copy(self.error)

    def see(self, run: object, start: int, end: int) -> None:
        """Note that somebody looked at the records which `run` has as start .. end - 1."""
        if self._failures is not None:
            self._failures.see(self, id(run), start, end)


class Failures:
    """Of one producer: the failed records that nobody has looked at. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may run anywhere, and may look at a response
        self._epoch = 0  # what failed before `clear` is not counted any more
        self._by_topic: dict[str, int] = {}
        self._causes: dict[Failure, None] = {}  # the first of them, in order
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
        """Count those records of a failure no more; each of them once."""
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
        """Forget what failed until now: the caller was told."""
        with self._lock:
            self._epoch += 1
            self._by_topic, self._causes, self._is_unsure = {}, {}, False

    def take(self, why_late: KwireError | None) -> UndeliveredError | None:
        """Return an error about the records that nobody looked at, and forget them; None where there are none.

        `why_late` says what held records back that were not delivered in time, where something is known of that.
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
    """Return a copy without a traceback: raising one object again and again would make that grow, and keep frames."""
    copied = copy.copy(error)
    if error.__cause__ is not None:
        copied.__cause__ = error.__cause__
    notes = getattr(error, "__notes__", None)
    if notes is not None:
        copied.__notes__ = list(notes)
    return copied
