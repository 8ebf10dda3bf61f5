"""Handle DescribeGroups: return the state and the members of classic groups.

A group that does not exist is Dead. Since v6 (KIP-1043) it is also an error.
"""

from __future__ import annotations

from kwire.broker.authorizer import Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.groups import Group, GroupState
from kwire.broker.handlers.handler import NOT_REQUESTED, Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

_FIRST_VERSION_WITH_NOT_FOUND = 6

_Result = DescribeGroupsResponse.Group


def handle(
    broker: Broker, request: DescribeGroupsRequest, context: RequestContext, now: float
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[_authorized(broker, group_id, request, context) for group_id in request.groups]
    )


def _authorized(broker: Broker, group_id: str, request: DescribeGroupsRequest, context: RequestContext) -> _Result:
    access = context.access
    if not access.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _error_group(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    includes = request.include_authorized_operations
    operations = access.operations(ResourceType.GROUP, group_id) if includes else NOT_REQUESTED
    return _describe(broker, group_id, context.version, operations)


def _describe(broker: Broker, group_id: str, version: int, operations: int) -> _Result:
    if not broker.coordinates(group_id):
        return _error_group(group_id, ErrorCode.NOT_COORDINATOR)
    group = broker.cluster.groups.get(group_id)
    if group is None:
        found = _error_group(group_id, ErrorCode.NONE)
        found.group_state = GroupState.DEAD.value
        found.authorized_operations = operations
        if version >= _FIRST_VERSION_WITH_NOT_FOUND:
            found.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            exists = group_id in broker.cluster.group_registry
            found.error_message = f"Group {group_id} {'is not a classic group' if exists else 'not found'}."
        return found
    stable = group.state is GroupState.STABLE
    return _Result(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=_members(group, stable=stable),
        authorized_operations=operations,
    )


def _members(group: Group, *, stable: bool) -> list[_Result.Member]:
    return [
        _Result.Member(
            member_id=member.id, group_instance_id=member.instance_id, client_id=member.client_id,
            client_host=f"/{member.client_host}",
            member_metadata=member.metadata(group.protocol) if stable and group.protocol else b"",
            member_assignment=member.assignment if stable else b"",
        )
        for member in group.members.values()
    ]  # fmt: skip


def _error_group(group_id: str, code: int) -> _Result:
    return _Result(error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[])


def error_response(request: DescribeGroupsRequest, code: int, version: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_error_group(group_id, code) for group_id in request.groups])


DESCRIBE_GROUPS = Handler(DescribeGroupsRequest, handle, error_response)
