"""AddPartitionsToTxn: a producer of the older protocol says where its transaction will write.

From v4 on it is for brokers, of many transactions at once, and may just ask whether partitions were added. All or none:
if one partition cannot be added, the others are OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.transactional import fenced_as
from kwire.broker.producer_ids import Identity
from kwire.broker.transactions import Place
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

_FIRST_VERSION_WITH_FENCED = 2
_FIRST_VERSION_OF_MANY = 4

_Asked = AddPartitionsToTxnRequest.Transaction
_Result = AddPartitionsToTxnResponse.Transaction


def handle(
    broker: BrokerState, request: AddPartitionsToTxnRequest, exchange: RequestContext, now: float
) -> AddPartitionsToTxnResponse:
    if exchange.version >= _FIRST_VERSION_OF_MANY:
        results = [
            _Result(transactional_id=asked.transactional_id, topic_results=_add(broker, asked, exchange, now))
            for asked in request.transactions
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_add(broker, _only(request), exchange, now))


def _only(request: AddPartitionsToTxnRequest) -> _Asked:
    return _Asked(
        transactional_id=request.v3_and_below_transactional_id, producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch, topics=request.v3_and_below_topics,
    )  # fmt: skip


def _add(
    broker: BrokerState, asked: _Asked, exchange: RequestContext, now: float
) -> list[AddPartitionsToTxnTopicResult]:
    wanted = _places_of(asked.topics)
    bad = {place: wrong for place in wanted if (wrong := _wrong(broker, place, exchange))}
    if bad:
        return _results(asked, {place: bad.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in wanted})
    if asked.verify_only:
        return _results(asked, {place: _verify(broker, asked, place) for place in wanted})
    code: int = ErrorCode.NONE
    try:
        _check_coordinator(broker, asked.transactional_id)
        identity = Identity(asked.producer_id, asked.producer_epoch)
        broker.cluster.transactions.add(asked.transactional_id, identity, wanted, now)
    except BrokerError as error:
        code = fenced_as(error.code, knows_fenced=exchange.version >= _FIRST_VERSION_WITH_FENCED)
    return _results(asked, dict.fromkeys(wanted, code))


def _wrong(broker: BrokerState, place: Place, exchange: RequestContext) -> int:
    refused = exchange.refused(*place)
    if refused is not None:
        return refused
    try:
        broker.cluster.partition(*place)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def _verify(broker: BrokerState, asked: _Asked, place: Place) -> int:
    try:
        _check_coordinator(broker, asked.transactional_id)
        identity = Identity(asked.producer_id, asked.producer_epoch)
        broker.cluster.transactions.verify(asked.transactional_id, identity, place)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def _check_coordinator(broker: BrokerState, transactional_id: str) -> None:
    if transactional_id:
        broker.check_coordinates(transactional_id)


def _places_of(topics: list[AddPartitionsToTxnTopic]) -> list[Place]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(asked: _Asked, codes: Mapping[Place, int]) -> list[AddPartitionsToTxnTopicResult]:
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
        for topic in asked.topics
    ]


def refuse(request: AddPartitionsToTxnRequest, code: int, version: int) -> AddPartitionsToTxnResponse:
    if version >= _FIRST_VERSION_OF_MANY:
        return AddPartitionsToTxnResponse(error_code=code)
    only = _only(request)
    codes = dict.fromkeys(_places_of(only.topics), code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(only, codes))


def places(broker: BrokerState, request: AddPartitionsToTxnRequest) -> list[Place]:
    topics = [*request.v3_and_below_topics, *(topic for asked in request.transactions for topic in asked.topics)]
    return _places_of(topics)


ADD_PARTITIONS_TO_TXN = Handler(AddPartitionsToTxnRequest, handle, refuse, places, refuses_places=True)
