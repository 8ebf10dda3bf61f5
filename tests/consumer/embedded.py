"""Filling the logs of an embedded cluster directly, so that tests of reading need no producer."""

from __future__ import annotations

from collections.abc import Sequence

from kwire import Consumer
from kwire.broker import Cluster
from kwire.broker.cluster_state import ClusterState
from kwire.consumer import ConsumerRecord
from kwire.records import Compression, decode_batches, encode_batch

START_MS = 1_700_000_000_000


def fill(
    cluster: Cluster, topic: str, partition: int, numbers: Sequence[int], *, batch_size: int = 100, padding: int = 0
) -> None:
    """Append records whose values are these numbers, whose keys are their partition, one millisecond apart."""
    for first in range(0, len(numbers), batch_size):
        rows = [
            (START_MS + number, b"%d" % partition, b"%d" % number + b"." * padding, (("n", b"%d" % number),))
            for number in numbers[first : first + batch_size]
        ]
        append(cluster, topic, partition, encode_batch(rows, compression=Compression.NONE))


def append(cluster: Cluster, topic: str, partition: int, data: bytes) -> None:
    """Append encoded batches as they are, as the leader would."""

    def act(state: ClusterState, now: float) -> None:
        state.partition(topic, partition).append(
            list(decode_batches(data)), all_replicas=True, now=now, wall_ms=START_MS
        )

    cluster.call(act)


def transaction(cluster: Cluster, topic: str, partition: int, producer_id: int, sequence: int, *values: bytes) -> int:
    """Append a batch of an open transaction; return the producer's next sequence."""
    rows = [(START_MS, None, value, ()) for value in values]
    data = encode_batch(rows, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    append(cluster, topic, partition, data)
    return sequence + len(values)


def end_transaction(cluster: Cluster, topic: str, partition: int, producer_id: int, kind: str) -> None:
    def act(state: ClusterState, now: float) -> None:
        found = state.partition(topic, partition)
        found.log.append_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            leader_epoch=found.leader_epoch,
            now_ms=START_MS,
        )
        found.replicate(now)

    cluster.call(act)


def number_of(record: ConsumerRecord) -> int:
    assert record.value is not None
    return int(record.value.rstrip(b"."))


def read(consumer: Consumer, count: int, *, max_records: int = 500) -> list[ConsumerRecord]:
    """Poll until `count` records came, or none for ten seconds."""
    records: list[ConsumerRecord] = []
    while len(records) < count:
        got = consumer.poll(min(max_records, count - len(records)), timeout=10.0)
        if not got:
            break
        records += got
    return records


def numbers(records: Sequence[ConsumerRecord]) -> dict[int, list[int]]:
    """The numbers read, by partition, in the order of reading."""
    found: dict[int, list[int]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(number_of(record))
    return found
