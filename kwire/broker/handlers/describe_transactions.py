"""Handle DescribeTransactions (KIP-664): return the state and the partitions of transactions."""

from __future__ import annotations

from kwire.broker.authorizer import Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

_Result = DescribeTransactionsResponse.Transaction


def handle(
    broker: Broker, request: DescribeTransactionsRequest, context: RequestContext, now: float
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(broker, transactional_id, context.access) for transactional_id in request.transactional_ids
        ]
    )


def _describe(broker: Broker, transactional_id: str, access: Access) -> _Result:
    if not transactional_id:
        return _error_result(transactional_id, ErrorCode.INVALID_REQUEST)
    if not access.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _error_result(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not broker.coordinates(transactional_id):
        return _error_result(transactional_id, ErrorCode.NOT_COORDINATOR)
    transaction = broker.cluster.transactions.get(transactional_id)
    if transaction is None:
        return _error_result(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        if access.describes(topic):
            topics.setdefault(topic, []).append(index)
    return _Result(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[_Result.Topic(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def _error_result(transactional_id: str, code: int) -> _Result:
    return _Result(
        error_code=code, transactional_id=transactional_id, transaction_state="", transaction_timeout_ms=0,
        transaction_start_time_ms=0, producer_id=0, producer_epoch=0, topics=[],
    )  # fmt: skip


def error_response(request: DescribeTransactionsRequest, code: int, version: int) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_error_result(id, code) for id in request.transactional_ids]
    )


DESCRIBE_TRANSACTIONS = Handler(DescribeTransactionsRequest, handle, error_response)
