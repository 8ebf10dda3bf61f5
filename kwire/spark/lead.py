"""The lead transaction: how the driver makes all rows of a batch visible exactly once, whatever process dies.

    begin           InitProducerId of the lead's id: fences other drivers, aborts what a dead one left half done
    read marker     is this batch decided already?  yes: complete it, and write nothing
    check sides     each side transaction must still be open
    write           the batches that tasks sent inline, and the marker with the list of the sides: one transaction
    decide          EndTxn of the lead: from here on the batch is written
    complete        EndTxn of each side
    clear           abort side transactions of this query that no marker lists

Tasks write nothing that a consumer with read_committed sees: they send encoded records (inline), or leave a transaction
open (a side). So a task may be repeated, lost or run twice. A driver that dies before `decide` leaves nothing visible;
one that dies after it leaves the marker, by which the next one completes the batch. The marker is an offset of a group,
whose name is the lead's transactional id.

A side transaction that is decided may end before it is completed, if its driver stays down for longer than the
transaction's time-out. Brokers then refuse to commit it, always: this is noticed, and `onInDoubt` says what to do.

`LeadTransaction` runs in the driver's Python worker, without Spark: it acts only through `requests` and `reach`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from kwire.errors import (
    AbortableError,
    ConfigurationError,
    FencedError,
    InDoubtError,
    KwireError,
    MissingMarkerError,
    RequestTimeoutError,
    TransactionError,
)
from kwire.producer.transaction import TransactionErrorAction, transaction_error, transaction_error_action
from kwire.spark import fault_points
from kwire.spark.fault_points import FaultPoint
from kwire.spark.marker import Marker, Side, parse_marker, side_prefix
from kwire.spark.option_parsers import TopicPartition
from kwire.spark.options import ExactlyOnce
from kwire.spark.transactions import EncodedBatch, OpenTransaction, TransactionRequests, TransactionWriter, has_ended

_log = logging.getLogger("kwire.spark")

# The lead's transaction lives only within a commit.
_LEAD_TIMEOUT_MS = 60_000


class BatchId(NamedTuple):
    """A batch: of a streaming query, by the id of the query in its checkpoint, or of a single write (number 0)."""

    query: str
    number: int
    is_stream: bool

    def prefix(self, options: ExactlyOnce) -> str:
        """Return the transactional id of the lead, with which those of the sides begin; also the marker's group."""
        return options.prefix or f"kwire-{'' if self.is_stream else 'write-'}{self.query}"

    def __str__(self) -> str:
        return f"batch {self.number} of query {self.query}" if self.is_stream else f"write {self.query}"


@dataclass(frozen=True, slots=True)
class Prepared(WriterCommitMessage):
    """What a task leaves for the driver: its batches inline, or a side transaction, or nothing if it was skipped."""

    batch: BatchId
    task: int
    rows: int
    digest: int
    inline: tuple[EncodedBatch, ...] = ()
    side: Side | None = None
    partitions: tuple[TopicPartition, ...] = ()  # that the side transaction has written
    transaction_version: int = 0  # of the side


class LeadTransaction:
    """Commits, aborts and completes the batches of one query."""

    def __init__(
        self,
        requests: TransactionRequests,
        options: ExactlyOnce,
        prefix: str,
        *,
        reach: FaultPoint = fault_points.reach,
    ) -> None:
        self._requests = requests
        self._options = options
        self._prefix = prefix
        self._reach = reach

    def commit(self, batch: BatchId, parts: Sequence[Prepared], *, clears: bool = True) -> bool:
        """Make the rows of the batch visible, unless they are. Safe to repeat.

        `clears`: abort also what a dead run may have left open. If the batch has sides, what losing tasks left open is
        aborted in any case. Return whether this was done: not for a batch that was decided before.
        """
        lead = self._requests.begin(self._prefix, min(_LEAD_TIMEOUT_MS, self._options.transaction_timeout_ms))
        self._reach(fault_points.LEAD_INITIALIZED)
        clears = clears or any(part.side for part in parts)
        # Listed before the marker is read: if the batch is undecided then, none of them is of a later batch.
        left_over = self._left_over(lead, parts) if clears else []
        marker = self.read_marker()
        if marker is not None and self._is_decided(marker, batch):
            _log.info("%s was written before: it is not written again", batch)
            self._complete_earlier(lead, marker, batch, parts)
            return False
        self._check_marker(marker, batch)
        self._decide(lead, batch, parts)
        self._complete(batch, [part.side for part in parts if part.side is not None], lead.version)
        self._abort(left_over)
        self._reach(fault_points.COMPLETED)
        return clears

    def abort(self, batch: BatchId, parts: Sequence[Prepared]) -> None:
        """Abort the side transactions of a batch that failed, unless it was decided, which its driver may not know.

        While that is unknown, nothing is done: the next run of the query completes or clears the batch. Without sides
        there is nothing to abort, and no wait for a lead that was killed: its marker is read when it has timed out.
        """
        self._reach(fault_points.IN_ABORT)
        if not any(part.side for part in parts):
            return
        try:
            marker = self.read_marker()
        except RequestTimeoutError as error:
            _log.warning("it is not known whether %s was written; nothing is aborted: %s", batch, error)
            return
        if marker is not None and self._is_decided(marker, batch):
            self._commit_sides(marker.sides, marker.transaction_version)
        decided = _ids(marker.sides if marker is not None else (), self._prefix)
        self._abort([one for one in _transactions(parts, self._prefix) if one[:3] not in decided])

    def recover(self) -> None:
        """Complete the newest batch, if a dead driver did not. What cannot be completed now is left to `commit`."""
        self._reach(fault_points.RECOVERING)
        marker = self.read_marker(is_stable=False)
        if marker is not None and marker.sides:
            self._requests.end(_opened(marker.sides, self._prefix, marker.transaction_version), is_commit=True)

    def read_marker(self, *, is_stable: bool = True) -> Marker | None:
        found = self._requests.committed(self._prefix, self._options.marker_key, is_stable=is_stable)
        return None if found is None else parse_marker(*found)

    # -- before the decision

    def _is_decided(self, marker: Marker, batch: BatchId) -> bool:
        if marker.query != batch.query:
            raise ConfigurationError(
                f"{self._prefix} is the transactional id of another query, {marker.query}: this is {batch.query}",
                remedy="give each query a transactionalIdPrefix of its own; a new checkpoint is a new query",
                group=self._prefix,
            )
        if marker.batch > batch.number:
            raise TransactionError(
                f"{batch} cannot be written: batch {marker.batch} of the query was written already",
                remedy="the checkpoint is an old one; go on with the newest, or begin with a new one",
                group=self._prefix,
            )
        return marker.batch == batch.number

    def _check_marker(self, marker: Marker | None, batch: BatchId) -> None:
        """Raise MissingMarkerError if the batch before this one left no marker."""
        newest = -1 if marker is None else marker.batch
        if newest == batch.number - 1 or self._options.accepts_missing_marker:
            return
        topic, partition = self._options.marker_key
        raise MissingMarkerError(
            f"it is not known whether {batch} was written: the marker of the batch before it is missing"
            + (f", the newest is of batch {newest}" if newest >= 0 else ""),
            remedy="it expires after offsets.retention.minutes, and goes with its topic; earlier batches may also have "
            "been written at least once. Look whether the rows are in the topic; to write them, set "
            "onMissingMarker to assumeNew",
            group=self._prefix,
            topic=topic,
            partition=partition,
        )

    def _decide(self, lead: OpenTransaction, batch: BatchId, parts: Sequence[Prepared]) -> None:
        """Write what is inline, and the marker, and commit both. The batch is written once this returns."""
        sides = tuple(part.side for part in parts if part.side is not None)
        marker = Marker(batch.query, batch.number, lead.version, sides)
        metadata = marker.metadata()
        is_ending = False
        try:
            self._check_sides(parts)
            writer = TransactionWriter(self._requests, lead)
            # All tasks at once, so that the partitions are written in parallel.
            writer.write(batch for part in parts for batch in part.inline)
            self._reach(fault_points.LEAD_PRODUCING)
            self._requests.commit_offset(lead, self._prefix, self._options.marker_key, marker.offset, metadata)
            self._reach(fault_points.BEFORE_DECISION)
            is_ending = True
            self._raise(self._requests.end([lead], is_commit=True)[lead.id], batch)
        except KwireError as error:
            if not is_ending:  # else it may be committed, and must not be aborted
                self._abort([lead])
            if isinstance(error, (TransactionError, ConfigurationError)):
                raise
            self._raise(error, batch, is_ending=is_ending)
        self._reach(fault_points.AFTER_DECISION)

    def _check_sides(self, parts: Sequence[Prepared]) -> None:
        """Raise AbortableError if a side transaction has ended: it was too slow, or its task was taken over."""
        for part in parts:
            if part.side is None:
                continue
            try:
                # The older request works with both protocols, and adds nothing: the partition is part of it already.
                self._requests.add_partitions(_opened_of(part, self._prefix), part.partitions[:1])
            except KwireError as error:
                if not has_ended(error):
                    raise
                raise AbortableError(
                    f"the transaction of task {part.task} with {part.rows} rows has ended before the batch did",
                    remedy="raise kafka.transaction.timeout.ms (brokers allow transaction.max.timeout.ms), or make "
                    "batches smaller; Spark repeats the batch when the query is started again",
                ) from error

    def _raise(self, error: KwireError | None, batch: BatchId, *, is_ending: bool = True) -> None:
        if error is None:
            return
        kind = transaction_error_action(error)
        if has_ended(error) or kind is TransactionErrorAction.FENCED:
            raise FencedError(
                f"{batch} was not committed here: another driver has taken over {self._prefix}, or the commit took "
                f"longer than {_LEAD_TIMEOUT_MS} ms",
                remedy="run each query, and each checkpoint, once; this one can be started again",
                **error.where,
            ) from error
        if is_ending:
            raise TransactionError(
                f"it is not known whether {batch} was committed: {error.message}",
                remedy="start the query again: it finds out, and commits the batch if it was not",
                **error.where,
            ) from error
        is_fatal = kind is TransactionErrorAction.FATAL
        raise transaction_error(error, kind if is_fatal else TransactionErrorAction.ABORTABLE)

    # -- after the decision

    def _complete(self, batch: BatchId, sides: Sequence[Side], version: int) -> None:
        """Commit the side transactions of a decided batch. Raises InDoubtError for those that have ended."""
        lost = self._commit_sides(sides, version)
        if lost:
            self._report_in_doubt(batch, lost)

    def _commit_sides(self, sides: Sequence[Side], version: int) -> list[Side]:
        """Commit them, and return those that cannot be committed any more."""
        opened = _opened(sides, self._prefix, version)
        results = self._requests.end(opened, is_commit=True)
        for error in results.values():
            if error is not None and not has_ended(error):
                raise error
        return [side for side, one in zip(sides, opened, strict=True) if results[one.id] is not None]

    def _complete_earlier(
        self, lead: OpenTransaction, marker: Marker, batch: BatchId, parts: Sequence[Prepared]
    ) -> None:
        """Complete a batch that was decided before, and do what `onInDoubt` says about parts that are lost."""
        lost = self._commit_sides(marker.sides, marker.transaction_version)
        again: list[Prepared] = []
        if lost and self._options.on_in_doubt == "duplicate":
            again = list(parts)
            _log.warning("%s is written again as a whole: %d of its rows were lost", batch, _rows(lost))
        elif lost and self._options.on_in_doubt == "repair":
            again = self._repeated(batch, lost, parts)
            _log.warning("%s is repaired: %d rows that were lost are written again", batch, _rows(lost))
        elif lost:
            self._report_in_doubt(batch, lost)
        if again:
            self._decide(lead, batch, again)
            self._complete(batch, [part.side for part in again if part.side is not None], lead.version)
        kept = _ids((*marker.sides, *(part.side for part in again if part.side is not None)), self._prefix)
        self._abort([one for one in _transactions(parts, self._prefix) if one[:3] not in kept])

    def _repeated(self, batch: BatchId, lost: Sequence[Side], parts: Sequence[Prepared]) -> list[Prepared]:
        """Return the parts that have the same rows as those lost. Raises InDoubtError if one has none."""
        by_task = {part.task: part for part in parts}
        found: list[Prepared] = []
        for side in lost:
            part = by_task.get(side.task)
            if part is None or (part.rows, part.digest) != (side.rows, side.digest):
                self._report_in_doubt(
                    batch, lost, f"; task {side.task} made other rows now, so that it cannot be repaired"
                )
            else:
                found.append(part)
        return found

    def _report_in_doubt(self, batch: BatchId, lost: Sequence[Side], why: str = "") -> None:
        text = (
            f"{batch} is decided, but {_rows(lost)} of its rows are lost: the transactions of tasks "
            f"{', '.join(f'{side.task} ({side.rows} rows)' for side in lost[:10])}"
            f"{' and more' if len(lost) > 10 else ''} ended before they could be committed{why}"
        )
        if self._options.on_in_doubt == "skip":
            _log.error("%s; the query goes on without them (onInDoubt is skip)", text)
            return
        raise InDoubtError(
            text,
            lost_rows=_rows(lost),
            remedy="set onInDoubt to repair (write them again if the tasks make the same rows), duplicate (write the "
            "whole batch again) or skip (go on without them), and start the query again",
            group=self._prefix,
        )

    # -- side transactions that nobody needs

    def _left_over(self, lead: OpenTransaction, parts: Sequence[Prepared]) -> list[OpenTransaction]:
        """Return the open side transactions of this query that are not of this batch: of losing tasks, of dead runs."""
        needed = {one[:3] for one in _transactions(parts, self._prefix)}
        try:
            ongoing = self._requests.ongoing(side_prefix(self._prefix), lead.version)
        except KwireError as error:
            _log.warning("transactions that an earlier run may have left open cannot be listed: %s", error)
            return []
        return [one for one in ongoing if one[:3] not in needed]

    def _abort(self, transactions: Sequence[OpenTransaction]) -> None:
        if not transactions:
            return
        for name, error in self._requests.end(transactions, is_commit=False).items():
            if error is not None and not has_ended(error):
                _log.warning("transaction %s stays open until its time-out: %s", name, error)


def _rows(sides: Sequence[Side]) -> int:
    return sum(side.rows for side in sides)


def _opened(sides: Sequence[Side], prefix: str, version: int) -> list[OpenTransaction]:
    return [
        OpenTransaction(side.transactional_id(prefix), side.producer_id, side.producer_epoch, version) for side in sides
    ]


def _opened_of(part: Prepared, prefix: str) -> OpenTransaction:
    assert part.side is not None
    return _opened([part.side], prefix, part.transaction_version)[0]


def _transactions(parts: Sequence[Prepared], prefix: str) -> list[OpenTransaction]:
    return [_opened_of(part, prefix) for part in parts if part.side is not None]


def _ids(sides: Sequence[Side], prefix: str) -> set[tuple[str, int, int]]:
    """Return what distinguishes a transaction from an earlier or a later one with the same id."""
    return {one[:3] for one in _opened(sides, prefix, 0)}
