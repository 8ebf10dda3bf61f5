"""Send the requests of producer ids and transactions: begin, add, end and describe."""

from __future__ import annotations

from dataclasses import dataclass

from kwire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire.protocol.messages.describe_producers import DescribeProducersRequest
from kwire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire.protocol.messages.end_txn import EndTxnRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.list_transactions import ListTransactionsRequest
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kwire.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from recording.scene import TOPIC, Scene
from recording.wire import Exchange

# The last AddPartitionsToTxn for clients, and the first TxnOffsetCommit that replaces AddOffsetsToTxn (KIP-890).
_ADDED_BY_CLIENTS, _OFFSETS_ADDED_BY_COMMIT = 3, 5
_PARTITION = 1


def init_producer_id(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), version)


def add_partitions_to_txn(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(_add_request(_Transaction.begun(scene), version), version)


def add_offsets_to_txn(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(_offsets_request(_Transaction.begun(scene)), version)


def txn_offset_commit(scene: Scene, version: int) -> Exchange:
    mine = _Transaction.begun(scene)
    if version < _OFFSETS_ADDED_BY_COMMIT:
        assert not scene.newest(_offsets_request(mine), at_most=_ADDED_BY_CLIENTS).error_code
    kind = TxnOffsetCommitRequest.Topic.Partition
    partitions = [
        kind(partition_index=0, committed_offset=1, committed_metadata="noted"),
        kind(partition_index=1, committed_offset=2, committed_metadata=None),
    ]
    topic = TxnOffsetCommitRequest.Topic(name=TOPIC, topic_id=scene.topic_id, partitions=partitions)
    request = TxnOffsetCommitRequest(
        transactional_id=mine.id, group_id=mine.group, producer_id=mine.producer_id,
        producer_epoch=mine.producer_epoch, topics=[topic],
    )  # fmt: skip
    return scene.wire.exchange(request, version)


def end_txn(scene: Scene, version: int) -> Exchange:
    mine = _Transaction.open(scene)
    return scene.wire.exchange(_end_request(mine, committed=version % 2 == 0), version)


def list_transactions(scene: Scene, version: int) -> Exchange:
    mine = _Transaction.open(scene)
    request = ListTransactionsRequest(
        state_filters=["Ongoing"], producer_id_filters=[mine.producer_id],
        duration_filter=0 if version >= 1 else -1, transactional_id_pattern="transaction-.*" if version >= 2 else None,
    )  # fmt: skip
    return scene.wire.exchange(request, version)


def describe_transactions(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(DescribeTransactionsRequest(transactional_ids=[_Transaction.open(scene).id]), version)


def describe_producers(scene: Scene, version: int) -> Exchange:
    topic = DescribeProducersRequest.Topic(name=TOPIC, partition_indexes=[_PARTITION])
    return scene.wire.exchange(DescribeProducersRequest(topics=[topic]), version)


def write_txn_markers(scene: Scene, version: int) -> Exchange:
    """Send markers as a coordinator or `kafka-transactions.sh abort` does; this one belongs to no transaction."""
    mine = _Transaction.begun(scene)
    kind = WriteTxnMarkersRequest.Marker
    marker = kind(
        producer_id=mine.producer_id, producer_epoch=mine.producer_epoch, transaction_result=False,
        topics=[kind.Topic(name=TOPIC, partition_indexes=[_PARTITION])], coordinator_epoch=0,
    )  # fmt: skip
    return scene.wire.exchange(WriteTxnMarkersRequest(markers=[marker]), version)


@dataclass(frozen=True, slots=True)
class _Transaction:
    """Describe a transaction with its own producer id, so that none waits for the end of another."""

    id: str
    group: str
    producer_id: int
    producer_epoch: int

    @classmethod
    def begun(cls, scene: Scene) -> _Transaction:
        name = scene.new_name("transaction")
        answer = scene.newest(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
        assert not answer.error_code
        return cls(name, f"group-of-{name}", answer.producer_id, answer.producer_epoch)

    @classmethod
    def open(cls, scene: Scene) -> _Transaction:
        """Begin a transaction and add a partition to it."""
        mine = cls.begun(scene)
        version = min(_ADDED_BY_CLIENTS, scene.versions(AddPartitionsToTxnRequest)[-1])
        answer = scene.wire.ask(_add_request(mine, version), version)
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert not results[0].partition_error_code
        return mine


def _add_request(mine: _Transaction, version: int) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[_PARTITION])]
    if version <= _ADDED_BY_CLIENTS:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=mine.id, v3_and_below_producer_id=mine.producer_id,
            v3_and_below_producer_epoch=mine.producer_epoch, v3_and_below_topics=topics,
        )  # fmt: skip
    transaction = AddPartitionsToTxnRequest.Transaction(
        transactional_id=mine.id, producer_id=mine.producer_id, producer_epoch=mine.producer_epoch, topics=topics
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _offsets_request(mine: _Transaction) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=mine.id, producer_id=mine.producer_id, producer_epoch=mine.producer_epoch, group_id=mine.group
    )


def _end_request(mine: _Transaction, *, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=mine.id, producer_id=mine.producer_id, producer_epoch=mine.producer_epoch, committed=committed
    )
