"""What each error code in a ProduceResponse means for the batch: a table.

    RETRY   surely not stored: send it again
    UNSURE  perhaps stored: send it again, unchanged; an idempotent broker recognises it
    AFTER   as UNSURE where the leader waited for its followers (acks=all): it looks again when they follow, and when
            its log has failed by then, it says so with the batch in it, which the next leader may well have; else RETRY
    LED     as UNSURE where the answer has an offset, else RETRY: a leader that lost the partition while it waited says
            the same as one that never led it, but Kafka's DelayedProduce keeps the offset of what it has appended
    LOST    perhaps stored, and sending it again would not help
    STORED  it is there already
    ORDER   out of sequence: if an earlier batch is still to come, only a matter of order, else the sequences are broken
    SIZE    surely not stored, for it is too large: send it again in pieces
    EPOCH   the broker wants a newer producer epoch: surely not stored
    FATAL   it will not be accepted

Codes that are not listed are RETRY where Kafka calls them retriable, else FATAL.
"""

from __future__ import annotations

from enum import Enum, auto

from kwire.errors import BrokerError, ErrorCode


class Verdict(Enum):
    RETRY = auto()
    UNSURE = auto()
    AFTER = auto()
    LED = auto()
    LOST = auto()
    STORED = auto()
    ORDER = auto()
    SIZE = auto()
    EPOCH = auto()
    FATAL = auto()


_VERDICTS = {
    ErrorCode.REQUEST_TIMED_OUT: Verdict.UNSURE,  # appended by the leader; the replicas did not follow in time
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Verdict.UNSURE,
    ErrorCode.NETWORK_EXCEPTION: Verdict.UNSURE,
    # Kafka's ReplicaManager answers these before it appends, and from DelayedProduce, after it has.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Verdict.LED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Verdict.LED,
    ErrorCode.KAFKA_STORAGE_ERROR: Verdict.AFTER,
    ErrorCode.UNKNOWN_SERVER_ERROR: Verdict.LOST,  # whatever went wrong may have gone wrong after the append
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Verdict.STORED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict.ORDER,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.ORDER,
    ErrorCode.MESSAGE_TOO_LARGE: Verdict.SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: Verdict.SIZE,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.EPOCH,
}


def verdict(error: BrokerError, *, waits_for_followers: bool, has_offset: bool) -> Verdict:
    """What to do with a batch; `has_offset`: the answer has one, though it is an error."""
    known = _VERDICTS.get(error.code)  # type: ignore[call-overload]  # a plain int finds its IntEnum twin
    if known is Verdict.LED:
        return Verdict.UNSURE if has_offset else Verdict.RETRY
    if known is Verdict.AFTER:
        return Verdict.UNSURE if waits_for_followers else Verdict.RETRY
    if known is not None:
        return known  # type: ignore[no-any-return]
    return Verdict.RETRY if error.is_retriable else Verdict.FATAL
