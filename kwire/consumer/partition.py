"""The fetch state of one assigned partition, and the errors that end its fetching.

    RESOLVING -> FETCHING   its offset was found: by ListOffsets, or where its group has committed
    FETCHING -> RESOLVING   the offset is out of range, and on_out_of_range says where to go
    FETCHING -> VALIDATING  a new leader may have truncated the log before the offset (KIP-320)
    VALIDATING -> FETCHING  it has not, or the offset was moved back to where it has
    VALIDATING -> RESOLVING on_out_of_range says where to go
    any -> FAILED           an error was posted; the partition waits for a seek
    any -> DONE             everything before `end` was fetched; an unreadable record in it still leads to FAILED

Nothing leaves FAILED, and DONE only becomes FAILED. A seek makes a new `PartitionState` with the next assignment epoch
in place of the old one. Whatever was started for the old one (a fetch in flight, an offset request) still refers to the
old object, which the fetcher no longer holds. Example, for a seek that raises the epoch from 7 to 8:

    caller's thread   seek: epoch 7 -> 8; what the PartitionBuffer held is dropped
    loop thread       a fetch response for epoch 7 arrives and is posted, and the next fetch is sent: the loop does not
                      know of the seek yet
    caller's thread   poll: data of epoch 7 for a buffer of epoch 8 is dropped, and its bytes are released
    loop thread       the seek arrives: PartitionState 8 replaces PartitionState 7
    loop thread       the second response for epoch 7 arrives: the fetcher holds state 8, so the response is dropped

At no point are records of epoch 7 returned after the seek, and they cannot move the position of epoch 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from uuid import UUID

from kwire.consumer.offsets import CommittedRequest, FetchStart, Offset, OffsetRequest, known_offset
from kwire.consumer.routing import LeaderAndEpoch
from kwire.consumer.validation import NO_EPOCH, EpochEnd, ValidationRequest
from kwire.errors import (
    BrokerError,
    CorruptRecordsError,
    ErrorCode,
    KwireError,
    LogTruncationError,
    NoOffsetError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)


class FetchState(Enum):
    RESOLVING = "resolving"
    VALIDATING = "validating"
    FETCHING = "fetching"
    FAILED = "failed"
    DONE = "done"


_MOVES: Mapping[FetchState, frozenset[FetchState]] = {
    FetchState.RESOLVING: frozenset({FetchState.FETCHING, FetchState.FAILED, FetchState.DONE}),
    FetchState.VALIDATING: frozenset({FetchState.FETCHING, FetchState.RESOLVING, FetchState.FAILED, FetchState.DONE}),
    FetchState.FETCHING: frozenset({FetchState.VALIDATING, FetchState.RESOLVING, FetchState.FAILED, FetchState.DONE}),
    FetchState.FAILED: frozenset(),
    FetchState.DONE: frozenset({FetchState.FAILED}),
}


class PartitionState:
    """What the fetcher knows of one partition. Times are seconds of the loop's clock."""

    __slots__ = (
        "assignment_epoch", "attempts", "committed_request", "end", "fetch_bytes", "fetch_state", "full_since",
        "is_assigned_by_group", "is_paused", "is_range_validated", "is_stopped", "key", "last_error", "leader",
        "leader_awaited_since", "leader_epoch_seen", "not_before", "offset", "offset_epoch", "offset_request",
        "partition", "replica", "replica_until", "resets", "start", "topic", "topic_id", "unknown_since",
        "validated_epoch", "validation_request",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        assignment_epoch: int,
        start: FetchStart,
        fetch_bytes: int,
        end: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.key = topic, partition
        self.assignment_epoch = assignment_epoch
        self.start: FetchStart = start  # of `assign`, `add` or `seek`
        self.end = end  # nothing is fetched from this offset on
        self.fetch_state = FetchState.RESOLVING
        self.offset = -1  # the next to fetch, ahead of the caller's position
        self.offset_epoch = NO_EPOCH  # leader epoch of the record before it
        self.validated_epoch = NO_EPOCH  # the leader with this epoch has what was read; NO_EPOCH: never checked
        self.leader_epoch_seen = NO_EPOCH  # the least that metadata should know: the group has seen this epoch
        offset = known_offset(start)
        if offset is not None:
            epoch = start.leader_epoch if isinstance(start, Offset) else None
            self.set_offset(offset, NO_EPOCH if epoch is None else epoch)
        self.fetch_bytes = fetch_bytes  # partition_max_bytes of the next fetch
        self.leader: LeaderAndEpoch | None = None  # None: metadata has changed since it was looked up
        self.is_paused = False
        self.is_assigned_by_group = False  # the group takes it away if its topic is deleted
        self.is_stopped = False  # it is being revoked: nothing more is fetched in this assignment epoch
        self.offset_request: OffsetRequest | None = None  # in progress while RESOLVING
        self.committed_request: CommittedRequest | None = None  # likewise, before any `offset_request`
        self.validation_request: ValidationRequest | None = None  # while VALIDATING
        self.resets = 0  # by `on_out_of_range` since the last success
        self.topic_id: UUID | None = None  # of the log that the offset belongs to, once it is known
        self.is_range_validated = False  # out of range for no reason of truncation
        self.leader_awaited_since: float | None = None  # metadata is older than `leader_epoch_seen` since then
        self.attempts = 0  # failures in a row
        self.not_before = 0.0  # back-off
        self.full_since: float | None = None  # not fetched since then: the buffer is full
        self.unknown_since: float | None = None  # the brokers do not know the partition since then
        self.replica: int | None = None  # the preferred read replica (KIP-392) ...
        self.replica_until = 0.0  # ... until then
        self.last_error: KwireError | None = None  # of the last attempt, None after a success

    def set_offset(self, offset: int, epoch: int) -> None:
        """Set the next offset to fetch and the leader epoch of the record before it, and the state that follows."""
        self.offset = offset
        self.offset_epoch = epoch
        self.leader_epoch_seen = max(self.leader_epoch_seen, epoch)
        state = FetchState.FETCHING if self.end is None or offset < self.end else FetchState.DONE
        if state is not self.fetch_state:
            self.move(state)

    def move(self, state: FetchState) -> None:
        assert state in _MOVES[self.fetch_state], f"{self!r} cannot become {state.name}"
        self.fetch_state = state

    def __repr__(self) -> str:
        place = f"{self.topic}-{self.partition} epoch {self.assignment_epoch}"
        return f"<{place} {self.fetch_state.name} at {self.offset}>"


def out_of_range(state: PartitionState, log_range: tuple[int, int] | None) -> OffsetOutOfRangeError:
    """Return the error for an offset outside the log. `log_range` is the log's start and end offset, if known."""
    what = "the log does not have this offset"
    start = end = None
    if log_range is not None:
        start, end = log_range
        what = f"the log is empty and begins at {start}" if start == end else f"the log holds {start} to {end - 1}"
    return OffsetOutOfRangeError(
        f"OFFSET_OUT_OF_RANGE (1): {what}",
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
        log_start=start,
        log_end=end,
        remedy='seek to "earliest", "latest" or an offset in between, or choose one of the two as on_out_of_range',
        topic=state.topic,
        partition=state.partition,
        offset=state.offset,
    )


def created_anew(state: PartitionState) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        "the topic was deleted and created again: its log is another one, to which this offset does not belong",
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
        remedy='seek to "earliest", or choose that as on_out_of_range',
        topic=state.topic,
        partition=state.partition,
        offset=state.offset,
    )


def truncated(state: PartitionState, end: EpochEnd) -> LogTruncationError:
    """Return the error for a log that has lost records before the offset. `end` is where the common part ends."""
    what = f"what leader epoch {state.offset_epoch} wrote"
    if end.is_known:
        what = f"offsets {end.end_offset} to {state.offset - 1}, which leader epoch {state.offset_epoch} wrote"
    return LogTruncationError(
        f"a leader election has cut records off the log: the leader does not have {what}",
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
        divergent_offset=end.end_offset if end.is_known else None,
        remedy="undo what depends on the lost records and seek, or choose on_out_of_range to go on by itself",
        topic=state.topic,
        partition=state.partition,
        offset=state.offset,
    )


def no_committed_offset(state: PartitionState) -> NoOffsetError:
    return NoOffsetError(
        "the group has committed no offset of this partition",
        remedy='seek to a start, or choose "earliest", "latest", AtTimestamp(ms) or Ago(hours=1) as on_no_offset',
        topic=state.topic,
        partition=state.partition,
    )


def too_large(state: PartitionState, needed_bytes: int, limit: int) -> BrokerError:
    size = f"{needed_bytes} bytes" if needed_bytes else "more bytes"
    return RecordTooLargeError(
        f"the batch at this offset takes {size}, and a fetch {limit}",
        code=ErrorCode.MESSAGE_TOO_LARGE,
        remedy="raise max_frame_bytes, or seek past it",
        topic=state.topic,
        partition=state.partition,
        offset=state.offset,
    )


def corrupt_at_broker(state: PartitionState) -> CorruptRecordsError:
    return CorruptRecordsError(
        "the log at the broker is corrupt at this offset",
        remedy="seek past it, or restore the partition from a replica",
        topic=state.topic,
        partition=state.partition,
        offset=state.offset,
    )


def broken_envelope(state: PartitionState) -> CorruptRecordsError:
    return CorruptRecordsError(
        "the bytes at this offset are not a batch: their size field is invalid",
        remedy="seek past it",
        topic=state.topic,
        partition=state.partition,
        offset=state.offset,
    )


def no_progress(state: PartitionState, next_offset: int) -> CorruptRecordsError:
    return CorruptRecordsError(
        f"the broker returned records that end before the requested offset, at {next_offset - 1}",
        remedy="seek past it",
        topic=state.topic,
        partition=state.partition,
        offset=state.offset,
    )
