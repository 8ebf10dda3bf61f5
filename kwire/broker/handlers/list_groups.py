"""Handle ListGroups: return the classic groups and the share groups that this broker coordinates."""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

_CLASSIC, _SHARE = "classic", "share"


def handle(broker: Broker, request: ListGroupsRequest, context: RequestContext, now: float) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {type.lower() for type in request.types_filter}
    found = [
        *((group.id, group.protocol_type or "", group.state.value, _CLASSIC) for group in broker.cluster.groups),
        *((group.id, _SHARE, group.state_name, _SHARE) for group in broker.cluster.share_groups),
    ]
    return ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[
            ListGroupsResponse.Group(group_id=id, protocol_type=protocol_type, group_state=state, group_type=type)
            for id, protocol_type, state, type in found
            if broker.coordinates(id) and (not states or state.lower() in states) and (not types or type in types)
        ],
    )


def error_response(request: ListGroupsRequest, code: int, version: int) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])


LIST_GROUPS = Handler(ListGroupsRequest, handle, error_response)
