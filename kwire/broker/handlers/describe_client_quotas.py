"""Handle DescribeClientQuotas (KIP-546): return the limits of users, client ids and addresses."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.quotas import EntityFilter
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.describe_client_quotas import (
    EXACT,
    SPECIFIED,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_Entry = DescribeClientQuotasResponse.Entry


def handle(
    broker: Broker, request: DescribeClientQuotasRequest, context: RequestContext, now: float
) -> DescribeClientQuotasResponse:
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


def error_response(request: DescribeClientQuotasRequest, code: int, version: int) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)


DESCRIBE_CLIENT_QUOTAS = Handler(
    DescribeClientQuotasRequest, handle, error_response, authorize=needs_cluster(Operation.DESCRIBE_CONFIGS)
)
