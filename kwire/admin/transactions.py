"""Transactions: list, describe, find those that hang, abort and fence them.

ListTransactions goes to every broker, DescribeTransactions and InitProducerId to the coordinator of a transactional id,
DescribeProducers and WriteTxnMarkers to the leader of a partition (KIP-664, Kafka 3.0).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kwire.admin.noun import Noun, TopicPartition, check_code, checked_items, checked_name, checked_names, raised
from kwire.admin.results import Results
from kwire.cluster import ToCoordinator, ToLeader
from kwire.cluster.waiting import blocking
from kwire.consumer.arguments import checked_partition
from kwire.errors import ConfigurationError, KwireError, UnsupportedVersionError
from kwire.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from kwire.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kwire.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

_ENDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
_DURATION_SINCE, _PATTERN_SINCE = 1, 2  # ListTransactions
_NO_TRANSACTION = -1
_FENCE_TIMEOUT_MS = 60_000
# Beyond the time-out that the coordinator itself enforces, by default 15 minutes at most (transaction.max.timeout.ms).
_HANGING_AFTER = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id that a coordinator knows. `state` is such as "Ongoing", "Empty" or "CompleteCommit"."""

    id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id and its transaction. `started_at` is None where none is open."""

    id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_at: datetime | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that a partition's leader knows. `transaction_start`: the offset of its open transaction, or None."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int | None


class TransactionAdmin(Noun):
    """What both faces share."""

    async def _list(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        older_than: timedelta | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of the cluster, sorted; with filters only those that match all.

        states      such as "Ongoing", "PrepareCommit"; an unknown one raises
        older_than  open for longer than this (Kafka 3.8)
        pattern     ids that match this regular expression of RE2/J (Kafka 4.1)
        """
        wanted, ids = checked_names("states", states), checked_items("producer_ids", producer_ids, int)
        if pattern is not None:
            checked_name("pattern", pattern)
        duration_ms = -1 if older_than is None else _milliseconds("older_than", older_than)
        deadline = self._deadline(timeout)

        def build(version: int) -> ListTransactionsRequest:
            request = ListTransactionsRequest(state_filters=wanted, producer_id_filters=ids)
            if older_than is not None:
                if version < _DURATION_SINCE:
                    raise UnsupportedVersionError(
                        "the brokers cannot filter by duration", remedy="this needs Kafka 3.8"
                    )
                request.duration_filter = duration_ms
            if pattern is not None:
                if version < _PATTERN_SINCE:
                    raise UnsupportedVersionError("no filter by pattern", remedy="this needs Kafka 4.1")
                request.transactional_id_pattern = pattern
            return request

        known = await self._snapshot([], deadline)
        found: list[TransactionListing] = []
        responses = await self._ask_brokers(known.brokers, ListTransactionsRequest, build, deadline)
        for node, response in responses.items():
            assert isinstance(response, ListTransactionsResponse)
            check_code(response.error_code, "ListTransactions", broker=node)
            if response.unknown_state_filters:
                raise ConfigurationError(f"the broker knows no state {response.unknown_state_filters[0]!r}")
            found += [
                TransactionListing(one.transactional_id, one.producer_id, one.transaction_state, node)
                for one in response.transaction_states
                # A transaction that is over has no start, which brokers take for a very old one.
                if older_than is None or one.transaction_state not in _ENDED
            ]
        return sorted(found, key=lambda one: one.id)

    async def _describe(self, transactional_id: str, *, timeout: float | None = None) -> Transaction:
        """Return a transactional id and its transaction. TRANSACTIONAL_ID_NOT_FOUND where there is none."""
        checked_name("transactional_id", transactional_id)
        return (await self._describe_many([transactional_id], timeout=timeout))[transactional_id]

    async def _describe_many(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, Transaction]:
        """Return several transactional ids and their transactions."""
        names = checked_names("transactional_ids", transactional_ids)
        return Results(
            await self._routed(
                {name: ToCoordinator(name, "transaction") for name in names},
                DescribeTransactionsRequest,
                lambda name, version: DescribeTransactionsRequest(transactional_ids=[name]),
                _described,
                self._deadline(timeout),
            )
        )

    async def _producers(self, topic: str, partition: int, *, timeout: float | None = None) -> list[ActiveProducer]:
        """Return the producers that the leader of a partition knows, and their open transactions."""
        key = checked_partition(topic, partition)
        found = await self._producers_of([key], self._deadline(timeout))
        return raised(found, key)

    async def _hanging(
        self, *, older_than: timedelta = _HANGING_AFTER, topics: Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> list[ActiveProducer]:  # fmt: skip
        """Return the open transactions in partitions that their coordinator does not know any more, or never did.

        Consumers with read_committed wait at them for ever; `abort` ends one. Only those whose newest record is older
        than `older_than` are looked at, 15 minutes by default. Raises for one of `topics` that does not exist.
        """
        deadline = self._deadline(timeout)
        least_ms = _milliseconds("older_than", older_than)
        known = await self._snapshot(None if topics is None else checked_names("topics", topics), deadline)
        if topics is not None:
            for one in known.topics.values():
                check_code(one.error_code, "Metadata", topic=one.name)
        keys = [(topic.name, one.index) for topic in known.topics.values() for one in topic.partitions]
        before_ms = int(datetime.now().timestamp() * 1000) - least_ms
        candidates: list[ActiveProducer] = []
        for found in (await self._producers_of(keys, deadline)).values():
            if isinstance(found, KwireError):
                raise found
            candidates += [
                one for one in found if one.transaction_start is not None and one.last_timestamp_ms <= before_ms
            ]
        return await self._unknown_to_coordinators(candidates, deadline)

    async def _abort(self, producer: ActiveProducer, *, timeout: float | None = None) -> None:
        """Write an abort marker for the open transaction of a producer, as `producers` and `hanging` return them.

        Use it only for transactions that hang: the coordinator is not asked.
        """
        if not isinstance(producer, ActiveProducer):
            raise ConfigurationError(
                f"producer is {producer!r:.60}", remedy="give one that `producers` or `hanging` has returned"
            )
        if producer.transaction_start is None:
            raise ConfigurationError(
                f"producer {producer.producer_id} has no open transaction", remedy="there is nothing to abort"
            )
        key = (producer.topic, producer.partition)
        topic = WriteTxnMarkersRequest.Marker.Topic(name=key[0], partition_indexes=[key[1]])
        marker = WriteTxnMarkersRequest.Marker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=max(0, producer.coordinator_epoch),
        )

        def parse(name: TopicPartition, response: WriteTxnMarkersResponse, in_doubt: bool) -> None:
            code = response.markers[0].topics[0].partitions[0].error_code
            check_code(
                code, "WriteTxnMarkers", topic=name[0], partition=name[1], resource=f"producer {producer.producer_id}"
            )

        results = await self._routed(
            {key: ToLeader(*key)}, WriteTxnMarkersRequest,
            lambda name, version: WriteTxnMarkersRequest(markers=[marker]), parse, self._deadline(timeout),
        )  # fmt: skip
        raised(results, key)

    async def _fence(
        self, transactional_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, tuple[int, int]]:
        """Fence the producers of transactional ids, and abort their open transactions.

        The results are the new (producer id, epoch); a producer with an older epoch can write no more. A single id's
        error is raised.
        """
        names = [transactional_ids] if isinstance(transactional_ids, str) else transactional_ids
        wanted = checked_names("transactional_ids", names)
        results = Results(
            await self._routed(
                {name: ToCoordinator(name, "transaction") for name in wanted},
                InitProducerIdRequest,
                lambda name, version: InitProducerIdRequest(
                    transactional_id=name, transaction_timeout_ms=_FENCE_TIMEOUT_MS
                ),
                _fenced,
                self._deadline(timeout),
            )
        )
        if isinstance(transactional_ids, str):
            results[transactional_ids]
        return results

    async def _terminate(
        self, transactional_id: str, *, dry_run: bool = False, timeout: float | None = None
    ) -> Transaction:
        """End the open transaction of a transactional id by force: abort it, and fence its producer.

        For transactions that have no timeout, or whose application is gone: kafka-transactions
        --forceTerminateTransaction. Return the transaction as it was; `dry_run` changes nothing. Raises BrokerError for
        an id that the coordinator does not know, which `fence` would create. Brokers from 3.0 on.
        """
        checked_name("transactional_id", transactional_id)
        deadline = self._deadline(timeout)
        found = await self._describe(transactional_id, timeout=self._left(deadline))
        if not dry_run:
            await self._fence(transactional_id, timeout=self._left(deadline))
        return found

    # -- parts

    async def _producers_of(
        self, keys: Iterable[TopicPartition], deadline: float
    ) -> dict[TopicPartition, list[ActiveProducer] | KwireError]:
        def build(key: TopicPartition, version: int) -> DescribeProducersRequest:
            return DescribeProducersRequest(
                topics=[DescribeProducersRequest.Topic(name=key[0], partition_indexes=[key[1]])]
            )

        return await self._routed(
            {key: ToLeader(*key) for key in keys}, DescribeProducersRequest, build, _active, deadline
        )

    async def _unknown_to_coordinators(self, candidates: list[ActiveProducer], deadline: float) -> list[ActiveProducer]:
        if not candidates:
            return []
        left = max(0.001, self._left(deadline))
        listed = await self._list(producer_ids={one.producer_id for one in candidates}, timeout=left)
        described = await self._describe_many({one.id for one in listed}, timeout=self._left(deadline))
        open_transactions: dict[int, Transaction] = {
            one.producer_id: one for one in described.ok.values() if one.started_at is not None
        }
        return [
            one
            for one in candidates
            if one.producer_id not in open_transactions
            or open_transactions[one.producer_id].producer_epoch != one.producer_epoch
            or (one.topic, one.partition) not in open_transactions[one.producer_id].partitions
        ]


class Transactions(TransactionAdmin):
    """`Admin.transactions`, for threads."""

    describe = blocking(TransactionAdmin._describe)
    describe_many = blocking(TransactionAdmin._describe_many)
    producers = blocking(TransactionAdmin._producers)
    hanging = blocking(TransactionAdmin._hanging)
    abort = blocking(TransactionAdmin._abort)
    fence = blocking(TransactionAdmin._fence)
    terminate = blocking(TransactionAdmin._terminate)
    list = blocking(TransactionAdmin._list)


def _milliseconds(name: str, duration: timedelta) -> int:
    if not isinstance(duration, timedelta) or duration < timedelta():
        raise ConfigurationError(f"{name} is {duration!r:.60}", remedy="give a timedelta, such as timedelta(minutes=5)")
    return int(duration.total_seconds() * 1000)


def _described(name: str, response: DescribeTransactionsResponse, in_doubt: bool) -> Transaction:
    (one,) = response.transaction_states
    check_code(one.error_code, "DescribeTransactions", resource=f"transactional id {name}")
    started_ms = one.transaction_start_time_ms
    return Transaction(
        name,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        None if started_ms < 0 else datetime.fromtimestamp(started_ms / 1000).astimezone(),
        tuple(sorted((topic.topic, index) for topic in one.topics for index in topic.partitions)),
    )


def _active(key: TopicPartition, response: DescribeProducersResponse, in_doubt: bool) -> list[ActiveProducer]:
    partition = response.topics[0].partitions[0]
    check_code(partition.error_code, "DescribeProducers", partition.error_message, topic=key[0], partition=key[1])
    return [
        ActiveProducer(
            *key, one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp, one.coordinator_epoch,
            None if one.current_txn_start_offset == _NO_TRANSACTION else one.current_txn_start_offset,
        )
        for one in partition.active_producers
    ]  # fmt: skip


def _fenced(name: str, response: InitProducerIdResponse, in_doubt: bool) -> tuple[int, int]:
    check_code(response.error_code, "InitProducerId", resource=f"transactional id {name}")
    return response.producer_id, response.producer_epoch
