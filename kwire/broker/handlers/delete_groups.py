"""Handle DeleteGroups (KIP-229): delete empty groups and their offsets."""

from __future__ import annotations

from kwire.broker.authorizer import Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

_Result = DeleteGroupsResponse.Result


def handle(broker: Broker, request: DeleteGroupsRequest, context: RequestContext, now: float) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[_Result(group_id=id, error_code=_delete(broker, id, context.access)) for id in request.groups_names]
    )


def _delete(broker: Broker, group_id: str, access: Access) -> ErrorCode:
    if not access.allows(Operation.DELETE, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not broker.coordinates(group_id):
        return ErrorCode.NOT_COORDINATOR
    share_group = broker.cluster.share_groups.get(group_id)
    if share_group is not None:
        return ErrorCode.NON_EMPTY_GROUP if share_group.members else broker.cluster.delete_share_group(share_group)
    group = broker.cluster.group_registry.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return ErrorCode.NON_EMPTY_GROUP
    broker.cluster.group_registry.delete(group)
    broker.cluster.offsets.delete_group(group_id)
    return ErrorCode.NONE


def error_response(request: DeleteGroupsRequest, code: int, version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[_Result(group_id=id, error_code=code) for id in request.groups_names])


DELETE_GROUPS = Handler(DeleteGroupsRequest, handle, error_response)
