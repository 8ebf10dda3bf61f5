"""A batch that is too large for its topic: split, in its place and order, with its own sequences."""

from __future__ import annotations

import random
from typing import Literal

import pytest

import kwire
from kwire.broker import Cluster, Delay, Disconnect
from kwire.errors import DeliveryError, DisconnectedError, ErrorCode, RecordTooLargeError
from kwire.producer.batch import SEQUENCES, ProducerBatch
from kwire.producer.batch_builder import BatchBuilder
from kwire.producer.futures import ProduceResponse
from kwire.producer.splitting import BatchSizeEstimator, split_batch
from kwire.protocol import ApiKey
from kwire.records import BATCH_OVERHEAD_BYTES, Compression, record_bytes_max
from kwire.records.encoder import lead_bytes, record_bytes
from tests.producer.fakes import Bench, Sent
from tests.producer.test_terms import within

PATIENCE = 30
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
CUT = DisconnectedError("the connection broke")
COUNTED = record_bytes_max(None, b"0000")
RECORD = record_bytes(lead_bytes(0, 0), None, b"0000")


def send(bench: Bench, *numbers: int, **more: object) -> list[ProduceResponse]:
    return [bench.send(b"%04d" % n, partition=0, size_bytes=COUNTED, **more) for n in numbers]  # type: ignore[arg-type]


def room_for(records: int) -> int:
    """Return a batch size that `records` records fill; the last one counts with its upper bound."""
    return BATCH_OVERHEAD_BYTES + (records - 1) * RECORD + COUNTED


def filled(records: int) -> int:
    """Return the exact size of a batch of `records` records."""
    return BATCH_OVERHEAD_BYTES + records * RECORD


def bench_of(records: int) -> Bench:
    """Return a bench with batches of `records` records and an open window."""
    bench = Bench({"t": [(1, 0)]}, batch_bytes=room_for(records))
    bench.send(b"first", partition=0)
    bench.turn()[0].respond(bench.now)
    return bench


def sequences(sent: list[Sent]) -> list[tuple[int, list[int]]]:
    """Return (first sequence, records) of each batch sent to the partition."""
    return [
        (one.batches()["t", 0].base_sequence, [int(value or b"") for value in one.values()["t", 0]]) for one in sent
    ]


def batch_of(*values: bytes) -> ProducerBatch:
    run = BatchBuilder("t", 0, 1_000_000)
    for value in values:
        run.append(0, None, value, (), record_bytes_max(None, value))
    run.close()
    return ProducerBatch(run, 0.0, 100.0)


# -- pieces


@pytest.mark.parametrize(
    ("sizes", "bytes_max", "expected"),
    [
        ([4, 4], filled(1), [1, 1]),
        ([4] * 5, filled(2), [2, 2, 1]),
        ([4] * 5, filled(3) - 1, [2, 2, 1]),
        ([4] * 5, filled(3), [3, 2]),
        ([4, 900, 4, 4], filled(2), [1, 1, 2]),
        ([900, 900], 1, [1, 1]),
        ([4] * 4, filled(4), [3, 1]),
        ([4], filled(1), [1]),
    ],
)
def test_pieces_fit_or_are_of_one_record(sizes: list[int], bytes_max: int, expected: list[int]) -> None:
    whole = batch_of(*(bytes(size) for size in sizes))
    made = split_batch(whole, bytes_max)
    assert [len(piece) for piece in made] == expected
    assert [record for piece in made for record in piece.records] == whole.records
    assert sum(piece.buffered_bytes for piece in made) == whole.buffered_bytes
    assert all(piece.size_bytes <= bytes_max or len(piece) == 1 for piece in made)
    assert all(piece.size_bytes == len(piece.encode(2, Compression.NONE, None)) for piece in made)
    assert all(piece.is_closed and not piece.is_sequenced for piece in made)


def test_pieces_share_the_sequences_of_the_whole_across_their_end() -> None:
    whole = batch_of(*[b"0000"] * 5)
    whole.set_producer_state(7, 3, SEQUENCES - 3)
    made = split_batch(whole, filled(2))
    assert [(piece.producer_id, piece.producer_epoch, piece.sequence) for piece in made] == [
        (7, 3, SEQUENCES - 3), (7, 3, SEQUENCES - 1), (7, 3, 1)
    ]  # fmt: skip


# -- what is learnt


def sized(limit: BatchSizeEstimator, size_bytes: int, compressed_to: float = 1.0) -> ProducerBatch:
    batch = batch_of(b"", b"")
    batch.size_bytes = size_bytes
    batch.encoded = bytes(int(size_bytes * compressed_to))
    return batch


@pytest.mark.parametrize("actual", [50_000, 51_000, 70_000, 99_999, 10_000, 300])
def test_the_limit_is_found_within_a_factor_of_two_and_then_kept(actual: int) -> None:
    limit, refusals = BatchSizeEstimator(100_000), []
    for number in range(200):
        batch = sized(limit, limit.bytes_max)
        if batch.size_bytes > actual:
            limit.refused(batch)
            refusals.append(number)
        else:
            limit.taken(batch)
    assert actual / 2 <= limit.bytes_max <= actual
    assert len(refusals) <= 20
    assert max(refusals) < 60, "each further batch would be refused once more"


def test_records_that_compress_badly_for_a_while_do_not_keep_batches_small() -> None:
    limit = BatchSizeEstimator(100_000)
    limit.refused(sized(limit, 100_000, 0.9))
    assert limit.bytes_max == 50_000
    limit.taken(sized(limit, 1_000, 0.1))
    assert limit.bytes_max == 50_000, "what is not full proves nothing"
    for _ in range(2):
        limit.taken(sized(limit, limit.bytes_max, 0.1))
    assert limit.bytes_max == 100_000


def test_records_that_compress_fill_batches_by_compressed_size() -> None:
    limit = BatchSizeEstimator(100_000, 1_000_000)
    for _ in range(40):
        limit.taken(sized(limit, limit.bytes_max, 0.25))
    assert 380_000 < limit.bytes_max <= 400_000
    assert limit.sent_bytes(200_000) == pytest.approx(50_000, rel=0.05)
    limit.taken(sized(limit, limit.bytes_max, 0.8))
    assert limit.bytes_max == 125_000, "one that compresses badly counts at once"
    for _ in range(80):
        limit.taken(sized(limit, limit.bytes_max, 0.01))
    assert limit.bytes_max == 1_000_000, "a batch must fit into a request, even where its records compress no more"
    limit.taken(sized(limit, 1_000_000, 1.1))
    assert limit.bytes_max == 100_000, "never less than batch_bytes"


def test_uncompressed_batches_are_filled_to_batch_bytes() -> None:
    limit = BatchSizeEstimator(100_000)
    limit.taken(sized(limit, 100_000, 0.9))  # sizes are counted from above
    assert limit.bytes_max == 100_000


def test_a_refusal_overrides_good_compression() -> None:
    limit = BatchSizeEstimator(100_000, 1_000_000)
    for _ in range(80):
        limit.taken(sized(limit, limit.bytes_max, 0.1))
    refused = sized(limit, 1_000_000, 0.12)
    limit.refused(refused)
    assert limit.bytes_max == 500_000
    assert limit.is_exceeded(refused)
    for _ in range(20):
        limit.taken(sized(limit, limit.bytes_max, 0.12))
    assert 500_000 <= limit.bytes_max < 1_000_000
    smaller = sized(limit, 490_000)
    limit.taken(sized(limit, limit.bytes_max, 0.5))
    assert limit.bytes_max <= 200_000
    assert not limit.is_exceeded(smaller), "what no broker refused is not cut"


# -- the sender


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_a_batch_that_is_too_large_is_sent_in_pieces_under_its_sequences(code: ErrorCode) -> None:
    bench = bench_of(4)
    responses = send(bench, *range(4))
    (whole,) = bench.turn()
    assert sequences([whole]) == [(1, [0, 1, 2, 3])]
    whole.respond(bench.now, code)
    assert not any(response.done() for response in responses)
    halves: list[Sent] = []
    while not all(response.done() for response in responses):
        for one in bench.turn():
            one.respond(bench.now, base_offset=100 + len(halves) * 10)
            halves.append(one)
    assert sequences(halves) == [(1, [0]), (2, [1]), (3, [2]), (4, [3])]
    assert [response.result(0).offset for response in responses] == [100, 110, 120, 130]
    assert bench.buffer_pool.used_bytes == 0
    assert bench.identities == 1


def test_batches_in_flight_behind_it_keep_their_place_and_sequence() -> None:
    bench = bench_of(4)
    responses = send(bench, *range(12))
    sent = bench.turn()
    assert sequences(sent) == [(1, [0, 1, 2, 3]), (5, [4, 5, 6, 7]), (9, [8, 9, 10, 11])]
    before = [one.batches()["t", 0].raw.tobytes() for one in sent[1:]]
    sent[0].respond(bench.now, TOO_LARGE)
    assert bench.turn() == [], "no batch overtakes: the batches behind it get their responses first"
    sent[1].respond(bench.now, OUT_OF_ORDER)
    sent[2].fail(bench.now, CUT)
    again: list[Sent] = []
    while not all(response.done() for response in responses):
        for one in bench.turn(0.2):
            one.respond(bench.now)
            again.append(one)
    assert sequences(again) == [(1, [0]), (2, [1]), (3, [2]), (4, [3]), (5, [4, 5, 6, 7]), (9, [8, 9, 10, 11])]
    assert [one.batches()["t", 0].raw.tobytes() for one in again[4:]] == before, "a sequenced batch is immutable"
    assert bench.identities == 1


def test_pieces_go_out_without_a_back_off() -> None:
    bench = bench_of(2)
    send(bench, *range(4))
    first, second = bench.turn()
    first.respond(bench.now, TOO_LARGE)
    second.respond(bench.now, OUT_OF_ORDER)
    assert sequences(bench.turn()) == [(1, [0])]


def test_the_next_batches_are_smaller_and_so_are_those_that_were_filled_before() -> None:
    bench = bench_of(20)
    bench.view.rooms[1] = 1
    send(bench, *range(60))
    (whole,) = bench.turn()
    assert sequences([whole]) == [(1, list(range(20)))]
    send(bench, *range(60, 70))
    whole.respond(bench.now, TOO_LARGE)
    sent: list[Sent] = []
    for _ in range(30):
        for one in bench.turn():
            one.respond(bench.now)
            sent.append(one)
    lengths = [len(values) for _, values in sequences(sent)]
    assert lengths[:3] == [7, 7, 6]
    assert max(lengths) < 20, "none is as large again as the one that was refused"
    assert [value for _, values in sequences(sent) for value in values] == list(range(70))


def test_batches_that_compress_become_larger_and_requests_are_filled_by_compressed_size() -> None:
    counted = record_bytes_max(None, b"0" * 1_000)
    bench = Bench(
        {"t": [(1, 0)] * 4}, batch_bytes=20_000, max_request_bytes=100_000, compression="gzip", max_buffered_bytes=10**8
    )
    bench.send(b"first", partition=0)
    bench.turn()[0].respond(bench.now)
    records: list[int] = []
    partitions: list[int] = []
    for _ in range(30):
        for partition in range(4):
            for _ in range(100):
                bench.send(b"0" * 1_000, partition=partition, size_bytes=counted)
        for _ in range(5):
            for one in bench.turn():
                records += map(len, one.values().values())
                partitions.append(len(one.values()))
                assert sum(len(batch.raw) for batch in one.batches().values()) < 20_000
                one.respond(bench.now)
    record = record_bytes(lead_bytes(0, 64), None, b"0" * 1_000)
    assert records[0] == 1 + (20_000 - BATCH_OVERHEAD_BYTES - counted) // record
    assert max(records) == 1 + (100_000 - BATCH_OVERHEAD_BYTES - counted) // record, "as large before as a request"
    assert partitions[-1] == 4


def test_a_record_that_is_too_large_alone_names_size_setting_and_remedy() -> None:
    bench = bench_of(4)
    (response,) = send(bench, 1)
    (sent,) = bench.turn()
    size = len(sent.batches()["t", 0].raw)
    sent.respond(bench.now, TOO_LARGE)
    error = response.exception(0)
    assert isinstance(error, RecordTooLargeError)
    assert f"of at most {COUNTED} bytes, is alone in a batch of {size} bytes" in error.message
    assert error.remedy == f"raise max.message.bytes of topic t above {size}, compress, or send the record in parts"
    assert error.code == TOO_LARGE


def test_one_record_among_others_fails_alone() -> None:
    bench = bench_of(4)
    responses = send(bench, *range(4))
    while not all(response.done() for response in responses):
        for one in bench.turn(0.1):
            one.respond(bench.now, TOO_LARGE if b"0002" in one.values()["t", 0] else 0)
    assert [type(response.exception(0)) for response in responses] == [
        type(None), type(None), RecordTooLargeError, type(None)
    ]  # fmt: skip
    assert bench.buffer_pool.used_bytes == 0


def test_when_the_first_attempt_may_be_stored_the_pieces_settle_it() -> None:
    """The first attempt was stored, then the limit was lowered: the pieces are refused, not stored twice."""
    bench = bench_of(2)
    responses = send(bench, 0, 1)
    bench.turn()[0].fail(bench.now, CUT)
    bench.turn(0.2)[0].respond(bench.now, TOO_LARGE)
    (piece,) = bench.turn()
    assert sequences([piece]) == [(1, [0])]
    piece.respond(bench.now, OUT_OF_ORDER)
    error = responses[0].exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted


def test_flushes_and_time_limits_follow_the_pieces() -> None:
    bench = bench_of(2)
    responses = send(bench, 0, 1, terms=within(5.0, bench))
    done: list[bool] = []
    bench.sender.flush(lambda: done.append(True), bench.now)
    bench.turn()[0].respond(bench.now, TOO_LARGE)
    bench.turn()[0].respond(bench.now)
    assert (responses[0].done(), responses[1].done(), done) == (True, False, [])
    bench.turn()
    bench.turn(5.0)
    assert isinstance(responses[1].exception(0), DeliveryError)
    assert done == [True]
    bench.sender.closed(CUT)
    assert bench.buffer_pool.used_bytes == 0


def test_without_order_and_without_idempotence_too() -> None:
    for settings in ({"ordered": False}, {"idempotence": False}):
        bench = Bench({"t": [(1, 0)]}, batch_bytes=room_for(4), **settings)
        responses = send(bench, *range(8))
        for _ in range(20):
            for one in bench.turn(0.2):
                one.respond(bench.now, TOO_LARGE if len(one.values()["t", 0]) > 2 else 0)
        assert [response.exception(0) for response in responses] == [None] * 8


# -- the embedded cluster


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("limit", [150, 700, 5_000])
@pytest.mark.parametrize("idempotence", [None, False])
def test_everything_is_stored_once_in_order(
    compression: Literal["none", "lz4"], limit: int, idempotence: bool | None
) -> None:
    chance = random.Random(limit)
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2, configs={"max.message.bytes": str(limit)})
        if idempotence is None:
            cluster.add_fault(Disconnect(applied=True), api=ApiKey.PRODUCE, after=3, times=1)
            cluster.add_fault(Delay(20), api=ApiKey.PRODUCE, after=5, times=3)
        with kwire.Producer(
            cluster.bootstrap, batch_bytes=20_000, compression=compression, retry_backoff_ms=10, idempotence=idempotence
        ) as producer:
            sent: list[tuple[int, bytes]] = [(n % 2, b"%d " % n + chance.randbytes(50)) for n in range(1_000)]
            responses = [producer.send("t", value, partition=partition) for partition, value in sent]
            producer.flush(PATIENCE)
            assert [response.exception(0) for response in responses] == [None] * len(sent)
            metrics = producer.metrics()
            assert 0 < metrics.batches_cut < metrics.batches_acknowledged
        for partition in range(2):
            records = cluster.log("t", partition).records()
            assert [record.value for record in records] == [value for place, value in sent if place == partition]
            offsets = [one.result(0).offset for one in responses[partition::2]]
            assert offsets == list(range(len(records)))
        assert cluster.failures == ()


def test_a_transaction_in_pieces() -> None:
    with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1, configs={"max.message.bytes": "500"})
        with kwire.Producer(cluster.bootstrap, transactional_id="x") as producer:
            for begin in (0, 100):
                with producer.transaction():
                    for n in range(begin, begin + 100):
                        producer.send("t", b"%d" % n + bytes(20))
        values = [int((record.value or b"").rstrip(b"\0")) for record in cluster.log("t").records()]
        assert values == list(range(200))


def test_a_single_record_that_the_topic_does_not_take() -> None:
    with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1, configs={"max.message.bytes": "500"})
        with kwire.Producer(cluster.bootstrap, linger_ms=20) as producer:
            small, large, behind = [producer.send("t", bytes(size), partition=0) for size in (10, 600, 10)]
            assert small.result(PATIENCE).offset == 0
            error = large.exception(PATIENCE)
            assert isinstance(error, RecordTooLargeError)
            assert "500" in error.message, "the broker's error message has the limit"
            assert error.where["topic"] == "t"
            assert behind.result(PATIENCE).offset == 1
