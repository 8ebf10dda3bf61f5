"""Rules P01 to P14: producers."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any

from kwire.lint.contents import batches, fetches, produced
from kwire.lint.histogram import Histogram
from kwire.lint.rule import Level, PerKey, Rule, Window, rule, thresholds
from kwire.lint.world import Seen
from kwire.protocol import ApiKey
from kwire.records import NO_PRODUCER_ID, Batch, Compression

_PRODUCE = (ApiKey.PRODUCE,)
_NOT_LEADER = ("NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_FOR_PARTITION")
_SAMPLE_BYTES = 64 * 1024


def data_batches(seen: Seen) -> list[tuple[str, int, Batch]]:
    """Return topic, partition and batch of all that a Produce request has."""
    return [
        (one.topic, one.partition, batch) for one in produced(seen.exchange) for batch in batches(one.struct.records)
    ]


@rule("P01", "acks-0", Level.WARN)
class AcksNone(Rule):
    """Records are sent with acks=0.

    The broker does not answer, so the client never learns that a record was lost: leader moved, record too large, not
    allowed.

    Fix: set acks=all, the default of clients since Kafka 3.0."""

    apis = _PRODUCE

    def see(self, seen: Seen) -> None:
        if seen.request is not None and seen.request.acks == 0:
            self.report(seen.client.key, "sends with acks=0: nobody tells it of lost records", seen)


@rule("P02", "acks-1", Level.INFO)
class AcksLeader(Rule):
    """Records are sent with acks=1.

    A record that only the leader has is lost when the leader fails.

    Fix: set acks=all where records matter."""

    apis = _PRODUCE

    def see(self, seen: Seen) -> None:
        if seen.request is not None and seen.request.acks == 1:
            self.report(seen.client.key, "sends with acks=1: a failing leader loses what it acknowledged", seen)


@rule("P03", "tiny-batches", Level.WARN)
class TinyBatches(Rule):
    """Batches have few records.

    Each batch costs the broker and the network as much as a large one, and small ones hardly compress.

    Fix: raise linger.ms (5 to 20) and batch.size, and do not flush after each record."""

    apis = _PRODUCE
    limits = thresholds(requests=20, records=3)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._totals: PerKey[str, list[int]] = PerKey(lambda: [0, 0, 0])
        self._first: PerKey[str, list[Seen]] = PerKey(list)

    def see(self, seen: Seen) -> None:
        found = data_batches(seen)
        if not found:
            return
        counts, first = self._totals[seen.client.key], self._first[seen.client.key]
        counts[0] += 1
        counts[1] += len(found)
        counts[2] += sum(batch.count for *_, batch in found)
        if len(first) < 3:
            first.append(seen)

    def end(self) -> None:
        for client, (requests, batches_, records) in self._totals.items():
            if requests >= self.limit["requests"] and records / batches_ <= self.limit["records"]:
                for seen in self._first[client]:
                    self.report(client, f"{requests} requests with {records / batches_:.1f} records a batch", seen)


@rule("P04", "no-compression", Level.INFO)
class NoCompression(Rule):
    """Records that would compress well are not compressed.

    The batches cost network and disk on the leader, on each replica and for each reader.

    Fix: set compression.type=zstd or lz4."""

    apis = _PRODUCE
    limits = thresholds(bytes=50_000, saved=0.3)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._bytes: PerKey[str, int] = PerKey(int)
        self._told: set[str] = set()

    def see(self, seen: Seen) -> None:
        if seen.client.key in self._told:
            return
        for one in produced(seen.exchange):
            for batch in batches(one.struct.records):
                if batch.compression is not Compression.NONE:
                    continue
                self._bytes[seen.client.key] += batch.size_bytes
                if self._bytes[seen.client.key] > self.limit["bytes"]:
                    sample = bytes(memoryview(one.struct.records)[:_SAMPLE_BYTES])
                    saved = 1 - len(zlib.compress(sample, 1)) / len(sample)
                    self._told.add(seen.client.key)
                    if saved > self.limit["saved"]:
                        self.report(seen.client.key, f"compression would save {saved:.0%} of its bytes", seen)
                    return


@rule("P05", "not-idempotent", Level.INFO)
class NotIdempotent(Rule):
    """Batches have no producer id.

    A request that is sent again after a lost answer is stored twice.

    Fix: set enable.idempotence=true, the default of Java's client since 3.0."""

    apis = _PRODUCE

    def see(self, seen: Seen) -> None:
        if any(batch.producer_id == NO_PRODUCER_ID for *_, batch in data_batches(seen)):
            self.report(seen.client.key, "sends without a producer id: retries may duplicate records", seen)


@rule("P06", "message-too-large", Level.WARN)
class MessageTooLarge(Rule):
    """A broker refused a batch because of its size.

    The record is lost, or split again and again. The limits are message.max.bytes of the broker, and max.message.bytes
    of the topic.

    Fix: lower batch.size and max.request.size, send large data elsewhere, or raise max.message.bytes."""

    apis = _PRODUCE

    def see(self, seen: Seen) -> None:
        for name in ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"):
            if seen.errors[name]:
                size = max((batch.size_bytes for *_, batch in data_batches(seen)), default=0)
                self.report(seen.client.key, f"{name} for a batch of {size:,} bytes", seen)


@rule("P07", "not-leader", Level.WARN)
class NotLeader(Rule):
    """A client keeps asking brokers that are not the leader.

    A few such errors are normal when leaders move. Many in a row: leaders flap, or the client does not refresh its
    metadata.

    Fix: look for brokers that restart or leave the ISR; then at the client's metadata refresh."""

    apis = (ApiKey.PRODUCE, ApiKey.FETCH)
    limits = thresholds(errors=3, seconds=10)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._windows: PerKey[str, Window] = PerKey(Window)

    def see(self, seen: Seen) -> None:
        if any(seen.errors[name] for name in _NOT_LEADER):
            count, seconds = self.limit["errors"], self.limit["seconds"]
            if self._windows[seen.client.key].add(seen.at, count, seconds):
                self.report(seen.client.key, f"NOT_LEADER_OR_FOLLOWER {count:g} times in {seconds:g} s", seen)


@rule("P08", "hot-partition", Level.WARN)
class HotPartition(Rule):
    """Nearly all records of a topic go to one partition.

    One broker and one consumer do all the work; more partitions do not help.

    Fix: choose keys that spread, or send without a key."""

    apis = _PRODUCE
    limits = thresholds(share=0.8, records=1_000, partitions=3, batches=20)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._records: PerKey[tuple[str, str], Counter[int]] = PerKey(Counter)
        self._last: PerKey[tuple[str, str], list[Seen]] = PerKey(list)
        # Records without a key stay with one partition until a batch is full.
        self._batches: PerKey[tuple[str, str], int] = PerKey(int)

    def see(self, seen: Seen) -> None:
        for topic, partition, batch in data_batches(seen):
            self._batches[seen.client.key, topic] += 1
            self._records[seen.client.key, topic][partition] += batch.count
            self._last[seen.client.key, topic][:] = [seen]

    def end(self) -> None:
        for (client, topic), records in self._records.items():
            (partition, most), *_ = records.most_common(1)
            total = records.total()
            partitions = max(self.world.partitions.get(topic, 0), len(records))
            is_large = total >= self.limit["records"] and partitions >= self.limit["partitions"]
            is_large = is_large and self._batches[client, topic] >= self.limit["batches"]
            if is_large and most > self.limit["share"] * total:
                text = f"{most / total:.0%} of {total:,} records of {topic} go to partition {partition} of {partitions}"
                self.report(client, text, self._last[client, topic][0])


@rule("P09", "slow-produce", Level.WARN)
class SlowProduce(Rule):
    """Produce requests take long.

    With acks=all the slowest in-sync replica decides; a full request queue or a slow disk shows here first.

    Fix: look at the broker's request handlers, disks and replicas, and at the size of the requests."""

    apis = _PRODUCE
    limits = thresholds(p95_ms=1_000, requests=20)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._latency: PerKey[tuple[str, str], Histogram] = PerKey(Histogram)
        self._slow: PerKey[tuple[str, str], list[Seen]] = PerKey(list)

    def see(self, seen: Seen) -> None:
        if seen.latency_ms is None:
            return
        key = seen.client.key, seen.broker
        self._latency[key].add(seen.latency_ms)
        if seen.latency_ms > self.limit["p95_ms"] and len(self._slow[key]) < 3:
            self._slow[key].append(seen)

    def end(self) -> None:
        for key, latency in self._latency.items():
            p95 = latency.quantile(0.95)
            if latency.n >= self.limit["requests"] and p95 > self.limit["p95_ms"]:
                for seen in self._slow[key]:
                    self.report(key[0], f"p95 of {latency.n} Produce to {key[1]} is {p95 / 1000:.1f} s", seen)


@rule("P10", "producer-per-record", Level.WARN)
class ProducerPerRecord(Rule):
    """A program makes a producer for each record, or for a few.

    Each costs connections, a producer id and metadata; the broker remembers each producer id for a day. Only idempotent
    and transactional producers are counted, by the ids that they ask for; of others N05 shows the connections.

    Fix: make one producer, and share it: producers are thread-safe."""

    apis = (ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID)
    limits = thresholds(producers=8, share=0.5)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._totals: PerKey[str, list[int]] = PerKey(lambda: [0, 0])
        self._first: PerKey[str, list[Seen]] = PerKey(list)

    def see(self, seen: Seen) -> None:
        is_new = seen.key == ApiKey.INIT_PRODUCER_ID and not seen.errors
        if seen.key == ApiKey.INIT_PRODUCER_ID and not is_new:
            return
        self._totals[seen.client.program][is_new] += 1
        if is_new and len(self._first[seen.client.program]) < 3:
            self._first[seen.client.program].append(seen)

    def end(self) -> None:
        for program, (requests, producers) in self._totals.items():
            if producers >= self.limit["producers"] and producers >= self.limit["share"] * requests:
                for seen in self._first[program]:
                    self.report(program, f"{producers} producers for {requests} Produce requests", seen)


@rule("P11", "stale-leader", Level.ERROR)
class StaleLeader(Rule):
    """A client sends to a broker that its own metadata does not name as the leader.

    The client ignores what it was told, or a proxy sends its requests elsewhere.

    Fix: upgrade the client; look for a load balancer between it and the brokers."""

    apis = (ApiKey.PRODUCE, ApiKey.FETCH)
    limits = thresholds(requests=3, seconds=0.5)

    def see(self, seen: Seen) -> None:
        node = self.world.node_at(seen.broker)
        rack: str = getattr(seen.request, "rack_id", "")
        if node is None or seen.request is None or rack:
            return
        parts = produced(seen.exchange) if seen.key == ApiKey.PRODUCE else fetches(seen.exchange)
        for one in parts:
            leader, since = self.world.leaders[seen.client.key, one.topic, one.partition]
            if leader >= 0 and leader != node and seen.at > since + self.limit["seconds"]:
                self.counts[seen.client.key] += 1
                if self.counts[seen.client.key] >= self.limit["requests"]:
                    name = f"{one.topic}-{one.partition}"
                    self.report(
                        seen.client.key, f"asks broker {node} for {name}, whose leader it knows to be {leader}", seen
                    )
                return


@rule("P12", "one-in-flight", Level.INFO)
class OneInFlight(Rule):
    """A producer never has more than one request outstanding on a connection.

    Between an answer and the next request the connection is idle: throughput is bounded by the round trip.

    Fix: do not wait for each record; max.in.flight.requests.per.connection may be 5 with idempotence."""

    apis = _PRODUCE
    limits = thresholds(requests=50, per_second=20)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # connection -> requests, begin, end, whether two were outstanding
        self._state: PerKey[int, list[Any]] = PerKey(lambda: [0, 0.0, 0.0, False, None])

    def see(self, seen: Seen) -> None:
        if seen.latency_ms is None:
            return
        state = self._state[seen.connection.number]
        state[1] = state[1] or seen.at
        state[3] = state[3] or seen.at < state[2]
        state[0], state[2], state[4] = state[0] + 1, max(state[2], seen.ended_at), seen

    def end(self) -> None:
        for requests, begin, end, is_pipelined, seen in self._state.values():
            rate = requests / max(end - begin, 0.001)
            if not is_pipelined and requests >= self.limit["requests"] and rate >= self.limit["per_second"]:
                self.report(seen.client.key, f"{rate:.0f} Produce a second to {seen.broker}, one at a time", seen)


@rule("P13", "retry-storm", Level.WARN)
class RetryStorm(Rule):
    """The same batch is sent again and again.

    Its responses are lost, come too late, or are errors that the client takes for temporary.

    Fix: look at the errors and latencies of these requests; raise request.timeout.ms if the broker is slow."""

    apis = _PRODUCE
    limits = thresholds(sends=3)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._sends: PerKey[tuple[object, ...], int] = PerKey(int)

    def see(self, seen: Seen) -> None:
        for topic, partition, batch in data_batches(seen):
            if batch.producer_id == NO_PRODUCER_ID:
                continue
            key = batch.producer_id, batch.producer_epoch, topic, partition, batch.base_sequence
            self._sends[key] += 1
            if self._sends[key] > self.limit["sends"]:
                text = f"sequence {batch.base_sequence} of {topic}-{partition} was sent {self._sends[key]} times"
                self.report(seen.client.key, text, seen)


@rule("P14", "sequence-gap", Level.ERROR)
class SequenceGap(Rule):
    """A producer skips sequence numbers, or a broker says so (OUT_OF_ORDER_SEQUENCE_NUMBER).

    Batches are missing between two of the same partition: they were lost, or dropped by the client.

    Fix: upgrade the client; look for batches that expired (delivery.timeout.ms) before the gap."""

    apis = _PRODUCE

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._next: PerKey[tuple[object, ...], int] = PerKey(lambda: -1)

    def see(self, seen: Seen) -> None:
        if seen.errors["OUT_OF_ORDER_SEQUENCE_NUMBER"]:
            self.report(seen.client.key, "OUT_OF_ORDER_SEQUENCE_NUMBER: the broker misses batches before this", seen)
        for topic, partition, batch in data_batches(seen):
            if batch.producer_id == NO_PRODUCER_ID or batch.base_sequence < 0:
                continue
            key = batch.producer_id, batch.producer_epoch, topic, partition
            expected = self._next[key]
            if 0 <= expected < batch.base_sequence and not self.world.is_lossy:
                text = f"{topic}-{partition} jumps from sequence {expected} to {batch.base_sequence}"
                self.report(seen.client.key, text, seen)
            self._next[key] = max(expected, batch.base_sequence + batch.count)
