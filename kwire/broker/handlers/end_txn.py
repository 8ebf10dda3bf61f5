"""Handle EndTxn (KIP-98): commit or abort. Since v5 (KIP-890) the response has the next producer id and epoch."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_transactional_id
from kwire.broker.handlers.transactional import fenced_error
from kwire.broker.ids import ProducerIdAndEpoch
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_FIRST_VERSION_WITH_FENCED = 2
_FIRST_VERSION_WITH_EPOCHS = 5


def handle(broker: Broker, request: EndTxnRequest, context: RequestContext, now: float) -> EndTxnResponse:
    try:
        if request.transactional_id:
            broker.check_coordinates(request.transactional_id)
        identity = broker.cluster.transactions.end(
            request.transactional_id, ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed, bumps_epoch=context.version >= _FIRST_VERSION_WITH_EPOCHS, now=now,
        )  # fmt: skip
    except BrokerError as error:
        code = fenced_error(error.code, supports_fenced=context.version >= _FIRST_VERSION_WITH_FENCED)
        return error_response(request, code, context.version)
    return EndTxnResponse(error_code=ErrorCode.NONE, producer_id=identity.producer_id, producer_epoch=identity.epoch)


def error_response(request: EndTxnRequest, code: int, version: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


END_TXN = Handler(EndTxnRequest, handle, error_response, authorize=needs_transactional_id(Operation.WRITE))
