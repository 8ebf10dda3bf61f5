"""Which batches of a fetched range the user must not see: control batches, and under read_committed aborted ones.

A Fetch answer lists the aborted transactions that overlap its range, each by producer id and the offset of its first
record. A transaction of that producer is open from there to its abort marker, so one pass over the batches in offset
order, with the list sorted by first offset, decides for each batch (Kafka's CompletedFetch does the same). The pass
holds for one answer only: the next answer lists again what overlaps its own range, also what began before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kwire.records import Batch


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class BatchFilter:
    """`hides(batch)` for the batches of one answer, which must be asked in offset order, each once.

    With an empty list (read_uncommitted, or nothing aborted) only control batches are hidden.
    """

    __slots__ = ("_open", "_waiting")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open: set[int] = set()

    def hides(self, batch: Batch) -> bool:
        while self._waiting and self._waiting[-1].first_offset <= batch.last_offset:
            self._open.add(self._waiting.pop().producer_id)
        if batch.is_control:
            # A commit marker closes nothing here: a committed transaction is not in the list.
            if batch.producer_id in self._open and batch.control().kind == "abort":
                self._open.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._open
