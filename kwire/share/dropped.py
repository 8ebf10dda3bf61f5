"""What becomes of a share consumer that the program drops without `close`, as `kwire.consumer.dropped` says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kwire.consumer.dropped import LEAVE_SECONDS
from kwire.errors import ClosedError, KwireError
from kwire.share.acknowledgements import PendingAcknowledgements
from kwire.share.acquired import AcquiredRecords, collect_all

if TYPE_CHECKING:
    from kwire.cluster import LoopThread
    from kwire.share.fetcher import ShareFetcher
    from kwire.share.membership import ShareMembership

# The part of the time to close that acknowledgements may take; the rest is for leaving the group.
CLOSE_FRACTION = 0.5


def say_farewell(
    runtime: LoopThread, fetcher: ShareFetcher, membership: ShareMembership, held: Sequence[AcquiredRecords]
) -> None:
    """Send the acknowledgements, release the rest, leave the group, and close the loop thread; from any thread."""
    # The garbage collector may have interrupted the thread that has the locks of the records: the loop thread acts.
    runtime.call_soon(_begin, runtime, fetcher, membership, held)


def _begin(
    runtime: LoopThread, fetcher: ShareFetcher, membership: ShareMembership, held: Sequence[AcquiredRecords]
) -> None:
    now = runtime.clock.now()
    leave_by = now + LEAVE_SECONDS
    for acquired in held:
        acquired.release_in_hand()
    pending = collect_all(held, _nobody_waits, leave_by)
    acknowledge_by = now + LEAVE_SECONDS * CLOSE_FRACTION
    leave_group(runtime, fetcher, membership, pending, acknowledge_by, leave_by, partial(runtime.close, timeout=0))


def leave_group(
    runtime: LoopThread, fetcher: ShareFetcher, membership: ShareMembership, pending: Sequence[PendingAcknowledgements],
    acknowledge_by: float, leave_by: float, on_left: Callable[[], None],
) -> None:  # fmt: skip
    """Close the sessions with the last acknowledgements, then leave the group. On the loop's thread."""

    def sessions_closed() -> None:
        with suppress(ClosedError):  # posted, since the membership had its turn
            runtime.call_soon(membership.leave, leave_by, on_left)

    fetcher.close(pending, acknowledge_by, sessions_closed)


def _nobody_waits(pending: PendingAcknowledgements, error: KwireError | None, now: float) -> None:
    """Take the result of acknowledgements."""
