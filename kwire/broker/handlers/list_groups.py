"""Handle ListGroups: return the groups that this broker coordinates, of the requested states and types."""

from __future__ import annotations

from kwire.broker.authorizer import CLUSTER_NAME, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(broker: Broker, request: ListGroupsRequest, context: RequestContext, now: float) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {type.lower() for type in request.types_filter}
    access, describe = context.access, Operation.DESCRIBE
    sees_all = access.allows(describe, ResourceType.CLUSTER, CLUSTER_NAME)
    return ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[
            ListGroupsResponse.Group(
                group_id=group.id, protocol_type=group.shown_protocol_type, group_state=group.state_name,
                group_type=group.TYPE,
            )
            for group in broker.cluster.group_registry
            if broker.coordinates(group.id)
            and (not states or group.state_name.lower() in states)
            and (not types or group.TYPE in types)
            and (sees_all or access.allows(describe, ResourceType.GROUP, group.id))
        ],
    )  # fmt: skip


def error_response(request: ListGroupsRequest, code: int, version: int) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])


LIST_GROUPS = Handler(ListGroupsRequest, handle, error_response)
