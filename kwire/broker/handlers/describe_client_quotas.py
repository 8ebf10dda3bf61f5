"""Handle DescribeClientQuotas (KIP-546): return the limits of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Sequence

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.quotas import CLIENT_ID, IP, USER, EntityFilter
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.describe_client_quotas import (
    DEFAULT,
    EXACT,
    SPECIFIED,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_Entry = DescribeClientQuotasResponse.Entry


def handle(
    broker: Broker, request: DescribeClientQuotasRequest, context: RequestContext, now: float
) -> DescribeClientQuotasResponse:
    try:
        check_filters([(part.entity_type, part.match_type, part.match) for part in request.components])
    except BrokerError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.broker_message, entries=None)
    filters = [
        EntityFilter(part.entity_type, part.match if part.match_type == EXACT else None, part.match_type == SPECIFIED)
        for part in request.components
    ]
    entries = [
        _Entry(
            entity=[_Entry.Entity(entity_type=type, entity_name=name) for type, name in entity],
            values=[_Entry.Value(key=key, value=value) for key, value in sorted(limits.items())],
        )
        for entity, limits in broker.cluster.quotas.find(filters, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message=None, entries=entries)


def check_filters(components: Sequence[tuple[str, int, str | None]]) -> None:
    """Check the (entity type, match type, match) of each component. Raises INVALID_REQUEST, UNSUPPORTED_VERSION."""
    types = [entity_type for entity_type, _, _ in components]
    for entity_type, match_type, match in components:
        if not entity_type:
            raise broker_error(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if entity_type not in (USER, CLIENT_ID, IP):
            raise broker_error(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type {entity_type} not supported")
        if types.count(entity_type) > 1:
            raise broker_error(ErrorCode.INVALID_REQUEST, f"Duplicate {entity_type} filter component entity type")
        if match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise broker_error(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
        if (match_type == EXACT) is (match is None):
            why = "Exact match, but no match was given" if match is None else "Match given, but not an exact match"
            raise broker_error(ErrorCode.INVALID_REQUEST, why)
    if IP in types and len(types) > 1:
        why = "Invalid entity filter component combination: IP filter component and other components"
        raise broker_error(ErrorCode.INVALID_REQUEST, why)


def error_response(request: DescribeClientQuotasRequest, code: int, version: int) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)


DESCRIBE_CLIENT_QUOTAS = Handler(
    DescribeClientQuotasRequest, handle, error_response, authorize=needs_cluster(Operation.DESCRIBE_CONFIGS)
)
