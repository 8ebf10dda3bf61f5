"""Fetch: records of the partitions that this broker leads, waiting until there is enough or time is up.

Fetch sessions (KIP-227) are not kept: session id 0 in the answer tells the client so, and it goes on naming all
partitions. The last batch is cut where the limit falls; before KIP-74 (v0 to v2) so is the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.leaders import Leaders
from kwire.broker.log import PartitionLog, Stored
from kwire.broker.options import TopicSettings
from kwire.broker.partition import Partition
from kwire.broker.state import Topic
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.records import Compression, convert

_FIRST_VERSION_BY_ID = 13
_FIRST_VERSION_WITH_LEADERS = 12
_FIRST_VERSION_WITH_ENDPOINTS = 16
_FIRST_VERSION_WITH_LIMIT = 3  # of the whole response; before, a batch larger than a partition's limit is cut
_FIRST_VERSION_WITH_V2 = 4
_FIRST_VERSION_WITH_V1 = 2
_FIRST_VERSION_WITH_ZSTD = 10
_FINAL_EPOCH, _INITIAL_EPOCH = -1, 0
READ_COMMITTED = 1

_Asked = FetchRequest.Topic.Partition
_Result = FetchResponse.Topic.Partition


def handle(broker: BrokerState, request: FetchRequest, exchange: RequestContext, now: float) -> FetchResponse | None:
    if request.session_id != 0 or request.session_epoch not in (_FINAL_EPOCH, _INITIAL_EPOCH):
        return refuse(request, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, exchange.version)
    fetch = Fetch(broker, request, exchange)
    if request.max_wait_ms <= 0 or fetch.is_satisfied():
        return fetch.response()
    wait_ms = min(request.max_wait_ms, broker.cluster.options.fetch_max_wait_ms)
    fetch.wait(now + wait_ms / 1000)
    return None


class Fetch:
    """One request and the partitions that it reads. Looks again whenever one of them changes, until it is answered."""

    def __init__(self, broker: BrokerState, request: FetchRequest, exchange: RequestContext) -> None:
        self._broker = broker
        self._request = request
        self._exchange = exchange
        self._watched = self._partitions()

    def _partitions(self) -> list[Partition]:
        found = []
        for asked in self._request.topics:
            try:
                topic = self._find_topic(asked)
            except BrokerError:
                continue
            found += [p for p in (topic.partition(one.partition) for one in asked.partitions) if p is not None]
        return found

    def is_satisfied(self) -> bool:
        """There is something to say now: enough bytes, or an error."""
        size = 0
        asked_any = False
        for topic in self._request.topics:
            for asked in topic.partitions:
                asked_any = True
                try:
                    partition = self._find(topic, asked)
                    diverges = _diverges(partition.log, asked)
                except BrokerError:
                    return True
                log, until = partition.log, self._until(partition)
                if diverges or not log.start_offset <= asked.fetch_offset <= log.end_offset:
                    return True
                available = log.bytes_between(asked.fetch_offset, until)
                size += min(available, asked.partition_max_bytes)
                if size >= self._request.min_bytes and (size or self._request.min_bytes <= 0):
                    return True
        return not asked_any

    def wait(self, until: float) -> None:
        self._timer = self._broker.cluster.timers.at(until, self._end)
        for partition in self._watched:
            partition.watch(self._look)

    def _look(self, now: float) -> None:
        if self._exchange.is_over or self.is_satisfied():
            self._end(now)

    def _end(self, now: float) -> None:
        self._timer.cancel()
        for partition in self._watched:
            partition.unwatch(self._look)
        if not self._exchange.is_over:
            self._exchange.answer(self.response())

    # The response.

    def response(self) -> FetchResponse:
        room = min(self._request.max_bytes, self._broker.cluster.options.fetch_max_bytes)
        leaders = Leaders(self._broker.cluster)
        topics = []
        is_empty = True
        for topic in self._request.topics:
            results = []
            for asked in topic.partitions:
                result = self._read(topic, asked, room, leaders, at_least_one=is_empty)
                size = len(result.records or b"")
                room -= size
                is_empty = is_empty and not size
                results.append(result)
            topics.append(FetchResponse.Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=results))
        response = FetchResponse(responses=topics)
        if self._exchange.version >= _FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = [
                FetchResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
                for node in leaders.named()
            ]
        return response

    def _read(
        self, topic: FetchRequest.Topic, asked: _Asked, room: int, leaders: Leaders, *, at_least_one: bool
    ) -> _Result:
        try:
            partition = self._find(topic, asked)
            return self._read_from(partition, asked, room, at_least_one=at_least_one)
        except BrokerError as error:
            result = _failed(asked, error.code)
            if self._exchange.version >= _FIRST_VERSION_WITH_LEADERS and leaders.concerns(error.code):
                leader, epoch = leaders.of(self._find_topic(topic).partitions[asked.partition])
                result.current_leader = _Result.Leader(leader_id=leader, leader_epoch=epoch)
            return result

    def _read_from(self, partition: Partition, asked: _Asked, room: int, *, at_least_one: bool) -> _Result:
        log, until = partition.log, self._until(partition)
        result = _Result(
            partition_index=asked.partition, error_code=ErrorCode.NONE, high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset, log_start_offset=log.start_offset,
            aborted_transactions=None, records=b"",
        )  # fmt: skip
        if _diverges(log, asked):
            epoch, end = log.end_of_epoch(asked.last_fetched_epoch)
            result.diverging_epoch = _Result.EpochEndOffset(epoch=epoch, end_offset=end)
            return result
        limit = max(min(asked.partition_max_bytes, room), 0)
        found = log.read(asked.fetch_offset, max_bytes=limit, until=until, at_least_one=at_least_one)
        result.records = self._encoded(found, limit, partition.settings)
        if self._request.isolation_level == READ_COMMITTED:
            last_offset = found[-1].last_offset if found else asked.fetch_offset
            result.aborted_transactions = [
                _Result.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in log.aborted_between(asked.fetch_offset, last_offset)
            ]
        return result

    def _encoded(self, found: Sequence[Stored], limit: int, settings: TopicSettings) -> bytes | memoryview:
        """The batches in the format that the version can carry, the last one cut at the limit as Kafka cuts it."""
        version = self._exchange.version
        is_old = version < _FIRST_VERSION_WITH_V2
        # Kafka asks the topic's config, and only for a conversion the batches: so zstd that a producer chose reaches
        # clients of v4 to v9, who may or may not know it.
        has_zstd = is_old and any(stored.compression == Compression.ZSTD for stored in found)
        if has_zstd or (version < _FIRST_VERSION_WITH_ZSTD and settings.compression == "zstd"):
            raise broker_error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Fetch v{version} does not know zstd")
        data = found[0].data if len(found) == 1 else b"".join([stored.data for stored in found])
        if is_old:
            data = convert(data, 1 if version >= _FIRST_VERSION_WITH_V1 else 0)
        if version < _FIRST_VERSION_WITH_LIMIT:
            return data[:limit]
        return data[: max(limit, len(found[0].data))] if found and not is_old else data

    # Partitions.

    def _until(self, partition: Partition) -> int:
        committed = self._request.isolation_level == READ_COMMITTED
        return partition.log.last_stable_offset if committed else partition.log.high_watermark

    def _find_topic(self, asked: FetchRequest.Topic) -> Topic:
        if self._exchange.version >= _FIRST_VERSION_BY_ID:
            return self._broker.cluster.find_topic_by_id(asked.topic_id)
        return self._broker.cluster.find_topic(asked.topic)

    def _find(self, topic: FetchRequest.Topic, asked: _Asked) -> Partition:
        name = self._find_topic(topic).name
        partition = self._broker.cluster.partition(name, asked.partition)
        refused = self._exchange.refused(name, asked.partition)
        if refused is not None:
            raise broker_error(refused)
        partition.check_leader(self._broker.id, asked.current_leader_epoch)
        return partition


def _diverges(log: PartitionLog, asked: _Asked) -> bool:
    """Whether what the client read last is gone from the log (KIP-595): it read from a leader that did not last."""
    if asked.last_fetched_epoch < 0:
        return False
    epoch, end = log.end_of_epoch(asked.last_fetched_epoch)
    if epoch < 0:
        raise broker_error(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {asked.last_fetched_epoch} is not known")
    return epoch < asked.last_fetched_epoch or end < asked.fetch_offset


def _failed(asked: _Asked, code: int) -> _Result:
    # Kafka makes these answers in two places, of which one says null and the other says that there are none.
    is_unknown = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    return _Result(
        partition_index=asked.partition, error_code=code, high_watermark=-1, records=b"",
        aborted_transactions=[] if is_unknown else None,
    )  # fmt: skip


def refuse(request: FetchRequest, code: int, version: int) -> FetchResponse:
    """From v7 on there is a place for the error of a whole request."""
    if version >= 7:
        return FetchResponse(error_code=code, responses=[])
    return FetchResponse(
        responses=[
            FetchResponse.Topic(topic=topic.topic, partitions=[_failed(asked, code) for asked in topic.partitions])
            for topic in request.topics
        ]
    )


def places(broker: BrokerState, request: FetchRequest) -> list[tuple[str, int]]:
    by_id = broker.cluster.topics_by_id
    return [
        (topic.topic or (by_id[topic.topic_id].name if topic.topic_id in by_id else ""), asked.partition)
        for topic in request.topics
        for asked in topic.partitions
    ]


FETCH = Handler(FetchRequest, handle, refuse, places, refuses_places=True)
