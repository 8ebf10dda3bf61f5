"""Rules C01 to C10: consumers."""

from __future__ import annotations

from typing import Any

from kwire.lint.contents import fetched, fetches
from kwire.lint.rule import Level, PerKey, Rule, Window, rule, thresholds
from kwire.lint.world import Seen
from kwire.protocol import ApiKey

_FETCH = (ApiKey.FETCH,)
_SESSION_ERRORS = ("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH", "FETCH_SESSION_TOPIC_ID_ERROR")
_NO_SESSION = -1
_SESSIONS_SINCE = 7
# A consumer has no node id; followers have one, and rules about consumers are not for them.
_CONSUMER = -1


def is_consumer(seen: Seen) -> bool:
    return (
        seen.request is not None
        and seen.request.replica_id == _CONSUMER
        and seen.request.replica_state.replica_id == _CONSUMER
    )


def is_empty(seen: Seen) -> bool:
    return not any(one.struct.records for one in fetched(seen.exchange))


@rule("C01", "fetch-max-bytes", Level.WARN)
class FetchMaxBytes(Rule):
    """A consumer asks for few bytes of a partition at a time.

    Each round trip brings little, whatever the network could carry.

    Fix: leave max.partition.fetch.bytes at 1 MiB or more."""

    apis = _FETCH
    limits = thresholds(bytes=65_536, responses=50)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._asked: PerKey[tuple[str, str, int], int] = PerKey(int)
        self._responses: PerKey[str, list[int]] = PerKey(lambda: [0, 0])

    def see(self, seen: Seen) -> None:
        if not is_consumer(seen):
            return
        for one in fetches(seen.exchange):
            most = one.struct.partition_max_bytes
            self._asked[seen.client.key, one.topic, one.partition] = most
            if most < self.limit["bytes"]:
                self.report(seen.client.key, f"fetches at most {most:,} bytes of a partition", seen)
        responses = self._responses[seen.client.key]
        for one in fetched(seen.exchange):
            most = self._asked.get((seen.client.key, one.topic, one.partition), 0)
            if one.struct.records and 0 < most < 1_048_576:
                responses[0] += 1
                responses[1] += len(one.struct.records) >= 0.9 * most
        if responses[0] >= self.limit["responses"] and responses[0] == responses[1]:
            self.report(seen.client.key, f"each of {responses[0]} responses was as large as it allows", seen)


@rule("C02", "busy-polling", Level.WARN)
class BusyPolling(Rule):
    """A consumer fetches without waiting for records.

    Most responses are empty; the requests load the broker for nothing.

    Fix: leave fetch.max.wait.ms at 500, and fetch.min.bytes at 1 or more."""

    apis = _FETCH
    limits = thresholds(requests=200, seconds=10, empty=0.5)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._windows: PerKey[tuple[str, bool], Window] = PerKey(Window)

    def see(self, seen: Seen) -> None:
        if not is_consumer(seen) or seen.response is None:
            return
        count, seconds = self.limit["requests"], self.limit["seconds"]
        empty = is_empty(seen)
        is_busy = self._windows[seen.client.key, False].add(seen.at, count, seconds)
        is_idle = empty and self._windows[seen.client.key, True].add(seen.at, count * self.limit["empty"], seconds)
        if is_busy and is_idle:
            text = f"{count:g} Fetch in {seconds:g} s, more than half without records"
            self.report(seen.client.key, f"{text} (max wait {seen.request.max_wait_ms} ms)", seen)


@rule("C03", "offset-out-of-range", Level.ERROR)
class OffsetOutOfRange(Rule):
    """A consumer asks for offsets that the log does not have.

    Retention deleted them before they were read, the topic was created again, or the log was truncated.

    Fix: raise retention.ms, or find out why the consumer is late; auto.offset.reset decides where it goes on."""

    apis = _FETCH
    limits = thresholds(errors=3)

    def see(self, seen: Seen) -> None:
        if seen.errors["OFFSET_OUT_OF_RANGE"]:
            self.counts[seen.client.key] += 1
            if self.counts[seen.client.key] >= self.limit["errors"]:
                text = f"OFFSET_OUT_OF_RANGE {self.counts[seen.client.key]} times"
                self.report(seen.client.key, text, seen)


@rule("C04", "fetch-session-churn", Level.WARN)
class FetchSessionChurn(Rule):
    """Brokers forget the fetch sessions of a consumer.

    More consumers than the broker's cache of sessions holds (1,000) evict each other, and send full requests again.

    Fix: raise max.incremental.fetch.session.cache.slots, or have fewer consumers."""

    apis = _FETCH
    limits = thresholds(errors=3)

    def see(self, seen: Seen) -> None:
        if any(seen.errors[name] for name in _SESSION_ERRORS):
            self.counts[seen.client.key] += 1
            if self.counts[seen.client.key] >= self.limit["errors"]:
                text = f"{', '.join(seen.errors)}: {self.counts[seen.client.key]} sessions were lost"
                self.report(seen.client.key, text, seen)


@rule("C05", "no-fetch-sessions", Level.INFO)
class NoFetchSessions(Rule):
    """A consumer never uses fetch sessions.

    Each request and each response names every partition (KIP-227 has them named only when they change).

    Fix: none needed with few partitions; use a client that has sessions with many."""

    apis = _FETCH
    limits = thresholds(requests=50)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._with_sessions: set[str] = set()

    def see(self, seen: Seen) -> None:
        if not is_consumer(seen):
            return
        label = seen.client.key
        if seen.version >= _SESSIONS_SINCE and (seen.request.session_id or seen.request.session_epoch != _NO_SESSION):
            self._with_sessions.add(label)
        self.counts[label] += 1
        if self.counts[label] > self.limit["requests"] and label not in self._with_sessions:
            self.report(label, f"{self.counts[label]} full Fetch requests, no session", seen)


@rule("C06", "commit-storm", Level.WARN)
class CommitStorm(Rule):
    """A consumer commits very often, mostly after each record.

    Each commit is a write to an internal topic with acks=all; it bounds the throughput.

    Fix: commit after a batch or by time (auto.commit.interval.ms, 5 s)."""

    apis = (ApiKey.OFFSET_COMMIT,)
    limits = thresholds(commits=50, seconds=10)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._windows: PerKey[str, Window] = PerKey(Window)

    def see(self, seen: Seen) -> None:
        count, seconds = self.limit["commits"] + 1, self.limit["seconds"]
        if self._windows[seen.client.key].add(seen.at, count, seconds):
            self.report(seen.client.key, f"more than {count - 1:g} OffsetCommit in {seconds:g} s", seen)


@rule("C07", "consumer-stalled", Level.WARN)
class ConsumerStalled(Rule):
    """A consumer stops fetching for longer than max.poll.interval.ms, and its heartbeats go on.

    The program hangs in the work on a record. Its member is about to be removed from the group.

    Fix: find out what the program waits for; lower max.poll.records, or raise max.poll.interval.ms (--assume)."""

    apis = (ApiKey.FETCH, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._fetched_at: PerKey[str, float] = PerKey(float)

    def see(self, seen: Seen) -> None:
        if seen.key == ApiKey.FETCH:
            self._fetched_at[seen.client.key] = max(seen.ended_at, self._fetched_at[seen.client.key])
            return
        silent = seen.at - self._fetched_at.get(seen.client.key, seen.at)
        if silent * 1000 > self.world.assumed["max.poll.interval.ms"]:
            self.report(seen.client.key, f"has not fetched for {silent:.0f} s, and heartbeats go on", seen)


@rule("C08", "lag-grows", Level.WARN)
class LagGrows(Rule):
    """A consumer falls behind: the end of the log runs ahead of what it reads.

    Records arrive faster than it works on them.

    Fix: add members up to the number of partitions, or make the work on a record faster."""

    apis = _FETCH
    limits = thresholds(seconds=60, records=100)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._offsets: PerKey[tuple[str, str, int], int] = PerKey(lambda: -1)
        # since when the lag only grows, the lag then, the lag now
        self._growth: PerKey[tuple[str, str, int], tuple[float, int, int]] = PerKey(lambda: (0.0, -1, -1))

    def see(self, seen: Seen) -> None:
        if not is_consumer(seen):
            return
        for one in fetches(seen.exchange):
            self._offsets[seen.client.key, one.topic, one.partition] = one.struct.fetch_offset
        for one in fetched(seen.exchange):
            key = seen.client.key, one.topic, one.partition
            if self._offsets[key] < 0 or one.struct.high_watermark < 0:
                continue
            lag = one.struct.high_watermark - self._offsets[key]
            since, first, before = self._growth[key]
            if first < 0 or lag < before:
                since, first = seen.at, lag
            self._growth[key] = since, first, lag
            if seen.at - since >= self.limit["seconds"] and lag - first >= self.limit["records"]:
                text = (
                    f"{one.topic}-{one.partition}: {first:,} records behind became {lag:,} in {seen.at - since:.0f} s"
                )
                self.report(seen.client.key, text, seen)


@rule("C09", "never-commits", Level.INFO)
class NeverCommits(Rule):
    """The members of a group never commit offsets.

    After a restart or a rebalance they read everything again, or skip to the end.

    Fix: commit, or use no group where offsets are kept elsewhere."""

    apis = (
        ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
    )  # fmt: skip
    limits = thresholds(seconds=60)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._seen: PerKey[str, list[Seen]] = PerKey(list)  # first and last as a member
        self._committed: set[str] = set()

    def see(self, seen: Seen) -> None:
        group = getattr(seen.request, "group_id", "")
        if seen.key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT):
            self._committed.add(group)
        elif group:
            found = self._seen[group]
            found[1:] = [seen]
            if len(found) < 2:
                found.append(seen)

    def end(self) -> None:
        for group, (first, *rest) in self._seen.items():
            last = rest[-1] if rest else first
            if group not in self._committed and last.at - first.at > self.limit["seconds"]:
                self.report(group, f"no OffsetCommit in {last.at - first.at:.0f} s of membership", first)


@rule("C10", "cross-rack", Level.INFO)
class CrossRack(Rule):
    """A consumer that says its rack reads from a broker in another one, though its own rack has a replica.

    Traffic between zones costs money and time; KIP-392 lets it read from the nearest replica.

    Fix: set replica.selector.class=...RackAwareReplicaSelector on the brokers."""

    apis = _FETCH
    limits = thresholds(responses=20)

    def see(self, seen: Seen) -> None:
        rack = getattr(seen.request, "rack_id", "")
        node = self.world.nodes.get(self.world.node_at(seen.broker) or -1)
        if not rack or node is None or node.rack in (None, rack):
            return
        racks = {one.id for one in self.world.nodes.values() if one.rack == rack}
        for one in fetched(seen.exchange):
            replicas = self.world.replicas.get((one.topic, one.partition), ())
            if one.struct.records and one.struct.preferred_read_replica < 0 and racks & set(replicas):
                self.counts[seen.client.key] += 1
                if self.counts[seen.client.key] >= self.limit["responses"]:
                    text = f"in rack {rack} reads {one.topic}-{one.partition} from rack {node.rack}"
                    self.report(seen.client.key, text, seen)
