"""Provide the real stage: a cluster of Java processes, its relay, the copying processes, and the clock.

The calling thread starts the brokers and must outlive them, because the kernel ends them with that thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from random import Random

from brokers.cluster import KafkaCluster

from chaos_runs.copiers import Copiers
from chaos_runs.readers import Reader
from chaos_runs.relay import Relay

_SYNC_S = 90.0
_POLL_S = 0.2
_ASK_S = 30.0


class LiveStage:
    """Implement `scenarios.Stage`. `say` receives a line for each action."""

    def __init__(
        self,
        cluster: KafkaCluster,
        reader: Reader,
        topic: str,
        random: Random,
        say: Callable[[str], None],
        *,
        relay: Relay | None,
        copiers: Copiers | None,
    ) -> None:
        self.random = random
        self._cluster = cluster
        self._reader = reader
        self._topic = topic
        self._say = say
        self._relay = relay
        self._copiers = copiers

    @property
    def nodes(self) -> list[int]:
        return self._cluster.node_ids

    def leader(self, partition: int) -> int:
        """Return the leader of a partition; repeat the request until there is one."""
        deadline = time.monotonic() + _ASK_S
        while True:
            with contextlib.suppress(Exception):  # the reader's own errors: a broker that is down
                node = self._reader.leaders(self._topic).get(partition, -1)
                if node > 0:
                    return node
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._topic}-{partition} has no leader")
            time.sleep(_POLL_S)

    def kill(self, node: int) -> None:
        self._say(f"kill -9 of broker {node}")
        self._cluster.stop_node(node, graceful=False)

    def stop(self, node: int) -> None:
        self._say(f"broker {node} is stopped")
        self._cluster.stop_node(node, graceful=True)

    def start(self, *nodes: int) -> None:
        self._cluster.start_node(*nodes)
        self._say(f"up again: broker {', '.join(map(str, nodes))}")

    def pause(self, node: int) -> None:
        self._say(f"SIGSTOP of broker {node}")
        os.kill(self._cluster.processes[node].pid, signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._say(f"SIGCONT of broker {node}")
        os.kill(self._cluster.processes[node].pid, signal.SIGCONT)

    def cut_connections(self, is_cutting: bool) -> None:
        assert self._relay is not None, "this scenario is not relayed"
        self._say("connections are cut" if is_cutting else f"connections live again, after {self._relay.cuts} cuts")
        self._relay.is_cutting = is_cutting

    def kill_client(self) -> None:
        if self._copiers is not None:
            self._say("kill -9 of a copier")
            self._copiers.kill_one()

    def replace_client(self) -> None:
        if self._copiers is not None:
            self._say("a copier freezes and is replaced")
            self._copiers.freeze_and_replace()

    def freeze_client(self, seconds: float) -> None:
        if self._copiers is not None:
            self._say(f"a copier freezes for {seconds:.0f} s")
            self._copiers.freeze(seconds)

    def wait_in_sync(self) -> None:
        deadline = time.monotonic() + _SYNC_S
        while True:
            with contextlib.suppress(Exception):  # as in `leader`
                if self._reader.out_of_sync() == 0:
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all replicas are in sync after {_SYNC_S:.0f} s")
            time.sleep(_POLL_S)

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)
