"""ListGroups: those that this broker coordinates; all are of the classic type."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.errors import ErrorCode
from kwire.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

_TYPE = "classic"


def handle(broker: BrokerState, request: ListGroupsRequest, exchange: RequestContext, now: float) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {type.lower() for type in request.types_filter}
    return ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[
            ListGroupsResponse.Group(
                group_id=group.id, protocol_type=group.protocol_type or "", group_state=group.state.value,
                group_type=_TYPE,
            )
            for group in broker.cluster.groups
            if broker.coordinates(group.id)
            and (not states or group.state.value.lower() in states)
            and (not types or _TYPE in types)
        ],
    )  # fmt: skip


def refuse(request: ListGroupsRequest, code: int, version: int) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])


LIST_GROUPS = Handler(ListGroupsRequest, handle, refuse)
