"""Metrics that clients push (KIP-714): subscriptions of client metrics, and what has arrived.

Java's clients ask a broker what to push, and push it in the format of OpenTelemetry. The bytes are kept as they are, in
order, at most `KEPT` of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from uuid import UUID
from zlib import crc32

from kwire.broker.configs import Configs, parse_match
from kwire.broker.ids import NO_ID, make_uuid
from kwire.errors import ErrorCode, broker_error
from kwire.records import Compression

KEPT = 1_000
MAX_BYTES = 1_048_576
DEFAULT_INTERVAL_MS = 300_000
_CODECS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
ACCEPTED_CODECS = tuple(int(codec) for codec in _CODECS)


@dataclass(frozen=True, slots=True)
class Push:
    """What a client has pushed. `metrics` are bytes of OpenTelemetry's MetricsData, compressed by `compression`."""

    client_instance_id: UUID
    client_id: str
    compression: Compression
    metrics: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one client is to push. No metrics: nothing; one "": everything."""

    id: int
    interval_ms: int
    metrics: tuple[str, ...]


class Telemetry:
    def __init__(self, configs: Configs, random: Random) -> None:
        self._configs = configs
        self._random = random
        self._pushes: deque[Push] = deque(maxlen=KEPT)
        self._ended: set[UUID] = set()

    def __iter__(self) -> Iterator[Push]:
        return iter(self._pushes)

    def instance_id(self, given: UUID) -> UUID:
        """Return a client's id, a new one if it has none."""
        return given if given != NO_ID else make_uuid(self._random)

    def subscription(self, client: Mapping[str, str]) -> Subscription:
        """Return what a client is to push. `client` is what subscriptions can match: its id, its library."""
        metrics: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        for configs in self._configs.client_metrics.values():
            patterns = parse_match(configs["match"])
            if all(pattern.fullmatch(client.get(name, "")) for name, pattern in patterns.items()):
                metrics |= {name.strip() for name in configs["metrics"].split(",") if name.strip()}
                interval_ms = min(interval_ms, int(configs["interval.ms"]))
        chosen = ("*",) if "*" in metrics else tuple(sorted(metrics))
        id = crc32(repr((chosen, interval_ms)).encode())
        return Subscription(id - (1 << 31), interval_ms, chosen)

    def push(self, push: Push, subscription_id: int, client: Mapping[str, str]) -> None:
        """Keep what a client has pushed. Raises BrokerError."""
        if push.client_instance_id == NO_ID or push.client_instance_id in self._ended:
            raise broker_error(ErrorCode.INVALID_REQUEST)
        if subscription_id != self.subscription(client).id:
            raise broker_error(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if len(push.metrics) > MAX_BYTES:
            raise broker_error(ErrorCode.TELEMETRY_TOO_LARGE)
        if push.is_last:
            self._ended.add(push.client_instance_id)
        self._pushes.append(push)
