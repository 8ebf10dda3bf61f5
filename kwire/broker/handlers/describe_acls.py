"""Handle DescribeAcls (KIP-140): return the access rules that match a filter, by resource."""

from __future__ import annotations

from kwire.broker.authorizer import AclFilter, Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.delete_acls import DeleteAclsRequest
from kwire.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_Resource = DescribeAclsResponse.Resource


def handle(broker: Broker, request: DescribeAclsRequest, context: RequestContext, now: float) -> DescribeAclsResponse:
    try:
        broker.cluster.authorizer.check_enabled("No Authorizer is configured on the broker")
        wanted = acl_filter(request)
        wanted.check()
    except BrokerError as error:
        return _error(error.code, error.broker_message)
    resources: dict[tuple[int, str, int], _Resource] = {}
    for acl in broker.cluster.authorizer.find(wanted):
        key = (acl.resource_type, acl.name, acl.pattern_type)
        if key not in resources:
            resources[key] = _Resource(
                resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern_type, acls=[]
            )
        resources[key].acls.append(
            _Resource.Acl(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=list(resources.values()))


def acl_filter(requested: DescribeAclsRequest | DeleteAclsRequest.Filter) -> AclFilter:
    return AclFilter(
        requested.resource_type_filter, requested.resource_name_filter, requested.pattern_type_filter,
        requested.principal_filter, requested.host_filter, requested.operation, requested.permission_type,
    )  # fmt: skip


def _error(code: int, message: str | None) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message, resources=[])


def error_response(request: DescribeAclsRequest, code: int, version: int) -> DescribeAclsResponse:
    return _error(code, None)


DESCRIBE_ACLS = Handler(DescribeAclsRequest, handle, error_response, authorize=needs_cluster(Operation.DESCRIBE))
