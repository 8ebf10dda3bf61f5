"""Which partition a keyed record goes to. All partitions count, led or not: the choice must not depend on failures.

Unkeyed records need no partitioner: they wait in their topic's undesignated queue and are given a partition, by whole
batches, when they are drained.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from kwire.errors import ConfigurationError
from kwire.wire.accel import murmur2

Partitioner = Callable[[bytes, int], int]


def murmur2_partition(key: bytes, partition_count: int) -> int:
    """As Kafka's Java client does (org.apache.kafka.clients.producer.internals.BuiltInPartitioner)."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def crc32_partition(key: bytes, partition_count: int) -> int:
    """As librdkafka's default does: its `consistent_random` for records with a key."""
    return zlib.crc32(key) % partition_count


_BY_NAME: dict[str, Partitioner] = {"murmur2": murmur2_partition, "crc32": crc32_partition}


def partitioner(name: str) -> Partitioner:
    if name not in _BY_NAME:
        raise ConfigurationError(
            f"there is no partitioner {name!r}", remedy=f"choose one of {', '.join(sorted(_BY_NAME))}"
        )
    return _BY_NAME[name]
