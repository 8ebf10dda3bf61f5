"""Handle ListTransactions (KIP-664): return the transactions that this broker coordinates.

Filters are the state, the producer id, the duration (v1, KIP-994) and a pattern of the transactional id (v2, KIP-1152).
"""

from __future__ import annotations

import re

from kwire.broker.authorizer import Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.broker.transactions import Transaction, TransactionState
from kwire.errors import ErrorCode
from kwire.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

# "Dead" and "PrepareEpochFence" are states of Kafka that are never listed.
_NAMES = frozenset({*(state.value for state in TransactionState), "Dead", "PrepareEpochFence"})
_PATTERN_LENGTH_MAX = 1_000


def handle(
    broker: Broker, request: ListTransactionsRequest, context: RequestContext, now: float
) -> ListTransactionsResponse:
    pattern: re.Pattern[str] | None = None
    if request.transactional_id_pattern:
        try:
            pattern = re.compile(request.transactional_id_pattern[:_PATTERN_LENGTH_MAX])
        except re.error:
            return error_response(request, ErrorCode.INVALID_REGULAR_EXPRESSION, context.version)
    wall_ms = broker.cluster.wall_ms(now)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[name for name in request.state_filters if name not in _NAMES],
        transaction_states=[
            ListTransactionsResponse.Transaction(
                transactional_id=transaction.id, producer_id=transaction.producer_id,
                transaction_state=transaction.state.value
            )
            for transaction in broker.cluster.transactions
            if broker.coordinates(transaction.id) and _matches(transaction, request, wall_ms)
            and (pattern is None or pattern.fullmatch(transaction.id))
            and context.access.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.id)
        ],
    )  # fmt: skip


def _matches(transaction: Transaction, request: ListTransactionsRequest, wall_ms: int) -> bool:
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and transaction.state.value not in request.state_filters:
        return False
    return request.duration_filter < 0 or wall_ms - transaction.started_ms > request.duration_filter


def error_response(request: ListTransactionsRequest, code: int, version: int) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=[], transaction_states=[])


LIST_TRANSACTIONS = Handler(ListTransactionsRequest, handle, error_response)
