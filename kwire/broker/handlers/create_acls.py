"""Handle CreateAcls (KIP-140): add access rules. They hold at once."""

from __future__ import annotations

from kwire.broker.authorizer import Acl, Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse

_Result = CreateAclsResponse.Result


def handle(broker: Broker, request: CreateAclsRequest, context: RequestContext, now: float) -> CreateAclsResponse:
    results = []
    for creation in request.creations:
        acl = Acl(
            creation.resource_type, creation.resource_name, creation.resource_pattern_type, creation.principal,
            creation.host, creation.operation, creation.permission_type,
        )  # fmt: skip
        try:
            broker.cluster.authorizer.check_enabled()
            broker.cluster.authorizer.add(acl)
        except BrokerError as error:
            results.append(_Result(error_code=error.code, error_message=error.broker_message))
        else:
            results.append(_Result(error_code=ErrorCode.NONE, error_message=None))
    return CreateAclsResponse(results=results)


def error_response(request: CreateAclsRequest, code: int, version: int) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_Result(error_code=code, error_message=None) for _ in request.creations])


CREATE_ACLS = Handler(CreateAclsRequest, handle, error_response, authorize=needs_cluster(Operation.ALTER))
