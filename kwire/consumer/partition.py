"""One assigned partition as the event loop sees it.

The typed errors of a partition that cannot be read on, each with the way past it.

One assigned partition as the event loop sees it: what to fetch next, and whether to.

    RESOLVING -> FETCHING   its offset was found
    FETCHING -> RESOLVING   the offset is outside the log, and the policy says where to go
    either -> PARKED        an error was posted; the partition waits for a seek
    either -> DONE          what comes before `end` was fetched; a record of it that cannot be read parks it still

There is no way out of PARKED, nor back from DONE: a seek makes a new `PartitionState` of the next generation in its
place. So
whatever was begun for the old one (a fetch in flight, an offset lookup) still refers to the old object, which nobody
looks at any more:

    user    seek: generation 7 -> 8, throws away what lane 7 held
    loop    the answer to a fetch of 7 arrives, is posted, and asks for the next: nobody told the loop yet
    user    poll: an item of generation 7 in a lane of 8 is thrown away, its bytes released
    loop    the seek arrives: Position 8 replaces 7
    loop    the second answer for 7 arrives: positions[key] is 8, so it is thrown away

At no point can records of 7 be handed out after the seek, nor can they move the position of 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kwire.consumer.offsets import OffsetRequest, StartOffset
from kwire.consumer.routing import LeaderAndEpoch
from kwire.errors import BrokerError, CorruptRecordsError, ErrorCode, KwireError, RecordTooLargeError, broker_error


def out_of_range(position: PartitionState, log_range: tuple[int, int] | None) -> BrokerError:
    """`log_range` is the log's start and end offset, where they could be found out."""
    message = "the log does not have this offset"
    if log_range is not None:
        start, end = log_range
        message = f"the log is empty and begins at {start}" if start == end else f"the log holds {start} to {end - 1}"
    return broker_error(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        message,
        remedy='seek to "earliest", "latest" or an offset in between, or choose one of the two as on_out_of_range',
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
    )


def too_large(position: PartitionState, needed_bytes: int, limit: int) -> BrokerError:
    size = f"{needed_bytes} bytes" if needed_bytes else "more bytes"
    return RecordTooLargeError(
        f"the batch at this offset takes {size}, and a fetch {limit}",
        code=ErrorCode.MESSAGE_TOO_LARGE,
        remedy="raise max_frame_bytes, or seek past it",
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
    )


def corrupt_at_broker(position: PartitionState) -> CorruptRecordsError:
    return CorruptRecordsError(
        "the broker's own log is corrupt here",
        remedy="seek past the damage, or restore the partition from a replica",
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
    )


def broken_envelope(position: PartitionState) -> CorruptRecordsError:
    return CorruptRecordsError(
        "what follows is no batch: its size is impossible",
        remedy="seek past the damage",
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
    )


def no_progress(position: PartitionState, next_offset: int) -> CorruptRecordsError:
    return CorruptRecordsError(
        f"the broker answered with records that end before the offset asked for, at {next_offset - 1}",
        remedy="seek past it",
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
    )


class FetchState(Enum):
    RESOLVING = "resolving"
    FETCHING = "fetching"
    PARKED = "parked"
    DONE = "done"


_MOVES: Mapping[FetchState, frozenset[FetchState]] = {
    FetchState.RESOLVING: frozenset({FetchState.FETCHING, FetchState.PARKED, FetchState.DONE}),
    FetchState.FETCHING: frozenset({FetchState.RESOLVING, FetchState.PARKED, FetchState.DONE}),
    FetchState.PARKED: frozenset(),
    FetchState.DONE: frozenset({FetchState.PARKED}),
}


class PartitionState:
    """Plain state; the fetcher decides. Times are seconds of the loop's clock."""

    __slots__ = (
        "attempts", "end", "fetch_bytes", "generation", "held_since", "is_in_flight", "is_paused", "key", "last_error",
        "not_before", "offset", "partition", "place", "replica", "replica_until", "start", "state", "topic",
        "unknown_since", "want",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        generation: int,
        start: StartOffset,
        fetch_bytes: int,
        end: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.key = topic, partition
        self.generation = generation
        self.start: StartOffset = start  # where it was told to stand
        self.end = end  # nothing is fetched from there on
        self.state = FetchState.RESOLVING
        self.offset = -1  # to fetch next; beyond what the user has read
        if isinstance(start, int):
            self.stand(start)
        self.fetch_bytes = fetch_bytes  # how much to ask for: see `Fetcher._answered`
        self.place: LeaderAndEpoch | None = None  # where the leader is; None: to be looked for, as metadata is new
        self.is_paused = False
        self.is_in_flight = False
        self.want: OffsetRequest | None = None  # the lookup under way while RESOLVING
        self.attempts = 0  # failures in a row
        self.not_before = 0.0  # back-off
        self.held_since: float | None = None  # the user has not read what was fetched: since then nothing is
        self.unknown_since: float | None = None  # nobody admits to having the partition
        self.replica: int | None = None  # read from this follower instead of the leader (KIP-392) ...
        self.replica_until = 0.0  # ... until then
        self.last_error: KwireError | None = None  # of the last attempt, None after a success

    def stand(self, offset: int) -> None:
        """Fetch from here on, unless this is the end."""
        self.offset = offset
        state = FetchState.FETCHING if self.end is None or offset < self.end else FetchState.DONE
        if state is not self.state:
            self.move(state)

    def move(self, state: FetchState) -> None:
        assert state in _MOVES[self.state], f"{self!r} cannot become {state.name}"
        self.state = state

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} generation {self.generation} {self.state.name} at {self.offset}>"
