"""Produce in every version: codecs, invalid records, idempotence, replication."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import Compression, decode_batches
from tests.broker.bench import BAD_RECORDS, CODECS, GOOD, NOBODY, Bench, batch


class TestProduceAndFetch:
    @pytest.mark.parametrize(
        ("version", "codec"),
        [(v, codec) for v in ProduceRequest.VERSIONS for codec in CODECS if v >= 7 or codec is not Compression.ZSTD],
    )
    def test_every_version_and_codec_is_stored(self, version: int, codec: Compression) -> None:
        bench = Bench()
        magic = 2 if version >= 3 else version // 2
        results = [bench.produce(batch(b"one", b"two", magic=magic, compression=codec), version) for _ in range(2)]
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
        if codec is Compression.ZSTD and version < 4:
            assert found.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            return
        assert (found.error_code, found.high_watermark) == (0, 3)
        assert next(decode_batches(found.records)).magic == (2 if version >= 4 else version // 2)
        assert bench.values(found.records) == [b"two", b"three"]
        offsets = [record.offset for part in decode_batches(found.records) for record in part.records()]
        assert offsets == [1, 2]

    @pytest.mark.parametrize(("version", "error"), [(9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (10, ErrorCode.NONE)])
    def test_old_clients_get_an_error_for_a_zstd_topic(self, version: int, error: ErrorCode) -> None:
        bench = Bench(configs={"compression.type": "zstd"})
        bench.produce(batch(b"v"))
        assert bench.fetch(0, version).error_code == error

    @pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
    @pytest.mark.parametrize("codec", CODECS)
    def test_the_topic_config_selects_the_codec(self, wanted: str, codec: Compression) -> None:
        bench = Bench(configs={"compression.type": wanted})
        fields: dict[str, Any] = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 0}
        bench.produce(batch(b"one", b"two", compression=codec, **fields))
        (stored,) = decode_batches(bench.fetch().records)
        assert stored.compression.name.lower() == ("none" if wanted == "uncompressed" else wanted)
        assert (stored.producer_id, stored.producer_epoch, stored.base_sequence, stored.count) == (5, 1, 0, 2)
        assert bench.values(stored.raw) == [b"one", b"two"]

    def test_magic_1_needs_version_2(self) -> None:
        bench = Bench()
        assert bench.produce(batch(b"v", magic=1), 1).error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert bench.produce(batch(b"v", magic=0), 2).error_code == ErrorCode.NONE

    def test_a_message_set_becomes_one_batch(self) -> None:
        bench = Bench()
        assert bench.produce(batch(b"a", b"b", b"c", magic=1), 2).error_code == 0
        assert len(list(bench.topic.partitions[0].log)) == 1

    @pytest.mark.parametrize("acks", [0, 1, -1])
    def test_every_acks_appends_and_only_acks_0_has_no_response(self, acks: int) -> None:
        bench = Bench()
        sent = bench.send(bench.leader("t"), bench.produce_request(batch(b"v"), acks=acks))
        assert bench.topic.partitions[0].log.end_offset == 1
        assert [type(outcome).__name__ for outcome in sent.completions] == ["NoReply" if acks == 0 else "Reply"]

    def test_an_error_with_acks_0_closes_the_connection(self) -> None:
        bench = Bench()
        sent = bench.send(bench.follower, bench.produce_request(batch(b"v"), acks=0))
        assert [type(outcome).__name__ for outcome in sent.completions] == ["CloseConnection"]


@pytest.mark.parametrize(
    ("records", "version", "configs", "error"),
    [case[1:] for case in BAD_RECORDS],
    ids=[case[0] for case in BAD_RECORDS],
)
def test_invalid_records_are_rejected(
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
    def test_invalid_requests_are_rejected(self, more: dict[str, Any], version: int, error: ErrorCode) -> None:
        assert Bench().produce(GOOD, version, **more).error_code == error

    def test_a_missing_partition_is_an_error(self) -> None:
        bench = Bench()
        response = bench.request(bench.leader("t"), bench.produce_request(GOOD, partition=1))
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("version", [9, 10, 13])
    def test_a_broker_that_does_not_lead_names_the_leader(self, version: int) -> None:
        bench = Bench()
        leader = bench.leader("t")
        response = bench.request(bench.follower, bench.produce_request(GOOD), version)
        result = response.responses[0].partition_responses[0]
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        hint = (result.current_leader.leader_id, result.current_leader.leader_epoch)
        assert hint == ((leader, 0) if version >= 10 else (-1, -1))
        named = [(node.node_id, node.host) for node in response.node_endpoints]
        assert named == ([(leader, f"broker-{leader}")] if version >= 10 else [])

    def test_too_few_in_sync_replicas_reject_acks_all(self) -> None:
        bench = Bench(configs={"min.insync.replicas": "3"})
        bench.state.stop_node(bench.follower, 0.0)
        assert bench.produce(GOOD).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert bench.produce(GOOD, acks=1).error_code == ErrorCode.NONE

    @pytest.mark.parametrize(("version", "shown"), [("3.6", 1), ("3.7", 0), (None, 0)])
    def test_consumers_see_nothing_new_while_too_few_replicas_are_in_sync(
        self, version: str | None, shown: int
    ) -> None:
        """The high watermark stands still since 3.7 (KAFKA-15583)."""
        bench = Bench(configs={"min.insync.replicas": "3"}, version=version)
        bench.state.stop_node(bench.follower, 0.0)
        bench.produce(batch(b"v"), 9, acks=1)
        fetched = bench.fetch(version=11)
        assert (fetched.high_watermark, len(bench.values(fetched.records))) == (shown, shown)
        bench.state.start_node(next(id for id, node in bench.state.nodes.items() if not node.is_up), 0.0)
        assert bench.values(bench.fetch(version=11).records) == [b"v"]

    @pytest.mark.parametrize(("version", "error"), [("3.6", ErrorCode.NOT_ENOUGH_REPLICAS), ("3.7", 0), (None, 0)])
    def test_no_more_replicas_must_be_in_sync_than_there_are(self, version: str | None, error: int) -> None:
        bench = Bench(configs={"min.insync.replicas": "4"}, version=version)
        assert bench.produce(GOOD, 9).error_code == error

    def test_a_batch_that_another_codec_makes_too_large_is_refused(self) -> None:
        bench = Bench(configs={"max.message.bytes": "1000", "compression.type": "uncompressed"})
        packed = batch(b"v" * 5_000, compression=Compression.GZIP)
        assert len(packed) < 1_000
        assert bench.produce(packed).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert bench.topic.partitions[0].log.end_offset == 0

    def test_a_full_storage_is_an_error(self) -> None:
        assert Bench(storage_bytes_max=10).produce(GOOD).error_code == ErrorCode.KAFKA_STORAGE_ERROR


class TestIdempotence:
    def batch(self, sequence: int, epoch: int = 0) -> bytes:
        return batch(b"v", producer_id=5, producer_epoch=epoch, base_sequence=sequence)

    def test_a_retry_returns_the_same_offset(self) -> None:
        bench = Bench()
        for _ in range(2):
            result = bench.produce(self.batch(0))
            assert (result.error_code, result.base_offset) == (0, 0)
        assert bench.topic.partitions[0].log.end_offset == 1

    def test_sequence_gaps_and_old_epochs_are_rejected(self) -> None:
        bench = Bench()
        codes = [bench.produce(self.batch(*at)).error_code for at in [(0, 1), (2, 1), (1, 1), (2, 0), (0, 2)]]
        assert codes == [0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, ErrorCode.INVALID_PRODUCER_EPOCH, 0]

    def test_a_new_leader_keeps_the_producer_state(self) -> None:
        bench = Bench()
        bench.produce(self.batch(0))
        bench.state.stop_node(bench.leader("t"), 0.0)
        result = bench.produce(self.batch(0))
        assert (result.error_code, result.base_offset) == (0, 0)


class TestReplication:
    def test_acks_all_waits_for_the_followers_and_acks_1_does_not(self) -> None:
        bench = Bench(replication_ms=100)
        leader = bench.leader("t")
        waiting = bench.send(leader, bench.produce_request(GOOD))
        assert bench.produce(GOOD, acks=1).base_offset == 2
        assert waiting.is_pending
        assert bench.fetch().high_watermark == 0
        bench.advance(0.2)
        assert waiting.response.responses[0].partition_responses[0].base_offset == 0
        assert bench.fetch().high_watermark == 4

    def test_a_stopped_leader_loses_what_was_not_replicated_and_the_request_fails(self) -> None:
        bench = Bench(replication_ms=100)
        bench.produce(GOOD, acks=1)
        bench.advance(0.2)
        old = bench.leader("t")
        waiting = bench.send(old, bench.produce_request(GOOD))
        assert bench.produce(GOOD, acks=1).base_offset == 4
        bench.state.stop_node(old, bench.now)
        result = waiting.response.responses[0].partition_responses[0]
        assert (result.error_code, result.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (bench.leader("t"), 1)
        assert [node.node_id for node in waiting.response.node_endpoints] == [bench.leader("t")]
        assert bench.topic.partitions[0].log.end_offset == 2
        bench.advance(1)  # the replication of the old leader has no effect now
        assert bench.fetch(2).high_watermark == 2

    def test_acks_all_times_out(self) -> None:
        bench = Bench(replication_ms=5_000)
        waiting = bench.send(bench.leader("t"), bench.produce_request(GOOD))
        bench.advance(1.1)
        assert waiting.response.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
