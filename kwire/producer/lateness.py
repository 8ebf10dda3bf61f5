"""What a wait that took too long says: what is being waited for, since which failure, and what to do.

For `flush`, and for each step of a transaction. It asks the same places as `explain`, and changes nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kwire.cluster import Call, ToCoordinator, View
from kwire.errors import KwireError, RequestTimeoutError
from kwire.producer.explain import Explainer
from kwire.producer.transaction import Transaction
from kwire.producer.transaction_state import State

_TOPICS_MAX = 3  # that one message tells of


class Awaited(NamedTuple):
    """What stands between a caller and the end of its wait. `where` is the request that is under way."""

    detail: str
    cause: KwireError | None
    where: dict[str, Any]


def awaited(
    transaction: Transaction | None, identity_call: Call | None, explainer: Explainer, now: float, view: View
) -> Awaited | None:
    """The first of: the producer id, the records that go before, the transaction's own request."""
    if transaction is not None and transaction.state is State.INITIALIZING:
        cause = explainer.identity.last_error
        return _answer(f"the producer id of {transaction.transactional_id!r}", identity_call, cause, view)
    if transaction is None or transaction.state in (State.COMMITTING, State.ABORTING):
        records = _records(explainer, now, view)
        if records is not None:
            return records
    if transaction is None or (transaction.asked is None and transaction.last_error is None):
        return None
    part = "end" if transaction.state in (State.COMMITTING, State.ABORTING) else "next step"
    return _answer(f"the transaction's {part}", transaction.asked, transaction.last_error, view)


def late(what: str, timeout: float | None, waits: Awaited | None) -> RequestTimeoutError:
    remedy = f"it goes on all the same: call {what} again to wait longer, or ask producer.explain(topic)"
    if waits is None:
        return RequestTimeoutError(f"{what} is not done after {timeout} s", remedy=remedy)
    where, told = dict(waits.where), f"{what} is not done after {timeout} s: awaited is {waits.detail}"
    if waits.cause is not None:
        where = {**waits.cause.where, **where}
        told = f"{told}; the last failure was: {waits.cause.message}"
        remedy = f"{waits.cause.remedy}; {remedy}" if waits.cause.remedy else remedy
    error = RequestTimeoutError(told, remedy=remedy, **where)
    error.__cause__ = waits.cause
    return error


def _answer(what: str, call: Call | None, cause: KwireError | None, view: View) -> Awaited:
    """`what` a request is to bring; `call` is that request, unless it is between two attempts."""
    if call is None:
        return Awaited(f"{what}, which will be asked for again", cause or view.trouble, {})
    api = call.api.__name__.removesuffix("Request")
    whom = "a broker"
    if isinstance(call.route, ToCoordinator):
        whom = f"the coordinator of {call.route.kind} {call.route.key!r}"
    cause = call.last_error or cause or view.trouble
    if call.broker is None:
        return Awaited(f"{what}: {whom}, to be asked {api}, is not found or not reached", cause, {"api": api})
    where = {"broker": call.broker, "api": api, "version": call.version}
    return Awaited(f"{what}: the answer of {whom} to {api}", cause, where)


def _records(explainer: Explainer, now: float, view: View) -> Awaited | None:
    told: list[str] = []
    cause: KwireError | None = None
    for name, topic in explainer.topics.items():
        if topic.is_idle:
            continue
        held = explainer.explain(name, None, now, view)
        out = sum(len(batch) for queue in topic.partitions.values() for batch in queue.in_flight())
        why = next((f" ({reason.hold}: {reason.detail})" for reason in held.reasons), "")
        told.append(f"{held.records_queued + out} of topic {name}{why}")
        cause = cause or next((reason.cause for reason in held.reasons if reason.cause is not None), None)
    if not told:
        return None
    more = f", and of {len(told) - _TOPICS_MAX} topics more" if len(told) > _TOPICS_MAX else ""
    return Awaited(f"the delivery of records: {', '.join(told[:_TOPICS_MAX])}{more}", cause or view.trouble, {})
