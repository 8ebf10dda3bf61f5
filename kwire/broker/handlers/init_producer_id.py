"""InitProducerId: an id and an epoch for an idempotent or transactional producer."""
from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.broker.exchange import Exchange
from kwire.broker.handlers.handler import Handler
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kwire.broker.node import BrokerState


def handle(
    broker: BrokerState, request: InitProducerIdRequest, exchange: Exchange, now: float
) -> InitProducerIdResponse:
    if request.transactional_id is not None and not broker.coordinates(request.transactional_id):
        return refuse(request, ErrorCode.NOT_COORDINATOR, exchange.version)
    try:
        made = broker.cluster.producer_ids.init(
            request.transactional_id, timeout_ms=request.transaction_timeout_ms, producer_id=request.producer_id,
            epoch=request.producer_epoch,
        )  # fmt: skip
    except BrokerError as error:
        return refuse(request, error.code, exchange.version)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=made.producer_id, producer_epoch=made.epoch)


def refuse(request: InitProducerIdRequest, code: int, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


INIT_PRODUCER_ID = Handler(InitProducerIdRequest, handle, refuse)
