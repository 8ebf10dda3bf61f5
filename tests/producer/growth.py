"""Count the lines of kwire that run for a record, with a simulated producer and brokers, independent of any clock.

The real event loop, sessions, codecs and sender work on virtual time in one thread, so a run's count is the same on
every host, and a loop that examines everything in each turn is visible in the count.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from kwire.cluster import ClientConfig
from kwire.producer.options import ProducerSettings
from kwire.producer.sender import Sender
from kwire.simulation.clients import SimulatedProducer
from kwire.simulation.cluster import SimulatedCluster
from kwire.simulation.history import History
from kwire.simulation.network import Network
from kwire.simulation.world import Trace, World

ROOT = Path(__file__).parents[2]
# Without `protocol`, whose constant cost would hide growth.
ROOMS = ("producer", "cluster", "session", "records")
COUNTED = (*(f"{ROOT}/kwire/{room}/" for room in ROOMS), f"{ROOT}/tests/producer/test_growth.py")
# What C does too is not counted: the counts of C and Python would not be the same.
ALSO_IN_C = tuple(
    f"{ROOT}/kwire/{name}.py"
    for name in (
        "producer/accumulator",
        "producer/batch_builder",
        *(f"records/{part}" for part in ("alike", "decoder", "encoder", "header", "reader", "rows", "sizes")),
    )
)
PER_BATCH = 10
VALUE = 80  # bytes; with its record's own, ten of them fill a batch
SETTLED = 60.0


class Lines:
    """Count, in a `with` block, the lines that run in kwire's packages and in classes that a test defines."""

    def __init__(self, places: tuple[str, ...] = COUNTED, without: tuple[str, ...] = ALSO_IN_C) -> None:
        """Count in files whose paths begin with one of `places` and with none of `without`."""
        self.count = 0
        self._places = places
        self._without = without

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        return self._line if file.startswith(self._places) and not file.startswith(self._without) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.count += 1
        return self._line


class Growth:
    """A producer and a cluster of one broker; `lines(records, ...)` returns the lines for each record."""

    def __init__(
        self, partitions: int, sender: type[Sender] = Sender, *, topics: int = 1, max_request_bytes: int = 1 << 20
    ) -> None:
        """Create each of the topics with `partitions` partitions."""
        self.places = [(f"t{topic}", index) for topic in range(topics) for index in range(partitions)]
        self.world = World(time_ms=1_700_000_000_000)
        self.history = History()
        self.net = Network(self.world, Random(1), Trace())
        cluster = SimulatedCluster(self.net, self.history, Random(2), brokers=1)
        for topic in range(topics):
            cluster.create_topic(f"t{topic}", partitions)
        self.producer = SimulatedProducer(
            self.net, "producer", self.history, Random(3), ClientConfig(cluster.bootstrap, client_id="producer"),
            ProducerSettings(
                batch_bytes=PER_BATCH * (VALUE + 20), linger_ms=5, max_buffered_bytes=1 << 30,
                max_request_bytes=max_request_bytes,
            ),
            sender,
        )  # fmt: skip

    def lines(self, records: int, *, at_once: bool) -> float:
        """Return the lines for each record after each partition's first one, sent at once or in a steady stream."""
        for topic, index in self.places:
            self.producer.send(topic, partition=index, size=VALUE)
        self._settle()
        with Lines() as lines:
            step = records if at_once else 200
            for number, first in enumerate(range(0, records, step)):
                some = range(first, min(first + step, records))
                self.world.at(self.world.now() + number * 0.02, partial(self._send, some))
            self._settle(records / 200 * 0.02)
        return lines.count / records

    def _send(self, numbers: range, now: float) -> None:
        """Send a full batch to one partition, then to the next."""
        for number in numbers:
            topic, index = self.places[number // PER_BATCH % len(self.places)]
            self.producer.send(topic, partition=index, size=VALUE)

    def _settle(self, longer: float = 0.0) -> None:
        self.world.run(self.world.now() + longer)
        self.world.run(self.world.now() + SETTLED, is_over=lambda: not self.producer.buffer_pool.used_bytes)
        assert all(sent.acknowledged is not None for sent in self.history.sent.values())
