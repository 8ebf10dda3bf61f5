"""Handle Fetch: read partitions that this broker has, and wait until `min_bytes` are available or time is up.

Within a fetch session (KIP-227) a request names what has changed, and the response has the partitions with news. The
last batch is cut at the size limit. Before KIP-74 (v0 to v2) the first batch is cut, too.

Only the leader serves clients before v11. Later ones may read from followers, and a leader with `replica_selector`
"rack" names the replica in the client's rack (KIP-392).
"""

from __future__ import annotations

from collections.abc import Sequence

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.cluster_state import Topic
from kwire.broker.fetch_sessions import FetchContext, FetchPartition
from kwire.broker.handlers.handler import Handler, LeaderHints, find_topic
from kwire.broker.log import PartitionLog, StoredBatch
from kwire.broker.options import TopicSettings
from kwire.broker.partition import NO_LEADER, Partition
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.records import Compression, convert

_FIRST_VERSION_BY_ID = 13
_FIRST_VERSION_WITH_RACK = 11
_FIRST_VERSION_WITH_LEADERS = 12
_FIRST_VERSION_WITH_ENDPOINTS = 16
_FIRST_VERSION_WITH_LIMIT = 3  # of the whole response; before, a batch larger than a partition's limit is cut
_FIRST_VERSION_WITH_V2 = 4
_FIRST_VERSION_WITH_V1 = 2
_FIRST_VERSION_WITH_ZSTD = 10
READ_COMMITTED = 1

_Requested = FetchRequest.Topic.Partition
_Result = FetchResponse.Topic.Partition


def handle(broker: Broker, request: FetchRequest, context: RequestContext, now: float) -> FetchResponse | None:
    cluster = broker.cluster
    quota = cluster.quotas.consumer(context.access.principal, context.client_id)
    if quota is not None and now < quota.muted_until:
        cluster.timers.at(quota.muted_until, lambda now: _handle_later(broker, request, context, now))
        return None
    try:
        opened = cluster.fetch_sessions[broker.id].open(request, context.version, now)
    except BrokerError as error:
        return error_response(request, error.code, context.version)
    fetch = Fetch(broker, request, opened, context)
    if request.max_wait_ms <= 0 or fetch.is_ready():
        return fetch.response(now)
    wait_ms = min(request.max_wait_ms, cluster.options.fetch_max_wait_ms)
    fetch.wait(now + wait_ms / 1000)
    return None


def _handle_later(broker: Broker, request: FetchRequest, context: RequestContext, now: float) -> None:
    if not context.is_complete and broker.node.is_up:
        response = handle(broker, request, context, now)
        if response is not None:
            context.respond(response)


class Fetch:
    """One request and the partitions that it reads. It is checked again whenever one of them changes (DelayedFetch)."""

    def __init__(self, broker: Broker, request: FetchRequest, opened: FetchContext, context: RequestContext) -> None:
        self._broker = broker
        self._request = request
        self._opened = opened
        self._context = context
        self._partitions = self._find_partitions()

    def _find_partitions(self) -> list[Partition]:
        found = []
        for one in self._opened.partitions:
            try:
                partition = self._find_topic(one).partition(one.requested.partition)
            except BrokerError:
                continue
            if partition is not None:
                found.append(partition)
        return found

    def is_ready(self) -> bool:
        """Return whether the response can be sent now: there are enough bytes, an error, or another replica to name."""
        size = 0
        for one in self._opened.partitions:
            requested = one.requested
            try:
                partition = self._find_partition(one)
                diverges = _diverges(partition.log, requested)
            except BrokerError:
                return True
            log, upper_bound = partition.log, self._upper_bound(partition)
            if diverges or not log.start_offset <= requested.fetch_offset <= log.end_offset:
                return True
            if self._preferred_replica(partition) is not None:
                return True
            available = log.bytes_between(requested.fetch_offset, upper_bound)
            size += min(available, requested.partition_max_bytes)
            if size >= self._request.min_bytes and (size or self._request.min_bytes <= 0):
                return True
        return not self._opened.partitions

    def wait(self, until: float) -> None:
        self._timer = self._broker.cluster.timers.at(until, self._complete)
        for partition in self._partitions:
            partition.add_listener(self._check)

    def _check(self, now: float) -> None:
        if self._context.is_complete or self.is_ready():
            self._complete(now)

    def _complete(self, now: float) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.remove_listener(self._check)
        if not self._context.is_complete:
            self._context.respond(self.response(now))

    def response(self, now: float) -> FetchResponse:
        """Return the response, and open the session that the client wants."""
        hints = LeaderHints(self._broker.cluster, self._context.listener)
        read = self._read_all(hints)
        client = self._context
        quota = self._broker.cluster.quotas.consumer(client.access.principal, client.client_id)
        session = self._opened.session
        if quota is not None:
            throttle_ms = quota.throttle_ms(sum(len(result.records or b"") for _, result in read), now)
            if throttle_ms:
                return FetchResponse(
                    throttle_time_ms=throttle_ms, session_id=session.id if session else 0, responses=[]
                )
        if session is None:
            cache = self._broker.cluster.fetch_sessions[self._broker.id]
            session_id = cache.create(self._opened, self._context.version, now)
        else:
            session_id = session.id
        response = FetchResponse(session_id=session_id, responses=self._results(read))
        if self._context.version >= _FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = [
                FetchResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
                for node in hints.nodes()
            ]
        return response

    def _read_all(self, hints: LeaderHints) -> list[tuple[FetchPartition, _Result]]:
        room = min(self._request.max_bytes, self._broker.cluster.options.fetch_max_bytes)
        read = []
        is_empty = True
        for one in self._opened.partitions:
            result = self._read(one, room, hints, at_least_one=is_empty)
            size = len(result.records or b"")
            room -= size
            is_empty = is_empty and not size
            read.append((one, result))
        return read

    def _results(self, read: Sequence[tuple[FetchPartition, _Result]]) -> list[FetchResponse.Topic]:
        """Return the results by topic: all of a full request, else those with news."""
        session = self._opened.session
        topics: list[FetchResponse.Topic] = []
        for one, result in read:
            has_news = one.take_news(result)
            if session is not None and not has_news:
                continue
            if session is not None and result.records:
                session.move_to_back(one)
            if not topics or (topics[-1].topic, topics[-1].topic_id) != (one.topic, one.topic_id):
                topics.append(FetchResponse.Topic(topic=one.topic, topic_id=one.topic_id, partitions=[]))
            topics[-1].partitions.append(result)
        return topics

    def _read(self, one: FetchPartition, room: int, hints: LeaderHints, *, at_least_one: bool) -> _Result:
        requested = one.requested
        try:
            partition = self._find_partition(one)
            return self._read_from(partition, requested, room, at_least_one=at_least_one)
        except BrokerError as error:
            result = _error_result(requested, error.code)
            if self._context.version >= _FIRST_VERSION_WITH_LEADERS and hints.applies_to(error.code):
                leader, epoch = hints.leader_of(self._find_topic(one).partitions[requested.partition])
                result.current_leader = _Result.Leader(leader_id=leader, leader_epoch=epoch)
            return result

    def _read_from(self, partition: Partition, requested: _Requested, room: int, *, at_least_one: bool) -> _Result:
        log, upper_bound = partition.log, self._upper_bound(partition)
        result = _Result(
            partition_index=requested.partition, error_code=ErrorCode.NONE, high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset, log_start_offset=log.start_offset,
            aborted_transactions=None, records=b"",
        )  # fmt: skip
        if _diverges(log, requested):
            epoch, end = log.end_of_epoch(requested.last_fetched_epoch)
            result.diverging_epoch = _Result.EpochEndOffset(epoch=epoch, end_offset=end)
            return result
        preferred = self._preferred_replica(partition)
        if preferred is not None and log.start_offset <= requested.fetch_offset <= log.end_offset:
            result.preferred_read_replica = preferred
            return result
        limit = max(min(requested.partition_max_bytes, room), 0)
        found = log.read(requested.fetch_offset, max_bytes=limit, upper_bound=upper_bound, at_least_one=at_least_one)
        result.records = self._encode(found, limit, partition.settings)
        if self._request.isolation_level == READ_COMMITTED:
            last_offset = found[-1].last_offset if found else requested.fetch_offset
            result.aborted_transactions = [
                _Result.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in log.aborted_between(requested.fetch_offset, last_offset)
            ]
        return result

    def _encode(self, found: Sequence[StoredBatch], limit: int, settings: TopicSettings) -> bytes | memoryview:
        """Return the batches in the format of the request's version, the last one cut at the limit, as in Kafka."""
        version = self._context.version
        is_old = version < _FIRST_VERSION_WITH_V2
        # Kafka checks the topic's config, and the batches only if it converts them. So clients of v4 to v9 get batches
        # that a producer compressed with zstd.
        has_zstd = is_old and any(stored.compression == Compression.ZSTD for stored in found)
        if has_zstd or (version < _FIRST_VERSION_WITH_ZSTD and settings.compression == "zstd"):
            raise broker_error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Fetch v{version} does not know zstd")
        data = found[0].data if len(found) == 1 else b"".join([stored.data for stored in found])
        if is_old:
            data = convert(data, 1 if version >= _FIRST_VERSION_WITH_V1 else 0)
        if version < _FIRST_VERSION_WITH_LIMIT:
            return data[:limit]
        return data[: max(limit, len(found[0].data))] if found and not is_old else data

    def _upper_bound(self, partition: Partition) -> int:
        committed = self._request.isolation_level == READ_COMMITTED
        return partition.log.last_stable_offset if committed else partition.log.high_watermark

    def _preferred_replica(self, partition: Partition) -> int | None:
        """Return the replica in the client's rack that it should read from instead of this leader, if there is one."""
        rack = self._request.rack_id
        cluster = self._broker.cluster
        if not rack or cluster.options.replica_selector != "rack" or partition.leader != self._broker.id:
            return None
        nearest = [id for id in partition.isr if cluster.nodes[id].is_up and cluster.nodes[id].rack == rack]
        return None if not nearest or partition.leader in nearest else nearest[0]

    def _find_topic(self, one: FetchPartition) -> Topic:
        id = one.topic_id if self._context.version >= _FIRST_VERSION_BY_ID else None
        return find_topic(self._broker, self._context.access, Operation.READ, one.topic, id)

    def _find_partition(self, one: FetchPartition) -> Partition:
        requested = one.requested
        name = self._find_topic(one).name
        partition = self._broker.cluster.partition(name, requested.partition)
        refused = self._context.injected_error(name, requested.partition)
        if refused is not None:
            raise broker_error(refused)
        if self._context.version >= _FIRST_VERSION_WITH_RACK and self._broker.id in partition.isr:
            partition.check_epoch(requested.current_leader_epoch)
            if partition.leader == NO_LEADER:
                raise broker_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            partition.check_leader(self._broker.id, requested.current_leader_epoch)
        return partition


def _diverges(log: PartitionLog, requested: _Requested) -> bool:
    """Return whether the log no longer has what the client read last (KIP-595), because its leader lost it."""
    if requested.last_fetched_epoch < 0:
        return False
    epoch, end = log.end_of_epoch(requested.last_fetched_epoch)
    if epoch < 0:
        raise broker_error(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {requested.last_fetched_epoch} is unknown")
    return epoch < requested.last_fetched_epoch or end < requested.fetch_offset


def _error_result(requested: _Requested, code: int) -> _Result:
    # Kafka builds these results in two places: one sends null, the other an empty list.
    is_unknown = code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )  # fmt: skip
    return _Result(
        partition_index=requested.partition, error_code=code, high_watermark=-1, records=b"",
        aborted_transactions=[] if is_unknown else None,
    )  # fmt: skip


def error_response(request: FetchRequest, code: int, version: int) -> FetchResponse:
    """Return the error; v7 and later have a field for the error of the whole request."""
    if version >= 7:
        return FetchResponse(error_code=code, responses=[])
    return FetchResponse(
        responses=[
            FetchResponse.Topic(
                topic=topic.topic, partitions=[_error_result(requested, code) for requested in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def named_partitions(broker: Broker, request: FetchRequest) -> list[tuple[str, int]]:
    """Return what the request reads: within a session also what it does not name."""
    by_id = broker.cluster.topics_by_id
    keys = [
        (topic.topic or topic.topic_id, requested.partition)
        for topic in request.topics
        for requested in topic.partitions
    ]
    session = broker.cluster.fetch_sessions[broker.id].sessions.get(request.session_id)
    if session is not None:
        keys += session.partitions
    return [
        (topic if isinstance(topic, str) else by_id[topic].name if topic in by_id else "", partition)
        for topic, partition in dict.fromkeys(keys)
    ]


FETCH = Handler(FetchRequest, handle, error_response, named_partitions, supports_partition_errors=True)
