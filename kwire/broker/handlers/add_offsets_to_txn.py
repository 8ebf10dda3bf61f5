"""Handle AddOffsetsToTxn (KIP-98): add a group's offsets to a transaction of the older protocol.

Producers of the KIP-890 protocol do not send it: TxnOffsetCommit v5 adds the offsets itself.
"""

from __future__ import annotations

from kwire.broker.authorizer import Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.transactional import fenced_error
from kwire.broker.ids import ProducerIdAndEpoch
from kwire.broker.offsets import OFFSETS_TOPIC, offsets_partition
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FIRST_VERSION_WITH_FENCED = 2


def handle(
    broker: Broker, request: AddOffsetsToTxnRequest, context: RequestContext, now: float
) -> AddOffsetsToTxnResponse:
    partition = (OFFSETS_TOPIC, offsets_partition(request.group_id))
    identity = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        if request.transactional_id:
            broker.check_coordinates(request.transactional_id)
        broker.cluster.transactions.add(request.transactional_id, identity, [partition], now)
    except BrokerError as error:
        code = fenced_error(error.code, supports_fenced=context.version >= _FIRST_VERSION_WITH_FENCED)
        return error_response(request, code, context.version)
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)


def authorize(request: AddOffsetsToTxnRequest, access: Access, version: int) -> None:
    access.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    access.require_group(Operation.READ, request.group_id)


def error_response(request: AddOffsetsToTxnRequest, code: int, version: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)


ADD_OFFSETS_TO_TXN = Handler(AddOffsetsToTxnRequest, handle, error_response, authorize=authorize)
