"""Handle AddPartitionsToTxn (KIP-98): add partitions to a transaction of the older protocol.

From v4 on (KIP-890) brokers send it, for many transactions at once, and may only verify that partitions were added.
Either all partitions are added or none: if one fails, the others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.broker.authorizer import Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.transactional import fenced_error
from kwire.broker.ids import ProducerIdAndEpoch
from kwire.broker.offsets import TopicPartition
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

_FIRST_VERSION_WITH_FENCED = 2
_FIRST_VERSION_OF_MANY = 4

_Transaction = AddPartitionsToTxnRequest.Transaction
_Result = AddPartitionsToTxnResponse.Transaction


def handle(
    broker: Broker, request: AddPartitionsToTxnRequest, context: RequestContext, now: float
) -> AddPartitionsToTxnResponse:
    if context.version >= _FIRST_VERSION_OF_MANY:
        results = [
            _Result(
                transactional_id=transaction.transactional_id, topic_results=_add(broker, transaction, context, now)
            )
            for transaction in request.transactions
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_add(broker, _from_v3(request), context, now))


def _from_v3(request: AddPartitionsToTxnRequest) -> _Transaction:
    return _Transaction(
        transactional_id=request.v3_and_below_transactional_id, producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch, topics=request.v3_and_below_topics,
    )  # fmt: skip


def _add(
    broker: Broker, transaction: _Transaction, context: RequestContext, now: float
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = _topic_partitions(transaction.topics)
    errors = {partition: code for partition in partitions if (code := _check(broker, partition, context))}
    if errors:
        return _results(
            transaction,
            {partition: errors.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in partitions},
        )
    if transaction.verify_only:
        return _results(transaction, {partition: _verify(broker, transaction, partition) for partition in partitions})
    result: int = ErrorCode.NONE
    try:
        _check_coordinator(broker, transaction.transactional_id)
        identity = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        broker.cluster.transactions.add(transaction.transactional_id, identity, partitions, now)
    except BrokerError as error:
        result = fenced_error(error.code, supports_fenced=context.version >= _FIRST_VERSION_WITH_FENCED)
    return _results(transaction, dict.fromkeys(partitions, result))


def _check(broker: Broker, partition: TopicPartition, context: RequestContext) -> int:
    injected = context.injected_error(*partition)
    if injected is not None:
        return injected
    try:
        if context.version < _FIRST_VERSION_OF_MANY:
            context.access.require_topic(Operation.WRITE, partition[0])
        broker.cluster.partition(*partition)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def _verify(broker: Broker, transaction: _Transaction, partition: TopicPartition) -> int:
    try:
        _check_coordinator(broker, transaction.transactional_id)
        identity = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        broker.cluster.transactions.verify(transaction.transactional_id, identity, partition)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def _check_coordinator(broker: Broker, transactional_id: str) -> None:
    if transactional_id:
        broker.check_coordinates(transactional_id)


def _topic_partitions(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(transaction: _Transaction, codes: Mapping[TopicPartition, int]) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnTopicResult.Partition(
                    partition_index=index, partition_error_code=codes[topic.name, index]
                )
                for index in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]


def authorize(request: AddPartitionsToTxnRequest, access: Access, version: int) -> None:
    if version >= _FIRST_VERSION_OF_MANY:
        access.require_cluster(Operation.CLUSTER_ACTION)
    else:
        access.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)


def error_response(request: AddPartitionsToTxnRequest, code: int, version: int) -> AddPartitionsToTxnResponse:
    if version >= _FIRST_VERSION_OF_MANY:
        return AddPartitionsToTxnResponse(error_code=code)
    transaction = _from_v3(request)
    codes = dict.fromkeys(_topic_partitions(transaction.topics), code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(transaction, codes))


def named_partitions(broker: Broker, request: AddPartitionsToTxnRequest) -> list[TopicPartition]:
    topics = [
        *request.v3_and_below_topics,
        *(topic for transaction in request.transactions for topic in transaction.topics),
    ]
    return _topic_partitions(topics)


ADD_PARTITIONS_TO_TXN = Handler(
    AddPartitionsToTxnRequest,
    handle,
    error_response,
    named_partitions,
    supports_partition_errors=True,
    authorize=authorize,
)
