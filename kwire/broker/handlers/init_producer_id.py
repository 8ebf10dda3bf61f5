"""Handle InitProducerId (KIP-98): return a producer id and an epoch.

Two-phase commit (KIP-939, v6) fails, as in a Kafka cluster that does not authorize it.
"""

from __future__ import annotations

from kwire.broker.authorizer import CLUSTER_NAME, Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.transactional import fenced_error
from kwire.broker.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
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


def authorize(request: InitProducerIdRequest, access: Access, version: int) -> None:
    """Require the right to write transactions, or to write idempotently: to the cluster, or to any topic (KIP-679)."""
    if request.transactional_id is not None:
        access.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    elif not access.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) and not access.allows_any(
        Operation.WRITE, ResourceType.TOPIC
    ):
        raise broker_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def error_response(request: InitProducerIdRequest, code: int, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


INIT_PRODUCER_ID = Handler(InitProducerIdRequest, handle, error_response, authorize=authorize)
