"""Seeded histories on virtual time: whatever brokers and readers do, a record comes once, in order, from the position.

A log's record at offset n has the value n, so that what is read can be judged without remembering what was written.
"""

from __future__ import annotations

from random import Random

import pytest

from kwire.consumer.buffer import ClientError
from kwire.consumer.rebalance import RebalanceStep
from kwire.errors import DisconnectedError, ErrorCode, RequestTimeoutError
from tests.cluster.snapshots import snapshot
from tests.consumer.world import Key, Sent, World, batch, take

PARTITIONS = 4
PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


class History:
    """A cluster, a reader and random events. `check` runs for every record that is returned."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.ends = {("t", index): self.chance.randrange(1, 60) for index in range(PARTITIONS)}
        self.leaders = {index: self.chance.randrange(1, 4) for index in range(PARTITIONS)}
        self.world = World(partition_max_bytes=400, max_bytes=1_000, max_buffered_bytes=3_000)
        self.in_flight: list[Sent] = []
        self.expected: dict[Key, int] = {}
        self.paused: set[Key] = set()
        self.read = 0
        self.move_leaders()
        self.world.assign(*(("t", index, 0) for index in range(PARTITIONS)))
        self.assignment_epochs = {("t", index): index + 1 for index in range(PARTITIONS)}
        self.expected = dict.fromkeys(self.assignment_epochs, 0)

    def move_leaders(self) -> None:
        self.leaders[self.chance.randrange(PARTITIONS)] = self.chance.choice([-1, 1, 2, 3])
        self.world.view.snapshot = snapshot({"t": [(self.leaders[index], 0) for index in range(PARTITIONS)]})

    def step(self) -> None:
        match self.chance.randrange(12):
            case 0:
                self.move_leaders()
            case 1:
                key = self.chance.choice(list(self.ends))
                self.ends[key] += self.chance.randrange(20)
            case 2:
                self.seek()
            case 3:
                self.pause()
            case 4 | 5 | 6:
                self.take(self.chance.randrange(1, 40))
            case _:
                self.world.now += self.chance.choice([0.0, 0.01, 0.3])
                self.respond_to_one(self.chance.random() < 0.3)
        self.turn()

    def turn(self) -> None:
        sent = self.world.turn()
        nodes = [one.node for one in self.in_flight + sent]
        assert len(nodes) == len(set(nodes)), "one fetch in flight per broker"
        self.in_flight += sent

    def respond_to_one(self, goes_wrong: bool) -> None:
        if not self.in_flight:
            return
        sent = self.in_flight.pop(self.chance.randrange(len(self.in_flight)))
        if goes_wrong and self.chance.random() < 0.5:
            sent.fail(self.chance.choice([DisconnectedError("gone"), RequestTimeoutError("silent")]))
            return
        codes = {key: self.chance.choice(PASSING) for key in sent.offsets if goes_wrong and self.chance.random() < 0.5}
        left_out = [key for key in sent.offsets if goes_wrong and self.chance.random() < 0.1]
        records = {key: self.log_from(key, offset) for key, offset in sent.offsets.items() if key not in codes}
        sent.respond_fetch(records, codes=codes, leave_out=left_out)

    def log_from(self, key: Key, offset: int) -> bytes:
        """Some batches: the first contains `offset`, and the last may be cut."""
        if offset >= self.ends[key]:
            return b""
        first = max(0, offset - self.chance.randrange(3))
        parts: list[bytes] = []
        while first < self.ends[key] and len(parts) < 4:
            count = min(max(self.chance.randrange(1, 8), offset - first + 1), self.ends[key] - first)
            parts.append(batch(first, *(b"%d" % number for number in range(first, first + count))))
            first += count
        data = b"".join(parts)
        return data[: self.chance.randrange(len(parts[0]), len(data) + 1)]

    def seek(self) -> None:
        key = self.chance.choice(list(self.ends))
        offset = self.chance.randrange(self.ends[key])
        start = self.world.start(*key, offset)
        self.world.buffers[self.assignment_epochs[key]].clear()
        self.world.fetch_buffer.pause(self.assignment_epochs[key], False)
        self.assignment_epochs[key] = start.assignment_epoch
        self.expected[key] = offset
        self.paused.discard(key)
        if self.chance.random() < 0.5:  # the loop gets the command late
            self.absorb()
            self.respond_to_one(False)
        self.world.fetcher.seek(start)
        self.world.fetcher.set_paused([key], False)

    def pause(self) -> None:
        key = self.chance.choice(list(self.ends))
        self.paused ^= {key}
        self.world.fetcher.set_paused([key], key in self.paused)
        self.world.fetch_buffer.pause(self.assignment_epochs[key], key in self.paused)

    def absorb(self) -> None:
        for item in self.world.posted():
            assert not isinstance(item, (ClientError, RebalanceStep))
            buffer = self.world.buffers[item.assignment_epoch]
            if item.assignment_epoch == self.assignment_epochs[buffer.topic, buffer.partition]:
                buffer.put(item)
            elif hasattr(item, "data"):
                self.world.fetch_buffer.release(item)  # type: ignore[arg-type]

    def take(self, count: int) -> None:
        self.absorb()
        for key, assignment_epoch in self.assignment_epochs.items():
            buffer = self.world.buffers[assignment_epoch]
            while key not in self.paused and count > 0 and buffer.has_next():
                for record in take(buffer, count):
                    assert (record.offset, record.value) == (self.expected[key], b"%d" % self.expected[key])
                    self.expected[key] += 1
                    count -= 1
                    self.read += 1
            assert buffer.error is None
            assert buffer.position == self.expected[key]

    def finish(self) -> None:
        """Calm: leaders for all, no errors, nothing paused. Everything must be read."""
        self.leaders = dict.fromkeys(self.leaders, 1)
        self.world.view.snapshot = snapshot({"t": [(1, 0)] * PARTITIONS})
        for key in list(self.paused):
            self.world.fetcher.set_paused([key], False)
            self.world.fetch_buffer.pause(self.assignment_epochs[key], False)
        self.paused.clear()
        for _ in range(400):
            self.take(1_000)
            if self.expected == self.ends:
                return
            self.world.now += 1.0
            self.turn()
            self.respond_to_one(False)
        raise AssertionError(f"stuck at {self.expected} of {self.ends}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_random_logs_are_read_completely(seed: int) -> None:
    history = History(seed)
    history.turn()
    for _ in range(150):
        history.step()
    history.finish()
    history.take(1)
    assert history.read > 0
    assert (history.world.fetch_buffer._bytes, history.world.fetch_buffer._total_bytes) == ({}, 0)
