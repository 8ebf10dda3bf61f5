"""What each error code in a ProduceResponse means for the batch: a table.

    RETRY   surely not stored: send it again
    UNSURE  perhaps stored: send it again, unchanged; an idempotent broker recognises it
    STORED  it is there already
    ORDER   out of sequence: if an earlier batch is still to come, only a matter of order, else the sequences are broken
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
    STORED = auto()
    ORDER = auto()
    EPOCH = auto()
    FATAL = auto()


_VERDICTS = {
    ErrorCode.REQUEST_TIMED_OUT: Verdict.UNSURE,  # appended by the leader; the replicas did not follow in time
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Verdict.UNSURE,
    ErrorCode.NETWORK_EXCEPTION: Verdict.UNSURE,
    ErrorCode.UNKNOWN_SERVER_ERROR: Verdict.FATAL,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Verdict.STORED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict.ORDER,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.ORDER,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.EPOCH,
}


def verdict(error: BrokerError) -> Verdict:
    known = _VERDICTS.get(error.code)  # type: ignore[call-overload]  # a plain int finds its IntEnum twin
    if known is not None:
        return known  # type: ignore[no-any-return]
    return Verdict.RETRY if error.is_retriable else Verdict.FATAL
