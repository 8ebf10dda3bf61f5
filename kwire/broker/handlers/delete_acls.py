"""Handle DeleteAcls (KIP-140): delete the access rules that match filters, and return them."""

from __future__ import annotations

from kwire.broker.authorizer import Acl, Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.describe_acls import acl_filter
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

_Result = DeleteAclsResponse.Result


def handle(broker: Broker, request: DeleteAclsRequest, context: RequestContext, now: float) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_delete(broker, requested) for requested in request.filters])


def _delete(broker: Broker, requested: DeleteAclsRequest.Filter) -> _Result:
    authorizer = broker.cluster.authorizer
    try:
        authorizer.check_enabled()
        wanted = acl_filter(requested)
        wanted.check()
    except BrokerError as error:
        return _Result(error_code=error.code, error_message=error.broker_message, matching_acls=[])
    removed = [_matching(acl) for acl in authorizer.remove(wanted)]
    return _Result(error_code=ErrorCode.NONE, error_message=None, matching_acls=removed)


def _matching(acl: Acl) -> _Result.Acl:
    return _Result.Acl(
        error_code=ErrorCode.NONE, error_message=None, resource_type=acl.resource_type, resource_name=acl.name,
        pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host, operation=acl.operation,
        permission_type=acl.permission,
    )  # fmt: skip


def error_response(request: DeleteAclsRequest, code: int, version: int) -> DeleteAclsResponse:
    results = [_Result(error_code=code, error_message=None, matching_acls=[]) for _ in request.filters]
    return DeleteAclsResponse(filter_results=results)


DELETE_ACLS = Handler(DeleteAclsRequest, handle, error_response, authorize=needs_cluster(Operation.ALTER))
