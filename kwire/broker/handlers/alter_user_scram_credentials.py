"""Handle AlterUserScramCredentials (KIP-554): set and delete SCRAM passwords. They are salted by the client.

One error of a user fails all changes of that user. New connections meet the change; those that exist stay.
"""

from __future__ import annotations

from collections import Counter

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.describe_user_scram_credentials import MECHANISMS
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

_ITERATIONS = range(4_096, 16_385)
_Result = AlterUserScramCredentialsResponse.Result
_Deletion = AlterUserScramCredentialsRequest.Deletion
_Upsertion = AlterUserScramCredentialsRequest.Upsertion


def handle(
    broker: Broker, request: AlterUserScramCredentialsRequest, context: RequestContext, now: float
) -> AlterUserScramCredentialsResponse:
    sasl = broker.cluster.sasl
    changes: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    counts = Counter(change.name for change in changes)
    failures: dict[str, BrokerError] = {}
    for change in changes:
        try:
            _check(broker, change)
            if counts[change.name] > 1:  # also with two mechanisms
                why = "A user credential cannot be altered twice in the same request"
                raise broker_error(ErrorCode.DUPLICATE_RESOURCE, why)
        except BrokerError as error:
            failures.setdefault(change.name, error)
    for change in changes:
        if change.name in failures:
            continue
        mechanism = MECHANISMS[change.mechanism]
        if isinstance(change, _Deletion):
            sasl.delete_scram(mechanism, change.name)
        else:
            salted = bytes(change.salted_password)
            sasl.set_scram(mechanism, change.name, bytes(change.salt), change.iterations, salted)
    return AlterUserScramCredentialsResponse(
        results=[_result(name, failures.get(name)) for name in dict.fromkeys(change.name for change in changes)]
    )


def _check(broker: Broker, change: _Deletion | _Upsertion) -> None:
    if not change.name:
        raise broker_error(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in MECHANISMS:
        raise broker_error(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, _Deletion):
        if MECHANISMS[change.mechanism] not in broker.cluster.sasl.scram_users().get(change.name, {}):
            why = "Attempt to delete a user credential that does not exist"
            raise broker_error(ErrorCode.RESOURCE_NOT_FOUND, why)
    elif change.iterations not in _ITERATIONS:
        why = "Too few iterations" if change.iterations < _ITERATIONS[0] else "Too many iterations"
        raise broker_error(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)


def _result(name: str, error: BrokerError | None) -> _Result:
    if error is None:
        return _Result(user=name, error_code=ErrorCode.NONE, error_message=None)
    return _Result(user=name, error_code=error.code, error_message=error.broker_message)


def error_response(
    request: AlterUserScramCredentialsRequest, code: int, version: int
) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys([*(one.name for one in request.deletions), *(one.name for one in request.upsertions)])
    results = [_Result(user=name, error_code=code, error_message=None) for name in names]
    return AlterUserScramCredentialsResponse(results=results)


ALTER_USER_SCRAM_CREDENTIALS = Handler(
    AlterUserScramCredentialsRequest, handle, error_response, authorize=needs_cluster(Operation.ALTER)
)
