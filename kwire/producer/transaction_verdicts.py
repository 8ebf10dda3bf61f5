"""What an error code means for a transaction: a table, as in Kafka's TransactionManager and KIP-1050.

    RETRY        ask again after a pause
    COORDINATOR  ask again, of another broker
    ABORTABLE    abort the transaction; the producer can go on
    FENCED       a newer producer has the transactional id
    FATAL        the producer cannot go on

Codes that are not listed are RETRY where Kafka calls them retriable, else ABORTABLE in a transaction's own requests:
what cannot be done must not be committed without it.
"""

from __future__ import annotations

from enum import Enum, auto

from kwire.errors import (
    AbortableError,
    BrokerError,
    ErrorCode,
    FatalError,
    FencedError,
    KwireError,
    NodeError,
    RequestTimeoutError,
    TransactionError,
)


class Verdict(Enum):
    RETRY = auto()
    COORDINATOR = auto()
    ABORTABLE = auto()
    FENCED = auto()
    FATAL = auto()


_VERDICTS = {
    ErrorCode.NOT_COORDINATOR: Verdict.COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.COORDINATOR,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.FENCED,
    ErrorCode.PRODUCER_FENCED: Verdict.FENCED,
    ErrorCode.INVALID_TXN_STATE: Verdict.FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Verdict.FATAL,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: Verdict.FATAL,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: Verdict.FATAL,
}

# Of a ProduceRequest: the epoch may be old because the coordinator timed the transaction out, which InitProducerId
# tells from a fence for certain (KIP-588); so abort first.
_IN_PRODUCE = {
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.ABORTABLE,
}

_REMEDY = {
    Verdict.ABORTABLE: "abort this transaction and begin another",
    Verdict.FENCED: "close this producer: another one has its transactional id, or it took longer than its timeout",
    Verdict.FATAL: "close this producer; see the cause",
}
_KIND: dict[Verdict, type[TransactionError]] = {
    Verdict.ABORTABLE: AbortableError,
    Verdict.FENCED: FencedError,
    Verdict.FATAL: FatalError,
}


def verdict(error: KwireError, *, in_produce: bool = False) -> Verdict:
    """Of an error that took a request's place, or that a response carries."""
    if isinstance(error, BrokerError):
        known = _VERDICTS.get(error.code)  # type: ignore[call-overload]  # a plain int finds its IntEnum twin
        if in_produce:
            known = _IN_PRODUCE.get(error.code, known)  # type: ignore[call-overload]
        if known is not None:
            return known  # type: ignore[no-any-return]
        return Verdict.RETRY if error.is_retriable else Verdict.ABORTABLE
    if isinstance(error, (NodeError, RequestTimeoutError)):
        return Verdict.COORDINATOR
    return Verdict.FATAL if not in_produce else Verdict.ABORTABLE


def transaction_error(error: KwireError, kind: Verdict) -> TransactionError:
    """The error to give to the caller: its class says what can be done, its cause what happened."""
    if isinstance(error, TransactionError):
        return error
    typed = _KIND[kind](f"the transaction failed: {error.message}", remedy=_REMEDY[kind], **error.where)
    typed.__cause__ = error
    return typed
