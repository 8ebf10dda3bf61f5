"""A reader with read_committed in a simulated world: the consumer's fetcher, inbox and lanes, as `kwire.Consumer` joins
them, on virtual time.

Owns what the face of the consumer owns on real threads, which cannot be here: taking records out as soon as there are
any.
"""
from __future__ import annotations

from collections.abc import Collection
from random import Random

from kwire.broker.simulation.history import ReadCopy
from kwire.broker.simulation.net import Net
from kwire.broker.simulation.selector import SimulatedSelector
from kwire.broker.simulation.world import Loop
from kwire.cluster import Backoff, ClientConfig, EventLoop
from kwire.consumer.fetcher import Fetcher, Start
from kwire.consumer.inbox import Inbox, Trouble
from kwire.consumer.lane import Lane
from kwire.consumer.offsets import OffsetLookup
from kwire.consumer.options import ConsumerOptions
from kwire.errors import ClosedError, KwireError

_TAKEN_MAX = 100


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
        selector = SimulatedSelector(
            net,
            name,
            random,
            ring=self.loop.ring,
            max_frame_bytes=config.max_frame_bytes,
            connect_timeout_ms=config.connect_timeout_ms,
            idle_timeout_ms=config.idle_timeout_ms,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_ms_max=config.reconnect_backoff_ms_max,
        )
        self._event_loop = EventLoop(config, selector, net.world, random)  # type: ignore[arg-type]
        self._inbox = Inbox(max_bytes=options.max_buffered_bytes, wake_loop=self._event_loop.wakeup)
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max)
        lookup = OffsetLookup(
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
        self._lanes = {
            generation: Lane(*place, generation, 0, check_crc=True, release=self._inbox.release)
            for generation, place in enumerate(places, start=1)
        }
        self._read: dict[int, list[tuple[int, bytes | None]]] = {generation: [] for generation in self._lanes}
        fetcher.assign([Start(lane.topic, lane.partition, lane.generation, 0) for lane in self._lanes.values()])
        self._event_loop.add(fetcher)
        self.loop.ring()

    def positions(self) -> dict[tuple[str, int], int]:
        """Behind the last record that was taken, or hidden."""
        return {(lane.topic, lane.partition): lane.position or 0 for lane in self._lanes.values()}

    def copies(self) -> list[ReadCopy]:
        return [
            ReadCopy(self.name, lane.topic, lane.partition, tuple(self._read[generation]))
            for generation, lane in self._lanes.items()
        ]

    def close(self) -> None:
        self.loop.stop()
        self._event_loop.close(ClosedError("the reader was closed"))

    def _turn(self) -> None:
        self._event_loop.turn()
        for item in self._inbox.take():
            if not isinstance(item, Trouble):
                self._lanes[item.generation].put(item)
        for generation, lane in self._lanes.items():
            while lane.has_next():
                self._read[generation] += [(record.offset, record.value) for record in lane.take(_TAKEN_MAX)]
            if lane.error is not None and not lane.is_told:
                lane.is_told = True
                self.errors.append(lane.error)
