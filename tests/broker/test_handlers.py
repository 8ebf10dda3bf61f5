"""Produce, Fetch, ListOffsets, Metadata and the topics' APIs, in every version, on virtual time."""
from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kwire.broker.handlers.table import HANDLERS
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol import ApiKey
from kwire.protocol.messages.create_topics import CreateTopicsRequest
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest
from kwire.protocol.messages.describe_cluster import DescribeClusterRequest
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.list_offsets import ListOffsetsRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import Compression, decode_batches, encode_batch
from tests.broker.virtual_cluster import WALL_MS, Asked, VirtualCluster

NOBODY = UUID(int=0xBAD)
CODECS = list(Compression)


def batch(*values: bytes, magic: int = 2, time_ms: int = WALL_MS, key: bytes | None = b"k", **fields: Any) -> bytes:
    return encode_batch([(time_ms, key, value, ()) for value in values], magic=magic, **fields)


class Bench(VirtualCluster):
    """A cluster with the topic t of one partition, unless told otherwise."""

    def __init__(self, partitions: int = 1, configs: dict[str, str | None] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.topic = self.state.create_topic("t", partitions, configs=configs)

    def produce_request(
        self, records: bytes | None, *, acks: int = -1, partition: int = 0, **more: Any
    ) -> ProduceRequest:
        data = ProduceRequest.Topic.Partition(index=partition, records=records)
        named = {"name": "t", "topic_id": self.topic.id, **more}
        topic = ProduceRequest.Topic(partition_data=[data], **named)
        return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])

    def produce(
        self, records: bytes | None, version: int = 13, *, node: int | None = None, **more: Any
    ) -> ProduceResponse.Topic.Partition:
        request = self.produce_request(records, **more)
        response = self.answer(node or self.leader("t", more.get("partition", 0)), request, version)
        return response.responses[0].partition_responses[0]

    def fetch_request(
        self, offset: int = 0, *, max_wait_ms: int = 0, min_bytes: int = 1, limit: int = 1 << 20, epoch: int = -1,
        last_epoch: int = -1, committed: bool = False, partitions: int = 1, max_bytes: int = 1 << 20, **more: Any,
    ) -> FetchRequest:  # fmt: skip
        asked = [
            FetchRequest.Topic.Partition(
                partition=index, fetch_offset=offset, partition_max_bytes=limit, current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
            )
            for index in range(partitions)
        ]  # fmt: skip
        named = {"topic": "t", "topic_id": self.topic.id, **more}
        return FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation_level=int(committed),
            topics=[FetchRequest.Topic(partitions=asked, **named)],
        )  # fmt: skip

    def fetch(self, offset: int = 0, version: int = 18, *, node: int | None = None, **more: Any) -> Any:
        response = self.answer(node or self.leader("t"), self.fetch_request(offset, **more), version)
        return response.responses[0].partitions[0]

    def fetch_later(self, version: int = 18, **more: Any) -> Asked:
        return self.ask(self.leader("t"), self.fetch_request(**more), version)

    def values(self, records: Any) -> list[bytes | None]:
        return [record.value for part in decode_batches(records) for record in part.records()]

    @property
    def follower(self) -> int:
        return next(id for id in self.brokers if id != self.leader("t"))


class TestProduceAndFetch:
    @pytest.mark.parametrize(
        ("version", "codec"),
        [(v, codec) for v in ProduceRequest.VERSIONS for codec in CODECS if v >= 7 or codec is not Compression.ZSTD],
    )
    def test_every_version_and_codec_arrives(self, version: int, codec: Compression) -> None:
        bench = Bench()
        magic = 2 if version >= 3 else version // 2
        results = [
            bench.produce(batch(b"one", b"two", magic=magic, compression=codec), version) for _ in range(2)
        ]
        assert [(r.error_code, r.base_offset) for r in results] == [(0, 0), (0, 2)]
        found = bench.fetch()
        assert bench.values(found.records) == [b"one", b"two"] * 2
        (stored, _) = decode_batches(found.records)
        assert (stored.magic, stored.compression) == (2, codec)

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("version", FetchRequest.VERSIONS)
    def test_every_version_reads_every_codec(self, version: int, codec: Compression) -> None:
        bench = Bench()
        bench.produce(batch(b"one", compression=codec))
        bench.produce(batch(b"two", b"three", compression=codec))
        found = bench.fetch(1, version)
        if codec is Compression.ZSTD and version < 10:
            assert found.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            return
        assert (found.error_code, found.high_watermark) == (0, 3)
        assert next(decode_batches(found.records)).magic == (2 if version >= 4 else version // 2)
        assert bench.values(found.records) == [b"two", b"three"]
        offsets = [record.offset for part in decode_batches(found.records) for record in part.records()]
        assert offsets == [1, 2]

    def test_magic_1_may_come_with_version_2_only(self) -> None:
        bench = Bench()
        assert bench.produce(batch(b"v", magic=1), 1).error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert bench.produce(batch(b"v", magic=0), 2).error_code == ErrorCode.NONE

    def test_a_message_set_of_many_messages_is_one_batch(self) -> None:
        bench = Bench()
        assert bench.produce(batch(b"a", b"b", b"c", magic=1), 2).error_code == 0
        assert len(list(bench.topic.partitions[0].log)) == 1

    @pytest.mark.parametrize("acks", [0, 1, -1])
    def test_acks(self, acks: int) -> None:
        bench = Bench()
        asked = bench.ask(bench.leader("t"), bench.produce_request(batch(b"v"), acks=acks))
        assert bench.topic.partitions[0].log.end_offset == 1
        assert [type(outcome).__name__ for outcome in asked.outcomes] == ["NoAnswer" if acks == 0 else "Answer"]

    def test_acks_0_hears_of_an_error_by_a_closed_connection(self) -> None:
        bench = Bench()
        asked = bench.ask(bench.follower, bench.produce_request(batch(b"v"), acks=0))
        assert [type(outcome).__name__ for outcome in asked.outcomes] == ["HangUp"]


def corrupted(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def patched(data: bytes, at: int, value: int, size: int) -> bytes:
    """With the checksum made right again."""
    from kwire.wire.accel import crc32c

    changed = bytearray(data)
    changed[at : at + size] = value.to_bytes(size, "big")
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


GOOD = batch(b"v", b"w")
BAD_RECORDS = [
    # name, records, version, topic configs, error
    ("nothing", None, 13, {}, ErrorCode.INVALID_RECORD),
    ("empty", b"", 13, {}, ErrorCode.INVALID_RECORD),
    ("a wrong checksum", corrupted(GOOD), 13, {}, ErrorCode.CORRUPT_MESSAGE),
    ("a wrong checksum of a message", corrupted(batch(b"v", magic=1)), 2, {}, ErrorCode.CORRUPT_MESSAGE),
    ("cut off", GOOD[:-1], 13, {}, ErrorCode.CORRUPT_MESSAGE),
    ("two batches", GOOD + GOOD, 13, {}, ErrorCode.INVALID_RECORD),
    ("an old format", batch(b"v", magic=1), 3, {}, ErrorCode.INVALID_RECORD),
    ("a base offset", batch(b"v", base_offset=5), 13, {}, ErrorCode.INVALID_RECORD),
    ("more offsets than records", patched(GOOD, 23, 7, 4), 13, {}, ErrorCode.INVALID_RECORD),
    ("more records than offsets", patched(GOOD, 57, 7, 4), 13, {}, ErrorCode.CORRUPT_MESSAGE),
    ("no records", patched(batch(b"v"), 57, 0, 4), 13, {}, ErrorCode.INVALID_RECORD),
    ("an unknown codec", patched(GOOD, 21, 7, 2), 13, {}, ErrorCode.CORRUPT_MESSAGE),
    ("a control batch", patched(GOOD, 21, 0x20, 2), 13, {}, ErrorCode.INVALID_RECORD),
    ("a transaction of nobody", patched(GOOD, 21, 0x10, 2), 13, {}, ErrorCode.INVALID_RECORD),
    ("a producer without sequence", batch(b"v", producer_id=1, producer_epoch=0), 13, {}, ErrorCode.INVALID_RECORD),
    ("zstd before its time", batch(b"v", compression=Compression.ZSTD), 6, {}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("too large", batch(b"v" * 2000), 13, {"max.message.bytes": "1000"}, ErrorCode.MESSAGE_TOO_LARGE),
    ("no key", batch(b"v", key=None), 13, {"cleanup.policy": "compact"}, ErrorCode.INVALID_RECORD),
    ("a timestamp from the future", batch(b"v", time_ms=WALL_MS + 3_700_000), 13, {}, ErrorCode.INVALID_TIMESTAMP),
    ("a timestamp from the past", batch(b"v", time_ms=WALL_MS - 2_000), 13,
     {"message.timestamp.before.max.ms": "1000"}, ErrorCode.INVALID_TIMESTAMP),
]  # fmt: skip


@pytest.mark.parametrize(
    ("records", "version", "configs", "error"),
    [case[1:] for case in BAD_RECORDS],
    ids=[case[0] for case in BAD_RECORDS],
)
def test_records_that_are_refused(
    records: bytes, version: int, configs: dict[str, str | None], error: ErrorCode
) -> None:
    bench = Bench(configs=configs)
    result = bench.produce(records, version)
    assert (result.error_code, result.base_offset) == (error, -1)
    assert bench.topic.partitions[0].log.end_offset == 0


class TestProduceErrors:
    @pytest.mark.parametrize(
        ("more", "version", "error"),
        [
            ({"name": "nowhere"}, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"topic_id": NOBODY}, 13, ErrorCode.UNKNOWN_TOPIC_ID),
            ({"acks": 2}, 13, ErrorCode.INVALID_REQUIRED_ACKS),
        ],
    )
    def test_requests_that_are_refused(self, more: dict[str, Any], version: int, error: ErrorCode) -> None:
        assert Bench().produce(GOOD, version, **more).error_code == error

    def test_a_partition_that_does_not_exist(self) -> None:
        bench = Bench()
        response = bench.answer(bench.leader("t"), bench.produce_request(GOOD, partition=1))
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("version", [9, 10, 13])
    def test_a_broker_that_does_not_lead_names_the_one_that_does(self, version: int) -> None:
        bench = Bench()
        leader = bench.leader("t")
        response = bench.answer(bench.follower, bench.produce_request(GOOD), version)
        result = response.responses[0].partition_responses[0]
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        hint = (result.current_leader.leader_id, result.current_leader.leader_epoch)
        assert hint == ((leader, 0) if version >= 10 else (-1, -1))
        named = [(node.node_id, node.host) for node in response.node_endpoints]
        assert named == ([(leader, f"broker-{leader}")] if version >= 10 else [])

    def test_too_few_replicas(self) -> None:
        bench = Bench(configs={"min.insync.replicas": "3"})
        bench.state.stop_node(bench.follower, 0.0)
        assert bench.produce(GOOD).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert bench.produce(GOOD, acks=1).error_code == ErrorCode.NONE

    def test_a_full_storage(self) -> None:
        assert Bench(storage_bytes_max=10).produce(GOOD).error_code == ErrorCode.KAFKA_STORAGE_ERROR


class TestIdempotence:
    def batch(self, sequence: int, epoch: int = 0) -> bytes:
        return batch(b"v", producer_id=5, producer_epoch=epoch, base_sequence=sequence)

    def test_a_retry_is_answered_like_the_first_time(self) -> None:
        bench = Bench()
        for _ in range(2):
            result = bench.produce(self.batch(0))
            assert (result.error_code, result.base_offset) == (0, 0)
        assert bench.topic.partitions[0].log.end_offset == 1

    def test_gaps_and_old_epochs(self) -> None:
        bench = Bench()
        codes = [bench.produce(self.batch(*at)).error_code for at in [(0, 1), (2, 1), (1, 1), (2, 0), (0, 2)]]
        assert codes == [0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, ErrorCode.INVALID_PRODUCER_EPOCH, 0]

    def test_a_leader_keeps_what_the_former_knew(self) -> None:
        bench = Bench()
        bench.produce(self.batch(0))
        bench.state.stop_node(bench.leader("t"), 0.0)
        result = bench.produce(self.batch(0))
        assert (result.error_code, result.base_offset) == (0, 0)


class TestReplication:
    def test_acks_all_waits_for_the_followers_and_acks_1_does_not(self) -> None:
        bench = Bench(replication_ms=100)
        leader = bench.leader("t")
        waiting = bench.ask(leader, bench.produce_request(GOOD))
        assert bench.produce(GOOD, acks=1).base_offset == 2
        assert waiting.is_pending
        assert bench.fetch().high_watermark == 0
        bench.advance(0.2)
        assert waiting.response.responses[0].partition_responses[0].base_offset == 0
        assert bench.fetch().high_watermark == 4

    def test_a_leader_that_falls_loses_what_was_not_replicated_and_says_so(self) -> None:
        bench = Bench(replication_ms=100)
        bench.produce(GOOD, acks=1)
        bench.advance(0.2)
        old = bench.leader("t")
        waiting = bench.ask(old, bench.produce_request(GOOD))
        assert bench.produce(GOOD, acks=1).base_offset == 4
        bench.state.stop_node(old, bench.now)
        result = waiting.response.responses[0].partition_responses[0]
        assert (result.error_code, result.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert bench.topic.partitions[0].log.end_offset == 2
        bench.advance(1)  # what was on its way to the followers of the old leader means nothing now
        assert bench.fetch(2).high_watermark == 2

    def test_time_is_up(self) -> None:
        bench = Bench(replication_ms=5_000)
        waiting = bench.ask(bench.leader("t"), bench.produce_request(GOOD))
        bench.advance(1.1)
        assert waiting.response.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT


class TestFetchWaiting:
    def test_until_there_is_something(self) -> None:
        bench = Bench()
        waiting = bench.fetch_later(max_wait_ms=500)
        bench.advance(0.4)
        assert waiting.is_pending
        bench.produce(GOOD)
        assert bench.values(waiting.response.responses[0].partitions[0].records) == [b"v", b"w"]

    def test_until_time_is_up(self) -> None:
        bench = Bench()
        waiting = bench.fetch_later(max_wait_ms=500)
        bench.advance(0.6)
        assert waiting.response.responses[0].partitions[0].records == b""
        bench.produce(GOOD)
        assert len(waiting.outcomes) == 1

    def test_until_there_is_enough(self) -> None:
        bench = Bench()
        waiting = bench.fetch_later(max_wait_ms=500, min_bytes=2 * len(GOOD))
        bench.produce(GOOD)
        assert waiting.is_pending
        bench.produce(GOOD)
        assert len(waiting.response.responses[0].partitions[0].records) == 2 * len(GOOD)

    def test_until_the_leader_moves(self) -> None:
        bench = Bench()
        waiting = bench.fetch_later(max_wait_ms=500)
        bench.topic.partitions[0].move_leader(bench.follower, bench.now)
        result = waiting.response.responses[0].partitions[0]
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.current_leader.leader_id == bench.leader("t")

    def test_until_the_topic_is_deleted(self) -> None:
        bench = Bench()
        waiting = bench.fetch_later(max_wait_ms=500)
        bench.state.delete_topic(bench.topic, bench.now)
        assert waiting.response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    @pytest.mark.parametrize("more", [{"offset": 9}, {"topic_id": NOBODY}, {"epoch": 7}, {"min_bytes": 0}])
    def test_not_at_all_when_there_is_something_to_say(self, more: dict[str, Any]) -> None:
        assert not Bench().fetch_later(max_wait_ms=500, **more).is_pending

    def test_no_longer_than_the_broker_allows(self) -> None:
        bench = Bench(fetch_max_wait_ms=100)
        waiting = bench.fetch_later(max_wait_ms=500_000)
        bench.advance(0.2)
        assert not waiting.is_pending


class TestFetchErrors:
    @pytest.mark.parametrize(
        ("more", "version", "error"),
        [
            ({"topic": "nowhere"}, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"topic_id": NOBODY}, 13, ErrorCode.UNKNOWN_TOPIC_ID),
            ({"offset": 3}, 13, ErrorCode.OFFSET_OUT_OF_RANGE),
            ({"offset": -1}, 13, ErrorCode.OFFSET_OUT_OF_RANGE),
            ({"epoch": 0}, 13, ErrorCode.FENCED_LEADER_EPOCH),
            ({"epoch": 1}, 13, ErrorCode.NONE),
            ({"epoch": 2}, 13, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ],
    )
    def test_errors(self, more: dict[str, Any], version: int, error: ErrorCode) -> None:
        bench = Bench()
        bench.produce(GOOD)
        bench.topic.partitions[0].move_leader(bench.follower, 0.0)
        assert bench.fetch(version=version, **more).error_code == error

    def test_a_session_is_not_known(self) -> None:
        bench = Bench()
        request = bench.fetch_request()
        request.session_id, request.session_epoch = 9, 1
        assert bench.answer(bench.leader("t"), request).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        request.session_id, request.session_epoch = 0, 0
        assert bench.answer(bench.leader("t"), request).session_id == 0

    def test_what_was_read_and_is_gone_diverges(self) -> None:
        bench = Bench(replication_ms=100)
        bench.produce(GOOD, acks=1)
        bench.advance(1)
        bench.produce(GOOD, acks=1)
        bench.state.stop_node(bench.leader("t"), bench.now)  # offsets 2 and 3 of epoch 0 are lost
        bench.produce(GOOD, acks=1)
        bench.advance(1)
        result = bench.fetch(4, last_epoch=0)
        assert (result.diverging_epoch.epoch, result.diverging_epoch.end_offset) == (0, 2)
        assert result.records == b""
        assert bench.values(bench.fetch(2, last_epoch=0).records) == [b"v", b"w"]


class TestFetchLimits:
    def filled(self) -> Bench:
        bench = Bench(partitions=2)
        bench.topic.partitions[1].move_leader(bench.leader("t"), 0.0)
        for partition in (0, 1):
            for _ in range(3):
                bench.produce(GOOD, partition=partition)
        return bench

    @pytest.mark.parametrize(
        ("limit", "max_bytes", "counts"),
        [
            (1 << 20, 1 << 20, [3, 3]),
            (2, 1 << 20, [2, 2]),
            (1 << 20, 1, [1, 0]),  # the first batch of all is given whatever the limits
            (1 << 20, 4, [3, 1]),
            (2, 3, [2, 1]),
            (0, 1 << 20, [1, 0]),
        ],
    )
    def test_in_batches(self, limit: int, max_bytes: int, counts: list[int]) -> None:
        bench = self.filled()
        size = len(GOOD)
        limit, max_bytes = (n if n > 9 else n * size for n in (limit, max_bytes))
        request = bench.fetch_request(partitions=2, limit=limit, max_bytes=max_bytes)
        response = bench.answer(bench.leader("t"), request)
        found = [len(result.records or b"") // size for result in response.responses[0].partitions]
        assert found == counts

    def test_before_v3_the_last_batch_is_cut(self) -> None:
        bench = self.filled()
        assert len(bench.fetch(0, 2, limit=10).records) == 10
        assert len(bench.fetch(0, 3, limit=10).records) > 10


class TestTransactionsInFetch:
    def test_isolation(self) -> None:
        bench = Bench()
        log = bench.topic.partitions[0].log
        bench.produce(batch(b"aborted", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
        bench.produce(batch(b"open", producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True))
        assert bench.values(bench.fetch(committed=True).records) == []
        assert bench.values(bench.fetch().records) == [b"aborted", b"open"]
        for kind, producer in [("abort", 1), ("commit", 2)]:
            log.append_marker(
                kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, leader_epoch=0, now_ms=WALL_MS
            )
            bench.topic.partitions[0].replicate(0.0)
        found = bench.fetch(committed=True)
        assert found.last_stable_offset == 4
        listed = [(aborted.producer_id, aborted.first_offset) for aborted in found.aborted_transactions]
        assert listed == [(1, 0)]
        assert [part.is_control for part in decode_batches(found.records)] == [False, False, True, True]
        assert bench.fetch().aborted_transactions is None


class TestListOffsets:
    def ask(self, bench: Bench, timestamp: int, version: int = 11, *, committed: bool = False, epoch: int = -1) -> Any:
        asked = ListOffsetsRequest.Topic.Partition(
            partition_index=0, timestamp=timestamp, current_leader_epoch=epoch,
            max_num_offsets=9 if version == 0 else 1,
        )  # fmt: skip
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsRequest.Topic(name="t", partitions=[asked])],
        )
        return bench.answer(bench.leader("t"), request, version).topics[0].partitions[0]

    def filled(self) -> Bench:
        bench = Bench()
        for n in range(4):
            bench.produce(batch(b"v", time_ms=WALL_MS + n * 10))
        bench.topic.partitions[0].log.delete_before(1)
        return bench

    @pytest.mark.parametrize("version", range(1, 12))
    @pytest.mark.parametrize(
        ("timestamp", "offset", "found_ms"),
        [(-1, 4, -1), (-2, 1, -1), (-3, 3, WALL_MS + 30), (-4, 1, -1), (-5, -1, -1), (WALL_MS, 1, WALL_MS + 10),
         (WALL_MS + 11, 2, WALL_MS + 20), (WALL_MS + 31, -1, -1)],
    )  # fmt: skip
    def test_places(self, version: int, timestamp: int, offset: int, found_ms: int) -> None:
        found = self.ask(self.filled(), timestamp, version)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, found_ms)

    @pytest.mark.parametrize(("timestamp", "offsets"), [(-1, [4, 1]), (-2, [1])])
    def test_v0_lists_segments(self, timestamp: int, offsets: list[int]) -> None:
        assert self.ask(self.filled(), timestamp, 0).old_style_offsets == offsets

    def test_committed(self) -> None:
        bench = self.filled()
        bench.produce(batch(b"open", producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True))
        assert self.ask(bench, -1).offset == 5
        assert self.ask(bench, -1, committed=True).offset == 4

    @pytest.mark.parametrize(
        ("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (1, 0), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
    )
    def test_epochs(self, epoch: int, error: int) -> None:
        bench = self.filled()
        bench.topic.partitions[0].move_leader(bench.follower, 0.0)
        found = self.ask(bench, -1, epoch=epoch)
        assert (found.error_code, found.leader_epoch) == (error, 1 if not error else -1)


class TestMetadata:
    def ask(self, bench: VirtualCluster, topics: list[str] | None, version: int = 13, **more: Any) -> Any:
        named = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
        return bench.answer(1, MetadataRequest(topics=named, **more), version)

    @pytest.mark.parametrize("version", MetadataRequest.VERSIONS)
    def test_every_version(self, version: int) -> None:
        bench = Bench(partitions=2)
        response = self.ask(bench, ["t"], version)
        addresses = [(b.node_id, b.host, b.port) for b in response.brokers]
        assert addresses == [(n, f"broker-{n}", 9092) for n in (1, 2, 3)]
        (topic,) = response.topics
        assert (topic.error_code, topic.name) == (0, "t")
        assert [p.leader_id for p in topic.partitions] == [p.leader for p in bench.topic.partitions]
        assert sorted(topic.partitions[0].isr_nodes) == [1, 2, 3]
        assert topic.topic_id == (bench.topic.id if version >= 10 else UUID(int=0))
        assert response.controller_id == (1 if version >= 1 else -1)

    @pytest.mark.parametrize(
        ("topics", "version", "count"), [([], 0, 1), ([], 1, 0), (None, 1, 1), (None, 13, 1), ([], 13, 0)]
    )
    def test_all_or_none(self, topics: list[str] | None, version: int, count: int) -> None:
        assert len(self.ask(Bench(), topics, version).topics) == count

    def test_by_id(self) -> None:
        bench = Bench()
        asked = [MetadataRequest.Topic(name=None, topic_id=id) for id in (bench.topic.id, NOBODY)]
        found = bench.answer(1, MetadataRequest(topics=asked)).topics
        assert [(t.name, t.error_code) for t in found] == [("t", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]

    @pytest.mark.parametrize(
        ("version", "client_allows", "cluster_allows", "made"),
        [(3, True, True, True), (4, True, True, True), (4, False, True, False), (13, True, False, False)],
    )
    def test_auto_creation(self, version: int, client_allows: bool, cluster_allows: bool, made: bool) -> None:
        bench = VirtualCluster(auto_create_topics=cluster_allows, default_partitions=2)
        (topic,) = self.ask(bench, ["new"], version, allow_auto_topic_creation=client_allows).topics
        assert topic.error_code == (0 if made else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert len(topic.partitions) == (2 if made else 0)
        assert ("new" in bench.state.topics) is made

    def test_a_name_that_cannot_be(self) -> None:
        (topic,) = self.ask(VirtualCluster(), ["no/slash"]).topics
        assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_brokers_that_are_down(self) -> None:
        bench = Bench()
        bench.state.create_topic("single", 1, assignments={0: [2]})
        bench.state.stop_node(2, 0.0)
        response = self.ask(bench, ["t", "single"])
        assert [broker.node_id for broker in response.brokers] == [1, 3]
        replicated, single = (topic.partitions[0] for topic in response.topics)
        assert (replicated.error_code, replicated.offline_replicas) == (0, [2])
        assert (single.error_code, single.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)

    def test_operations(self) -> None:
        response = self.ask(Bench(), ["t"], 8, include_topic_authorized_operations=True)
        assert response.topics[0].topic_authorized_operations == 3576
        assert response.cluster_authorized_operations == -(2**31)


class TestLeadership:
    def test_stop_restart_and_move(self) -> None:
        bench = Bench()
        partition = bench.topic.partitions[0]
        first, second, third = partition.replicas
        assert (partition.leader, partition.leader_epoch) == (first, 0)
        bench.state.stop_node(first, 0.0)
        assert (partition.leader, partition.leader_epoch, partition.isr) == (second, 1, [second, third])
        bench.state.start_node(first, 0.0)
        assert (partition.leader, partition.leader_epoch, partition.isr) == (second, 1, [second, third, first])
        partition.move_leader(first, 0.0)
        assert (partition.leader, partition.leader_epoch) == (first, 2)

    def test_the_last_in_sync_comes_back_as_leader_with_its_data(self) -> None:
        bench = Bench()
        partition = bench.topic.partitions[0]
        bench.produce(GOOD)
        first, second, third = partition.replicas
        for id in (first, second, third):
            bench.state.stop_node(id, 0.0)
        assert (partition.leader, partition.isr) == (-1, [third])
        bench.state.start_node(first, 0.0)  # it missed nothing here, but the cluster cannot know
        assert partition.leader == -1
        bench.state.start_node(third, 0.0)
        assert (partition.leader, partition.isr) == (third, [third])
        assert bench.values(bench.fetch().records) == [b"v", b"w"]

    def test_an_unclean_election_loses_what_the_heir_did_not_have(self) -> None:
        bench = Bench(configs={"unclean.leader.election.enable": "true"}, replication_ms=1_000)
        partition = bench.topic.partitions[0]
        first, second, third = partition.replicas
        for id in (second, third):
            bench.state.stop_node(id, 0.0)
        bench.state.start_node(second, 0.0)
        bench.state.stop_node(first, 0.0)
        assert partition.leader == second

    def test_a_broker_that_is_not_in_sync_cannot_be_leader(self) -> None:
        bench = Bench()
        bench.state.stop_node(bench.follower, 0.0)
        down = next(id for id, node in bench.state.nodes.items() if not node.is_up)
        with pytest.raises(BrokerError):
            bench.topic.partitions[0].move_leader(down, 0.0)


class TestTopics:
    def create(self, bench: VirtualCluster, version: int = 7, *, validate_only: bool = False, **topic: Any) -> Any:
        asked = {"name": "new", "num_partitions": 2, "replication_factor": 3, **topic}
        request = CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(**asked)], validate_only=validate_only)
        return bench.answer(1, request, version).topics[0]

    @pytest.mark.parametrize("version", CreateTopicsRequest.VERSIONS)
    def test_every_version(self, version: int) -> None:
        bench = VirtualCluster()
        result = self.create(bench, version)
        assert result.error_code == 0
        assert len(bench.state.topics["new"].partitions) == 2
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (2, 3)
            assert {c.name: c.value for c in result.configs}["retention.ms"] == "604800000"

    @pytest.mark.parametrize(
        ("topic", "error"),
        [
            ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
            ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
            ({"num_partitions": 1_000_000}, ErrorCode.POLICY_VIOLATION),
            ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ({"configs": [("no.such", "1")]}, ErrorCode.INVALID_CONFIG),
            ({"configs": [("retention.ms", "soon")]}, ErrorCode.INVALID_CONFIG),
            ({"configs": [("cleanup.policy", "burn")]}, ErrorCode.INVALID_CONFIG),
            ({"configs": [("retention.ms", "5")]}, ErrorCode.NONE),
            ({"assignments": [(0, [1])]}, ErrorCode.INVALID_REQUEST),
            ({"assignments": [(1, [1])], "num_partitions": -1, "replication_factor": -1},
             ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ({"assignments": [(0, [9])], "num_partitions": -1, "replication_factor": -1},
             ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ({"assignments": [(0, [1]), (1, [1, 2])], "num_partitions": -1, "replication_factor": -1},
             ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ({"assignments": [(0, [3, 1]), (1, [2, 3])], "num_partitions": -1, "replication_factor": -1},
             ErrorCode.NONE),
        ],
    )  # fmt: skip
    def test_creations(self, topic: dict[str, Any], error: ErrorCode) -> None:
        bench = Bench()
        if "configs" in topic:
            configs = [CreateTopicsRequest.Topic.Config(name=name, value=value) for name, value in topic["configs"]]
            topic = {**topic, "configs": configs}
        if "assignments" in topic:
            assignments = [
                CreateTopicsRequest.Topic.Assignment(partition_index=index, broker_ids=ids)
                for index, ids in topic["assignments"]
            ]
            topic = {**topic, "assignments": assignments}
        assert self.create(bench, **topic).error_code == error

    def test_only_validated(self) -> None:
        bench = VirtualCluster()
        assert self.create(bench, validate_only=True).error_code == 0
        assert not bench.state.topics

    def test_named_twice(self) -> None:
        topic = CreateTopicsRequest.Topic(name="x", num_partitions=1, replication_factor=1)
        bench = VirtualCluster()
        results = bench.answer(1, CreateTopicsRequest(topics=[topic, topic])).topics
        assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST]
        assert not bench.state.topics

    @pytest.mark.parametrize("version", DeleteTopicsRequest.VERSIONS)
    def test_deletion(self, version: int) -> None:
        bench = Bench()
        bench.produce(GOOD)
        if version >= 6:
            topics = [DeleteTopicsRequest.Topic(name=name) for name in ("t", "nowhere")]
            topics += [DeleteTopicsRequest.Topic(topic_id=NOBODY)]
            request = DeleteTopicsRequest(topics=topics, timeout_ms=1)
        else:
            request = DeleteTopicsRequest(topic_names=["t", "nowhere"], timeout_ms=1)
        codes = [result.error_code for result in bench.answer(1, request, version).responses]
        unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] + [ErrorCode.UNKNOWN_TOPIC_ID] * (version >= 6)
        assert codes == [0, *unknown]
        assert not bench.state.topics
        assert bench.state.storage.used_bytes == 0


class TestSmallApis:
    @pytest.mark.parametrize("version", FindCoordinatorRequest.VERSIONS)
    def test_find_coordinator(self, version: int) -> None:
        bench = VirtualCluster()
        if version >= 4:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b", "c"])
            found = bench.answer(1, request, version).coordinators
            assert [(c.key, c.node_id, c.error_code) for c in found] == [
                (key, bench.coordinator(key), 0) for key in ("a", "b", "c")
            ]
        else:
            one = bench.answer(1, FindCoordinatorRequest(key="a"), version)
            assert (one.node_id, one.host, one.error_code) == (
                bench.coordinator("a"), f"broker-{bench.coordinator('a')}", 0,
            )  # fmt: skip

    def test_coordinators_are_spread_and_survive_a_stop(self) -> None:
        bench = VirtualCluster()
        keys = [f"group-{n}" for n in range(50)]
        before = {key: bench.coordinator(key) for key in keys}
        assert set(before.values()) == {1, 2, 3}
        bench.state.stop_node(2, 0.0)
        after = {key: bench.coordinator(key) for key in keys}
        assert all(after[key] == before[key] for key in keys if before[key] != 2)
        assert set(after.values()) == {1, 3}

    def test_no_share_coordinator(self) -> None:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=["a"])
        (found,) = VirtualCluster().answer(1, request).coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)

    @pytest.mark.parametrize("version", InitProducerIdRequest.VERSIONS)
    def test_init_producer_id(self, version: int) -> None:
        bench = VirtualCluster()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        found = [bench.answer(node, request, version) for node in (1, 2, 2)]
        assert [(f.error_code, f.producer_id, f.producer_epoch) for f in found] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]

    def test_a_transactional_id_keeps_its_producer_id_and_fences(self) -> None:
        bench = VirtualCluster()
        node = bench.coordinator("tx")

        def init(producer_id: int = -1, epoch: int = -1, timeout_ms: int = 1_000) -> tuple[int, int, int]:
            request = InitProducerIdRequest(
                transactional_id="tx", transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
            )
            found = bench.answer(node, request)
            return found.error_code, found.producer_id, found.producer_epoch

        assert init() == (0, 0, 0)
        assert init() == (0, 0, 1)
        assert init(0, 1) == (0, 0, 2)
        assert init(0, 1) == (ErrorCode.PRODUCER_FENCED, -1, -1)
        assert init(timeout_ms=0) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
        other = next(id for id in bench.brokers if id != node)
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1_000)
        assert bench.answer(other, request).error_code == ErrorCode.NOT_COORDINATOR

    @pytest.mark.parametrize("version", DescribeClusterRequest.VERSIONS)
    def test_describe_cluster(self, version: int) -> None:
        bench = VirtualCluster()
        bench.state.stop_node(1, 0.0)
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=True, include_fenced_brokers=version >= 2
        )
        found = bench.answer(2, request, version)
        assert (found.cluster_id, found.controller_id) == (bench.options.cluster_id, 2)
        assert [b.broker_id for b in found.brokers] == ([1, 2, 3] if version >= 2 else [2, 3])
        assert found.cluster_authorized_operations > 0


EXAMPLES = {
    ApiKey.PRODUCE: Bench().produce_request(GOOD),
    ApiKey.FETCH: Bench().fetch_request(),
}


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.name)
def test_every_api_can_refuse_in_every_version(key: ApiKey) -> None:
    """The form of a refusal must be encodable in each version, for a fault may ask for it."""
    handler = HANDLERS[key]
    request_class = handler.request
    for version in request_class.VERSIONS:
        request = EXAMPLES.get(key) or request_class(**required(request_class))
        decoded = request_class.decode(request.encode(version), version)
        response = handler.refuse(decoded, ErrorCode.UNKNOWN_SERVER_ERROR, version)
        assert type(response).decode(response.encode(version), version) is not None


def required(cls: Any) -> dict[str, Any]:
    """Something for every field that has no default."""
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        if repr(field.default) == "REQUIRED":
            values[field.name] = {"string": "x", "bytes": b"", "uuid": NOBODY}.get(
                getattr(field.type, "name", ""), [] if type(field.type).__name__ == "Array" else 0
            )
    return values

