"""What the handlers of configs share: the right that a resource needs, and a result for each resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from kwire.broker.authorizer import Access, Operation
from kwire.broker.cluster_state import check_topic_name
from kwire.broker.configs import GROUP, TOPIC
from kwire.errors import BrokerError, ErrorCode, broker_error

_R = TypeVar("_R", bound="Resource")


class Resource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


def require_config_right(access: Access, operation: int, resource: Resource) -> None:
    """Raise the error of the resource unless the client may read or change its configs."""
    if resource.resource_type == TOPIC:
        access.require_topic(operation, resource.resource_name)
    elif resource.resource_type == GROUP:
        access.require_group(operation, resource.resource_name)
    else:
        access.require_cluster(operation)


def alter_each(access: Access, resources: Sequence[_R], alter: Callable[[_R], None]) -> list[dict[str, Any]]:
    """Alter the configs of each resource; return the fields of its result, which has the error if there was one."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results = []
    for resource in resources:
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise broker_error(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            require_config_right(access, Operation.ALTER_CONFIGS, resource)
            if resource.resource_type == TOPIC:
                if not resource.resource_name:
                    raise broker_error(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
                check_topic_name(resource.resource_name)
            alter(resource)
        except BrokerError as error:
            results.append(config_result(resource, error.code, error.broker_message))
        else:
            results.append(config_result(resource, ErrorCode.NONE))
    return results


def config_result(resource: Resource, code: int, message: str | None = None) -> dict[str, Any]:
    """Return the fields that the results of AlterConfigs and IncrementalAlterConfigs have."""
    return {
        "error_code": code, "error_message": message, "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }  # fmt: skip
