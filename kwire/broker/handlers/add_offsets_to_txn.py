"""AddOffsetsToTxn: a producer of the older protocol says that its transaction will commit offsets of a group."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.transactional import fenced_as
from kwire.broker.offsets import OFFSETS_TOPIC, offsets_partition
from kwire.broker.producer_ids import Identity
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FIRST_VERSION_WITH_FENCED = 2


def handle(
    broker: BrokerState, request: AddOffsetsToTxnRequest, exchange: RequestContext, now: float
) -> AddOffsetsToTxnResponse:
    place = (OFFSETS_TOPIC, offsets_partition(request.group_id))
    identity = Identity(request.producer_id, request.producer_epoch)
    try:
        if request.transactional_id:
            broker.check_coordinates(request.transactional_id)
        broker.cluster.transactions.add(request.transactional_id, identity, [place], now)
    except BrokerError as error:
        code = fenced_as(error.code, knows_fenced=exchange.version >= _FIRST_VERSION_WITH_FENCED)
        return refuse(request, code, exchange.version)
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)


def refuse(request: AddOffsetsToTxnRequest, code: int, version: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)


ADD_OFFSETS_TO_TXN = Handler(AddOffsetsToTxnRequest, handle, refuse)
