"""A reader with read_committed in a simulated world: the consumer's fetcher and inbox, as `kwire.Consumer` joins them.

Owns what the face of the consumer owns on real threads, which cannot be here: taking records out as soon as there are
any, without those of aborted transactions.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from kwire.broker.simulation.history import ReadCopy
from kwire.broker.simulation.net import Net
from kwire.broker.simulation.selector import SimulatedSelector
from kwire.broker.simulation.world import Loop
from kwire.cluster import Backoff, ClientConfig, EventLoop
from kwire.consumer.buffer import BatchFilter, CompletedFetch, FetchBuffer, PartitionFailed
from kwire.consumer.fetcher import Fetcher, Start
from kwire.consumer.offsets import OffsetFetcher
from kwire.consumer.options import ConsumerOptions
from kwire.errors import ClosedError, KwireError
from kwire.records import decode_batches


class _Reading:
    """A partition: where it stands, and what came before."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.position = 0
        self.records: list[tuple[int, bytes | None]] = []

    def take(self, chunk: CompletedFetch) -> None:
        assert chunk.offset == self.position, "a fetch that does not follow on from what was read"
        filter = BatchFilter(chunk.aborted)
        for batch in decode_batches(chunk.data):
            # A batch is sent whole though the fetch asked for an offset in its middle.
            if not filter.hides(batch):
                self.records += [(one.offset, one.value) for one in batch.records() if one.offset >= self.position]
            self.position = max(self.position, batch.next_offset)


class SimulatedReader:
    """Reads these partitions from their beginning. `errors` are those that ended a partition."""

    def __init__(
        self,
        net: Net,
        name: str,
        random: Random,
        config: ClientConfig,
        options: ConsumerOptions,
        places: Collection[tuple[str, int]],
    ) -> None:
        self.name = name
        self.errors: list[KwireError] = []
        self.loop = Loop(net.world, name, self._turn)
        selector = SimulatedSelector.of(net, name, random, config, ring=self.loop.ring)
        self._event_loop = EventLoop(config, selector, net.world, random)  # type: ignore[arg-type]
        self._inbox = FetchBuffer(max_bytes=options.max_buffered_bytes, wake_loop=self._event_loop.wakeup)
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max)
        lookup = OffsetFetcher(
            is_committed_only=options.is_committed_only,
            unknown_topic_timeout_ms=options.unknown_topic_timeout_ms,
            backoff=backoff,
            random=random,
        )
        fetcher = Fetcher(
            options,
            self._inbox,
            lookup,
            backoff=backoff,
            random=random,
            request_timeout_ms=config.request_timeout_ms,
            max_frame_bytes=config.max_frame_bytes,
            replica_max_age_ms=config.metadata_max_age_ms,
        )
        self._readings = {number: _Reading(*place) for number, place in enumerate(places, start=1)}
        fetcher.assign([Start(one.topic, one.partition, number, 0) for number, one in self._readings.items()])
        self._event_loop.add(fetcher, "fetch")
        self.loop.ring()

    def positions(self) -> dict[tuple[str, int], int]:
        """Behind the last record that was taken, or hidden."""
        return {(one.topic, one.partition): one.position for one in self._readings.values()}

    def copies(self) -> list[ReadCopy]:
        return [ReadCopy(self.name, one.topic, one.partition, tuple(one.records)) for one in self._readings.values()]

    def close(self) -> None:
        self.loop.stop()
        self._event_loop.close(ClosedError("the reader was closed"))

    def _turn(self) -> None:
        self._event_loop.turn()
        for item in self._inbox.take():
            if isinstance(item, CompletedFetch):
                self._readings[item.generation].take(item)
                self._inbox.release(item)
            elif isinstance(item, PartitionFailed):
                self.errors.append(item.error)
