"""Which brokers failed, and when to probe them (kafka4net's PartitionRecoveryMonitor).

A broker fails when its connection ends unexpectedly, or cannot be made. Then the monitor probes it with growing pauses,
whether or not there is something to send. So its partitions are in use again as soon as it is back, and no record has
to fail to find that out. It recovers when a connection to it is ready, and is forgotten when the metadata no longer has
it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import Random

from kwire.errors import KwireError
from kwire.net.backoff import Backoff


@dataclass(slots=True)
class Failure:
    """`since` and `probe_at` are times of the loop's clock; `probes` counts those made; `cause` is the newest."""

    since: float
    probe_at: float
    probes: int
    cause: KwireError


class RecoveryMonitor:
    """The failed brokers. The event loop makes the connections to the nodes of `probes`."""

    def __init__(self, backoff: Backoff, random: Random) -> None:
        self.failures: dict[int, Failure] = {}
        self._backoff = backoff
        self._random = random

    def failed(self, node: int, cause: KwireError, now: float) -> bool:
        """Note a failure; return whether the node was healthy before."""
        failure = self.failures.get(node)
        if failure is None:
            self.failures[node] = Failure(now, now + self._backoff.seconds(1, self._random), 0, cause)
            return True
        failure.cause = cause
        failure.probe_at = now + self._backoff.seconds(failure.probes + 1, self._random)
        return False

    def recovered(self, node: int) -> Failure | None:
        """Note that a connection is ready; return the failure that is over, if the node had failed before."""
        return self.failures.pop(node, None)

    def keep(self, nodes: Collection[int]) -> None:
        """Forget the nodes that the cluster no longer has."""
        for node in self.failures.keys() - set(nodes):
            del self.failures[node]

    def probes(self, now: float) -> list[int]:
        """Return the nodes to connect to now, and count a probe for each."""
        due = [node for node, failure in self.failures.items() if failure.probe_at <= now]
        for node in due:
            failure = self.failures[node]
            failure.probes += 1
            failure.probe_at = now + self._backoff.seconds(failure.probes + 1, self._random)
        return due

    def deadline(self) -> float | None:
        return min((failure.probe_at for failure in self.failures.values()), default=None)
