"""Handle DescribeUserScramCredentials (KIP-554): return for which mechanisms users have SCRAM passwords."""

from __future__ import annotations

from collections import Counter

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS = {name: number for number, name in MECHANISMS.items()}
_Result = DescribeUserScramCredentialsResponse.Result


def handle(
    broker: Broker, request: DescribeUserScramCredentialsRequest, context: RequestContext, now: float
) -> DescribeUserScramCredentialsResponse:
    users = broker.cluster.sasl.scram_users()
    named = Counter(user.name for user in request.users) if request.users else Counter(users)
    results = []
    for name, count in named.items():
        result = _Result(user=name, error_code=ErrorCode.NONE, error_message=None, credential_infos=[])
        if request.users and count > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif name not in users:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        else:
            result.credential_infos = [
                _Result.CredentialInfo(mechanism=_NUMBERS[mechanism], iterations=iterations)
                for mechanism, iterations in users[name].items()
            ]
        results.append(result)
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, error_message=None, results=results)


def error_response(
    request: DescribeUserScramCredentialsRequest, code: int, version: int
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=[])


DESCRIBE_USER_SCRAM_CREDENTIALS = Handler(
    DescribeUserScramCredentialsRequest, handle, error_response, authorize=needs_cluster(Operation.DESCRIBE)
)
