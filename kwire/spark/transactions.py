"""The requests of transactions that no producer object has begun: any process may go on with them.

A transaction is its transactional id, producer id, epoch and the version of its protocol (KIP-890). A connection that
wrote nothing may end it. Requests are repeated until they have a result or the time is over, as those of `kwire.Admin`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kwire.admin.noun import Noun, TopicPartition, by_topic, check_code, raised
from kwire.cluster import ToCoordinator, ToLeader, open_loop_thread
from kwire.cluster.waiting import BLOCKING, blocking
from kwire.errors import (
    BrokerError,
    ErrorCode,
    KwireError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.producer.batch import SEQUENCES
from kwire.producer.transaction import FEATURE
from kwire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kwire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kwire.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kwire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.protocol.messages.list_transactions import ListTransactionsRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kwire.records.encoder import set_producer_state
from kwire.wire.checksums import crc32c

# The highest versions of the older protocol; later ones of AddPartitionsToTxn are for brokers only.
_ADD_PARTITIONS_MAX = 3
_V1_MAX = {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4}
# The highest that name topics by name.
_V2_MAX = {"Produce": 12, "EndTxn": None, "TxnOffsetCommit": 5}
_OFFSET_FETCH_MAX = 9
_GROUPS_SINCE, _STABLE_SINCE = 8, 7  # OffsetFetch

_PRODUCE_BUSY = frozenset({
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
})  # fmt: skip
_OFFSETS_BUSY = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.REQUEST_TIMED_OUT})


class EncodedBatch(NamedTuple):
    """A v2 batch without producer id, epoch and sequence, which its sender fills in."""

    topic: str
    partition: int
    rows: int
    batch: bytes


class OpenTransaction(NamedTuple):
    """What it takes to write to a transaction and to end it. `version` is that of the protocol: 1, or 2 by KIP-890."""

    id: str
    producer_id: int
    producer_epoch: int
    version: int

    def limit(self, api: str) -> int | None:
        """Return the highest version of an API in this protocol."""
        return (_V1_MAX if self.version < 2 else _V2_MAX)[api]


class TransactionRequests(Noun):
    """The requests, each of which waits for its result: at most `seconds`."""

    def __init__(self, *, seconds: float, bootstrap: str, **options: Any) -> None:
        super().__init__(open_loop_thread("kwire.spark", bootstrap, options, "spark"), BLOCKING)
        self._seconds = seconds

    def close(self, timeout: float | None = 10.0) -> None:
        self._runtime.close(timeout)

    async def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition count of each topic. Raises TopicError for one that does not exist."""
        names = list(topics)
        known = await self._snapshot(names, self._deadline(self._seconds))
        for name in names:
            topic = known.topics.get(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
            check_code(code, "Metadata", topic=name)
        return {name: len(known.topics[name].partitions) for name in names}

    async def _begin(self, transactional_id: str, timeout_ms: int) -> OpenTransaction:
        """Take over a transactional id: fence who had it before, and abort what they left open."""

        def parse(name: str, response: InitProducerIdResponse, in_doubt: bool) -> tuple[int, int]:
            check_code(response.error_code, "InitProducerId", resource=f"transactional id {name}")
            return response.producer_id, response.producer_epoch

        results = await self._routed(
            {transactional_id: ToCoordinator(transactional_id, "transaction")}, InitProducerIdRequest,
            lambda name, version: InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms),
            parse, self._deadline(self._seconds),
        )  # fmt: skip
        version = self._runtime.run(lambda: self._runtime.view.feature(FEATURE), self._seconds)
        return OpenTransaction(transactional_id, *raised(results, transactional_id), max(1, min(version, 2)))

    async def _add_partitions(self, one: OpenTransaction, keys: Iterable[TopicPartition]) -> None:
        """Add partitions to a transaction. For partitions that it has, this only checks that it is open."""

        def parse(name: str, response: AddPartitionsToTxnResponse, in_doubt: bool) -> None:
            codes: dict[int, TopicPartition] = {}  # the one that says why comes first: others are "not attempted"
            for topic in response.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    codes[result.partition_error_code] = (topic.name, result.partition_index)
            codes.pop(0, None)
            why = next((code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED), None)
            if codes:
                code = why or ErrorCode.OPERATION_NOT_ATTEMPTED
                raise broker_error(code, api="AddPartitionsToTxn", topic=codes[code][0], partition=codes[code][1])

        topics = [
            AddPartitionsToTxnTopic(name=topic, partitions=partitions) for topic, partitions in by_topic(keys).items()
        ]
        results = await self._routed(
            {one.id: ToCoordinator(one.id, "transaction")}, AddPartitionsToTxnRequest,
            lambda name, version: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name, v3_and_below_producer_id=one.producer_id,
                v3_and_below_producer_epoch=one.producer_epoch, v3_and_below_topics=topics,
            ),
            parse, self._deadline(self._seconds), _ADD_PARTITIONS_MAX,
        )  # fmt: skip
        raised(results, one.id)

    async def _produce(self, one: OpenTransaction, batches: Mapping[TopicPartition, bytes | bytearray]) -> None:
        """Write one batch to each of these partitions. A batch that is in the log already counts as written."""
        timeout_ms = self._broker_timeout_ms(self._deadline(None))

        def build(key: TopicPartition, version: int) -> ProduceRequest:
            partition = ProduceRequest.Topic.Partition(index=key[1], records=batches[key])
            return ProduceRequest(
                transactional_id=one.id, acks=-1, timeout_ms=timeout_ms,
                topic_data=[ProduceRequest.Topic(name=key[0], partition_data=[partition])],
            )  # fmt: skip

        def parse(key: TopicPartition, response: ProduceResponse, in_doubt: bool) -> None:
            result = response.responses[0].partition_responses[0]
            if result.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                check_code(result.error_code, "Produce", result.error_message, topic=key[0], partition=key[1])

        results = await self._routed(
            {key: ToLeader(*key) for key in batches}, ProduceRequest, build, parse, self._deadline(self._seconds),
            one.limit("Produce"), _PRODUCE_BUSY,
        )  # fmt: skip
        for key in results:
            raised(results, key)

    async def _add_group(self, one: OpenTransaction, group: str) -> None:
        def parse(name: str, response: AddOffsetsToTxnResponse, in_doubt: bool) -> None:
            check_code(response.error_code, "AddOffsetsToTxn", group=group)

        results = await self._routed(
            {one.id: ToCoordinator(one.id, "transaction")}, AddOffsetsToTxnRequest,
            lambda name, version: AddOffsetsToTxnRequest(
                transactional_id=name, producer_id=one.producer_id, producer_epoch=one.producer_epoch, group_id=group
            ),
            parse, self._deadline(self._seconds),
        )  # fmt: skip
        raised(results, one.id)

    async def _commit_offset(
        self, one: OpenTransaction, group: str, key: TopicPartition, offset: int, metadata: str
    ) -> None:
        """Commit an offset of a group, with metadata, as part of the transaction."""
        if one.version < 2:
            await self._add_group(one, group)

        def parse(name: str, response: TxnOffsetCommitResponse, in_doubt: bool) -> None:
            code = response.topics[0].partitions[0].error_code
            check_code(code, "TxnOffsetCommit", group=group, topic=key[0], partition=key[1])

        partition = TxnOffsetCommitRequest.Topic.Partition(
            partition_index=key[1], committed_offset=offset, committed_metadata=metadata
        )
        topics = [TxnOffsetCommitRequest.Topic(name=key[0], partitions=[partition])]
        results = await self._routed(
            {group: ToCoordinator(group)}, TxnOffsetCommitRequest,
            lambda name, version: TxnOffsetCommitRequest(
                transactional_id=one.id, group_id=name, producer_id=one.producer_id,
                producer_epoch=one.producer_epoch, topics=topics,
            ),
            parse, self._deadline(self._seconds), one.limit("TxnOffsetCommit"), _OFFSETS_BUSY,
        )  # fmt: skip
        raised(results, group)

    async def _end(self, transactions: Sequence[OpenTransaction], *, is_commit: bool) -> dict[str, KwireError | None]:
        """Commit or abort transactions in parallel. Return the error of each, None for success.

        Committing a transaction twice succeeds; committing one that has timed out never succeeds.
        """
        found: dict[str, KwireError | None] = {}
        for version in sorted({one.version for one in transactions}):
            same = {one.id: one for one in transactions if one.version == version}

            def build(name: str, _: int, same: Mapping[str, OpenTransaction] = same) -> EndTxnRequest:
                return EndTxnRequest(
                    transactional_id=name, producer_id=same[name].producer_id,
                    producer_epoch=same[name].producer_epoch, committed=is_commit,
                )  # fmt: skip

            found |= await self._routed(
                {name: ToCoordinator(name, "transaction") for name in same}, EndTxnRequest, build, _ended,
                self._deadline(self._seconds), next(iter(same.values())).limit("EndTxn"),
            )  # fmt: skip
        return found

    async def _committed(self, group: str, key: TopicPartition, *, is_stable: bool) -> tuple[int, str | None] | None:
        """Return the committed offset of a group in a partition and its metadata, or None.

        `is_stable`: wait while a transaction that is still open would change it (Kafka 2.5).
        """
        topic, indexes = key[0], [key[1]]

        def build(name: str, version: int) -> OffsetFetchRequest:
            if version < _GROUPS_SINCE:
                return OffsetFetchRequest(
                    group_id=name, topics=[OffsetFetchRequest.Topic(name=topic, partition_indexes=indexes)],
                    require_stable=is_stable and version >= _STABLE_SINCE,
                )  # fmt: skip
            named = OffsetFetchRequest.Group.Topic(name=topic, partition_indexes=indexes)
            wanted = OffsetFetchRequest.Group(group_id=name, topics=[named])
            return OffsetFetchRequest(groups=[wanted], require_stable=is_stable)

        def parse(name: str, response: OffsetFetchResponse, in_doubt: bool) -> tuple[int, str | None] | None:
            answer: Any = response.groups[0] if response.groups else response
            check_code(answer.error_code, "OffsetFetch", group=name)
            one = answer.topics[0].partitions[0]
            check_code(one.error_code, "OffsetFetch", group=name, topic=key[0], partition=key[1])
            return None if one.committed_offset < 0 else (one.committed_offset, one.metadata)

        results = await self._routed(
            {group: ToCoordinator(group)}, OffsetFetchRequest, build, parse, self._deadline(self._seconds),
            _OFFSET_FETCH_MAX, _OFFSETS_BUSY,
        )  # fmt: skip
        return raised(results, group)

    async def _ongoing(self, prefix: str, version: int) -> list[OpenTransaction]:
        """Return the open transactions whose id begins with `prefix`; none where brokers cannot list them (before 3.0).

        `version` is that of the cluster's protocol.
        """
        deadline = self._deadline(self._seconds)
        known = await self._snapshot([], deadline)
        try:
            listed = await self._ask_brokers(
                known.brokers, ListTransactionsRequest,
                lambda version: ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[]), deadline,
            )  # fmt: skip
        except UnsupportedVersionError:
            return []
        names = [
            state.transactional_id
            for response in listed.values()
            for state in response.transaction_states
            if state.transactional_id.startswith(prefix)
        ]
        if not names:
            return []

        def parse(name: str, response: DescribeTransactionsResponse, in_doubt: bool) -> OpenTransaction | None:
            (one,) = response.transaction_states
            if one.error_code or one.transaction_state != "Ongoing":
                return None
            return OpenTransaction(name, one.producer_id, one.producer_epoch, version)

        described = await self._routed(
            {name: ToCoordinator(name, "transaction") for name in names}, DescribeTransactionsRequest,
            lambda name, version: DescribeTransactionsRequest(transactional_ids=[name]), parse, deadline,
        )  # fmt: skip
        return [one for one in described.values() if isinstance(one, OpenTransaction)]

    partition_counts = blocking(_partition_counts)
    begin = blocking(_begin)
    add_partitions = blocking(_add_partitions)
    produce = blocking(_produce)
    commit_offset = blocking(_commit_offset)
    end = blocking(_end)
    committed = blocking(_committed)
    ongoing = blocking(_ongoing)


def _ended(name: str, response: EndTxnResponse, in_doubt: bool) -> None:
    check_code(response.error_code, "EndTxn", resource=f"transactional id {name}")


# What EndTxn returns where the transaction has ended otherwise: its epoch or its producer id is of the past.
_ENDED_OTHERWISE = frozenset({
    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
})  # fmt: skip


def has_ended(error: KwireError | None) -> bool:
    """Return whether an error says that a transaction is not open any more: aborted, fenced, timed out."""
    return isinstance(error, BrokerError) and error.code in _ENDED_OTHERWISE


class TransactionWriter:
    """Writes batches to a transaction: one at a time to each partition, many partitions at once, in order."""

    def __init__(self, requests: TransactionRequests, transaction: OpenTransaction) -> None:
        self._requests = requests
        self.transaction = transaction
        self._sequences: dict[TopicPartition, int] = {}  # the next one, of the partitions that were written

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self._sequences)

    def write(self, batches: Iterable[EncodedBatch]) -> None:
        """Return once all are acknowledged."""
        queues: dict[TopicPartition, deque[EncodedBatch]] = {}
        for batch in batches:
            queues.setdefault((batch.topic, batch.partition), deque()).append(batch)
        new = [key for key in queues if key not in self._sequences]
        if new and self.transaction.version < 2:
            self._requests.add_partitions(self.transaction, new)
        while queues:
            self._requests.produce(
                self.transaction, {key: self._sequenced(queue.popleft()) for key, queue in queues.items()}
            )
            queues = {key: queue for key, queue in queues.items() if queue}

    def _sequenced(self, one: EncodedBatch) -> bytearray:
        key = one.topic, one.partition
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = (sequence + one.rows) % SEQUENCES
        batch = bytearray(one.batch)
        set_producer_state(crc32c, batch, self.transaction.producer_id, self.transaction.producer_epoch, sequence)
        return batch
