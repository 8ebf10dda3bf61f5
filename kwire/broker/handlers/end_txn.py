"""EndTxn: commit or abort. From v5 on the answer has the identity to go on with (KIP-890)."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.transactional import fenced_as
from kwire.broker.producer_ids import Identity
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_FIRST_VERSION_WITH_FENCED = 2
_FIRST_VERSION_WITH_EPOCHS = 5


def handle(broker: BrokerState, request: EndTxnRequest, exchange: RequestContext, now: float) -> EndTxnResponse:
    try:
        if request.transactional_id:
            broker.check_coordinates(request.transactional_id)
        after = broker.cluster.transactions.end(
            request.transactional_id, Identity(request.producer_id, request.producer_epoch), commit=request.committed,
            bumps=exchange.version >= _FIRST_VERSION_WITH_EPOCHS, now=now,
        )  # fmt: skip
    except BrokerError as error:
        code = fenced_as(error.code, knows_fenced=exchange.version >= _FIRST_VERSION_WITH_FENCED)
        return refuse(request, code, exchange.version)
    return EndTxnResponse(error_code=ErrorCode.NONE, producer_id=after.producer_id, producer_epoch=after.epoch)


def refuse(request: EndTxnRequest, code: int, version: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


END_TXN = Handler(EndTxnRequest, handle, refuse)
