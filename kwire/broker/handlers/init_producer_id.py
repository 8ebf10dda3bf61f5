"""Handle InitProducerId (KIP-98): return a producer id and an epoch.

Two-phase commit (KIP-939, v6) fails, as in a Kafka cluster that does not authorize it.
"""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.transactional import fenced_error
from kwire.broker.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FIRST_VERSION_WITH_FENCED = 4


def handle(
    broker: Broker, request: InitProducerIdRequest, context: RequestContext, now: float
) -> InitProducerIdResponse:
    error = _check(broker, request)
    if error is not None:
        return error_response(request, error, context.version)
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        identity = broker.cluster.transactions.init(
            request.transactional_id, timeout_ms=request.transaction_timeout_ms,
            expected=None if expected.producer_id == NO_PRODUCER_ID else expected, now=now,
        )  # fmt: skip
    except BrokerError as exc:
        code = fenced_error(exc.code, supports_fenced=context.version >= _FIRST_VERSION_WITH_FENCED)
        return error_response(request, code, context.version)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=identity.producer_id, producer_epoch=identity.epoch
    )


def _check(broker: Broker, request: InitProducerIdRequest) -> ErrorCode | None:
    if (request.producer_id == NO_PRODUCER_ID) is not (request.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id and not broker.coordinates(request.transactional_id):
        return ErrorCode.NOT_COORDINATOR
    if request.keep_prepared_txn:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.enable2_pc else None


def error_response(request: InitProducerIdRequest, code: int, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


INIT_PRODUCER_ID = Handler(InitProducerIdRequest, handle, error_response)
