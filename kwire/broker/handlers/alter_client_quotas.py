"""Handle AlterClientQuotas (KIP-546): set and remove limits of users, client ids and addresses."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, grouped, needs_cluster
from kwire.broker.quotas import Entity, entity_of
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

_Requested = AlterClientQuotasRequest.Entry
_Entry = AlterClientQuotasResponse.Entry


def handle(
    broker: Broker, request: AlterClientQuotasRequest, context: RequestContext, now: float
) -> AlterClientQuotasResponse:
    results = []
    for entity, same in grouped(request.entries, _entity).items():
        requested = same[-1]
        changes = {op.key: None if op.remove else op.value for op in requested.ops}
        try:
            if len(same) > 1:
                raise broker_error(ErrorCode.INVALID_REQUEST, "the request names the entity more than once")
            if len(changes) != len(requested.ops):
                raise broker_error(ErrorCode.INVALID_REQUEST, "the request changes a limit more than once")
            broker.cluster.quotas.alter(entity, changes, validate_only=request.validate_only)
        except BrokerError as error:
            results.append(_result(requested, error.code, error.broker_message))
        else:
            results.append(_result(requested, ErrorCode.NONE, None))
    return AlterClientQuotasResponse(entries=results)


def _entity(requested: _Requested) -> Entity:
    return entity_of([(part.entity_type, part.entity_name) for part in requested.entity])


def _result(requested: _Requested, code: int, message: str | None) -> _Entry:
    entity = [_Entry.Entity(entity_type=part.entity_type, entity_name=part.entity_name) for part in requested.entity]
    return _Entry(error_code=code, error_message=message, entity=entity)


def error_response(request: AlterClientQuotasRequest, code: int, version: int) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_result(requested, code, None) for requested in request.entries])


ALTER_CLIENT_QUOTAS = Handler(
    AlterClientQuotasRequest, handle, error_response, authorize=needs_cluster(Operation.ALTER_CONFIGS)
)
