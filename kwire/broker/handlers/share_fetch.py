"""Handle ShareFetch (KIP-932, KIP-1206, KIP-1222): apply acknowledgements, then acquire records of a share session.

The request waits until `min_bytes` are available to the group or time is up. It is checked again when a partition of
the session changes: records are appended or released, a lock expires, the leader moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, LeaderHints, find_topic, needs_group
from kwire.broker.handlers.share_acknowledge import NO_LEADER_HINT, acknowledge, session_key
from kwire.broker.log import PartitionLog, StoredBatch
from kwire.broker.partition import Partition
from kwire.broker.request_context import RequestContext
from kwire.broker.share_coordinator import ShareKey
from kwire.broker.share_partition import AcquireMode, Range, SharePartition
from kwire.broker.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession, TopicIdPartition
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

_FIRST_VERSION_WITH_LOCK_TIME = 1
_FIRST_VERSION_WITH_RECORD_LIMITS = 1
_RECORDS_BEFORE_V1 = 500
_Result = ShareFetchResponse.Topic.Partition


def handle(
    broker: Broker, request: ShareFetchRequest, context: RequestContext, now: float
) -> ShareFetchResponse | None:
    sessions = broker.cluster.share_partitions.sessions
    named = [(topic.topic_id, p.partition_index) for topic in request.topics for p in topic.partitions]
    try:
        key = session_key(broker, request.group_id, request.member_id)
        _check(request)
        if request.share_session_epoch == INITIAL_EPOCH:
            session = sessions.open(key, context.connection, named)
        else:
            session = sessions.find(key, request.share_session_epoch)
            if request.share_session_epoch != FINAL_EPOCH:
                session.add(named)
                session.forget((topic.topic_id, i) for topic in request.forgotten_topics_data for i in topic.partitions)
                session.advance()
    except BrokerError as error:
        return error_response(request, error.code, context.version, error.broker_message)
    fetch = ShareFetch(broker, request, context, key, session)
    fetch.acknowledge(now)
    if request.share_session_epoch == FINAL_EPOCH:
        broker.cluster.share_partitions.close_session(key, now)
        return fetch.response({})
    if request.is_renew_ack or not session.partitions:
        return fetch.response({})
    if request.max_wait_ms <= 0 or fetch.is_ready(now):
        return fetch.response(fetch.acquire(now))
    fetch.wait(now + request.max_wait_ms / 1000)
    return None


def _check(request: ShareFetchRequest) -> None:
    """Raise INVALID_REQUEST for acknowledgements in an opening request, and for a renewal that fetches, too."""
    batches = [p.acknowledgement_batches for topic in request.topics for p in topic.partitions]
    if request.share_session_epoch == INITIAL_EPOCH and any(batches):
        raise broker_error(ErrorCode.INVALID_REQUEST, "a request that opens a session cannot acknowledge")
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    if request.is_renew_ack and (any(limits) or not all(batches)):
        why = "a request that renews locks fetches nothing: its limits must be 0"
        raise broker_error(ErrorCode.INVALID_REQUEST, why)


class ShareFetch:
    """One request, and the partitions of its session (DelayedShareFetch)."""

    def __init__(
        self,
        broker: Broker,
        request: ShareFetchRequest,
        context: RequestContext,
        key: SessionKey,
        session: ShareSession,
    ) -> None:
        self._broker = broker
        self._cluster = broker.cluster
        self._manager = broker.cluster.share_partitions
        self._request = request
        self._context = context
        self._key = key
        self._session = session
        self._settings = broker.cluster.group_configs.of(key.group)
        self._acknowledged: dict[TopicIdPartition, BrokerError | None] = {}
        self._watched: list[tuple[Partition, ShareKey]] = []

    # Acknowledgements.

    def acknowledge(self, now: float) -> None:
        for topic in self._request.topics:
            for named in topic.partitions:
                if not named.acknowledgement_batches:
                    continue
                at = (topic.topic_id, named.partition_index)
                self._acknowledged[at] = None
                try:
                    acknowledge(
                        self._broker, self._context, self._key, *at, named.acknowledgement_batches, now,
                        renews=self._request.is_renew_ack,
                    )  # fmt: skip
                except BrokerError as error:
                    self._acknowledged[at] = error

    # Waiting.

    def is_ready(self, now: float) -> bool:
        """Return whether the response can be sent now: there are enough bytes, or nothing but errors."""
        size = 0
        errors = 0
        if self._max_records <= 0:
            return False
        for at in self._session.partitions:
            try:
                partition, records = self._find(at, now)
            except BrokerError:
                errors += 1
                continue
            if records.can_acquire:
                size += partition.log.bytes_between(records.next_fetch_offset, self._upper_bound(partition.log))
        return errors == len(self._session.partitions) or (size > 0 and size >= self._request.min_bytes)

    def wait(self, until: float) -> None:
        self._timer = self._cluster.timers.at(until, self._complete)
        for topic_id, index in self._session.partitions:
            topic = self._cluster.topics_by_id.get(topic_id)
            partition = topic.partition(index) if topic is not None else None
            if partition is not None:
                self._watched.append((partition, ShareKey(self._key.group, topic_id, index)))
        for partition, key in self._watched:
            partition.add_listener(self._check)
            self._manager.add_listener(key, self._check)

    def _check(self, now: float) -> None:
        if self._context.is_complete or self.is_ready(now):
            self._complete(now)

    def _complete(self, now: float) -> None:
        self._timer.cancel()
        for partition, key in self._watched:
            partition.remove_listener(self._check)
            self._manager.remove_listener(key, self._check)
        if not self._context.is_complete:
            self._context.respond(self.response(self.acquire(now)))

    # Acquiring.

    @property
    def _max_records(self) -> int:
        has_limit = self._context.version >= _FIRST_VERSION_WITH_RECORD_LIMITS
        return self._request.max_records if has_limit else _RECORDS_BEFORE_V1

    def acquire(self, now: float) -> dict[TopicIdPartition, _Result]:
        """Acquire records of all partitions. The bytes are shared equally, as each must have a chance.

        A request for no records does not look at the partitions.
        """
        results: dict[TopicIdPartition, _Result] = {}
        if self._max_records <= 0:
            return results
        ready: list[tuple[TopicIdPartition, Partition, SharePartition]] = []
        for at in self._session.in_rotation():
            try:
                partition, records = self._find(at, now)
            except BrokerError as error:
                results[at] = self._error_result(at, error)
                continue
            results[at] = _result(at[1])
            if records.can_acquire:
                ready.append((at, partition, records))
        left = self._max_records
        max_bytes = self._request.max_bytes // max(1, len(ready))
        for at, partition, records in ready:
            if left <= 0:
                break
            left -= self._acquire_from(at, partition, records, results[at], left, max_bytes, now)
        return results

    def _acquire_from(
        self,
        at: TopicIdPartition,
        partition: Partition,
        records: SharePartition,
        result: _Result,
        max_records: int,
        max_bytes: int,
        now: float,
    ) -> int:
        """Acquire records of one partition and add them to its result. Return how many."""
        log = partition.log
        offset, upper_bound = records.next_fetch_offset, self._upper_bound(log)
        if offset >= upper_bound:
            return 0
        stored = log.read(offset, max_bytes=max_bytes, upper_bound=upper_bound)
        aborted: list[Range] = []
        if self._settings.share_read_committed and stored:
            aborted = _aborted(log, stored, offset)
        start = records.start_offset
        acquired = records.acquire(
            self._key.member, [(batch.base_offset, batch.last_offset) for batch in stored], max_records=max_records,
            now=now, batch_size=self._request.batch_size, mode=AcquireMode(self._request.share_acquire_mode),
            aborted=aborted,
        )  # fmt: skip
        self._manager.acquired(ShareKey(self._key.group, *at), start, now)
        if not acquired:
            return 0
        first, last = acquired[0].first, acquired[-1].last
        result.records = b"".join(
            [batch.data for batch in stored if batch.last_offset >= first and batch.base_offset <= last]
        )
        result.acquired_records = [
            _Result.AcquiredRecords(
                first_offset=part.first, last_offset=part.last, delivery_count=part.delivery_count
            )
            for part in acquired
        ]  # fmt: skip
        return sum(part.last - part.first + 1 for part in acquired)

    def _upper_bound(self, log: PartitionLog) -> int:
        return log.last_stable_offset if self._settings.share_read_committed else log.high_watermark

    def _find(self, at: TopicIdPartition, now: float) -> tuple[Partition, SharePartition]:
        topic = find_topic(self._broker, self._context.access, Operation.READ, None, at[0])
        refused = self._context.injected_error(topic.name, at[1])
        if refused is not None:
            raise broker_error(refused)
        return self._manager.find(self._broker.id, ShareKey(self._key.group, *at), now)

    # The response.

    def response(self, results: dict[TopicIdPartition, _Result]) -> ShareFetchResponse:
        """Return the response: partitions with records, errors, acknowledgements, and those new in the session."""
        hints = LeaderHints(self._cluster, self._context.listener)
        by_topic: dict[UUID, list[_Result]] = {}
        for at in [*results, *(at for at in self._acknowledged if at not in results)]:
            result = results.get(at) or _result(at[1])
            failure = self._acknowledged.get(at)
            if failure is not None:
                result.acknowledge_error_code = failure.code
                result.acknowledge_error_message = failure.broker_message
            is_news = bool(result.error_code or result.acquired_records or at in self._acknowledged)
            if not is_news and not self._session.partitions.get(at, False):
                continue
            if at in results and at in self._session.partitions:
                self._session.partitions[at] = bool(result.error_code)
            if hints.applies_to(result.error_code) or hints.applies_to(result.acknowledge_error_code):
                topic = self._cluster.topics_by_id.get(at[0])
                if topic is not None:
                    leader, epoch = hints.leader_of(topic.partitions[at[1]])
                    result.current_leader = _Result.Leader(leader_id=leader, leader_epoch=epoch)
            by_topic.setdefault(at[0], []).append(result)
        has_lock_time = self._context.version >= _FIRST_VERSION_WITH_LOCK_TIME
        return ShareFetchResponse(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=self._settings.share_record_lock_ms if has_lock_time else 0,
            responses=[
                ShareFetchResponse.Topic(topic_id=topic_id, partitions=found) for topic_id, found in by_topic.items()
            ],
            node_endpoints=[
                ShareFetchResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
                for node in hints.nodes()
            ],
        )  # fmt: skip

    @staticmethod
    def _error_result(at: TopicIdPartition, error: BrokerError) -> _Result:
        result = _result(at[1])
        result.error_code = error.code
        result.error_message = error.broker_message
        return result


def _aborted(log: PartitionLog, stored: Sequence[StoredBatch], offset: int) -> list[Range]:
    """Return the batches of aborted transactions, without the markers that end them."""
    transactions = log.aborted_between(offset, stored[-1].last_offset)
    return [
        (batch.base_offset, batch.last_offset)
        for batch in stored
        if batch.is_transactional
        and not batch.is_control
        and any(
            one.producer_id == batch.producer_id and one.first_offset <= batch.base_offset < one.last_offset
            for one in transactions
        )
    ]


def _result(index: int) -> _Result:
    leader, epoch = NO_LEADER_HINT
    return _Result(
        partition_index=index, error_code=ErrorCode.NONE, acknowledge_error_code=ErrorCode.NONE,
        current_leader=_Result.Leader(leader_id=leader, leader_epoch=epoch), records=b"", acquired_records=[],
    )  # fmt: skip


def error_response(
    request: ShareFetchRequest, code: int, version: int, message: str | None = None
) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=code, error_message=message, responses=[], node_endpoints=[])


def named_partitions(broker: Broker, request: ShareFetchRequest) -> list[tuple[str, int]]:
    """Return the partitions in the request, and those that its session has already."""
    named = {(topic.topic_id, part.partition_index): None for topic in request.topics for part in topic.partitions}
    key = SessionKey(broker.id, request.group_id or "", request.member_id or "")
    session = broker.cluster.share_partitions.sessions.get(key)
    if session is not None and request.share_session_epoch > INITIAL_EPOCH:
        named |= dict.fromkeys(session.partitions)
    by_id = broker.cluster.topics_by_id
    return [(by_id[topic_id].name, index) for topic_id, index in named if topic_id in by_id]


SHARE_FETCH = Handler(
    ShareFetchRequest,
    handle,
    error_response,
    named_partitions,
    supports_partition_errors=True,
    authorize=needs_group(Operation.READ),
)
