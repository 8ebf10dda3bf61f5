"""Clients that a Python worker process keeps from one task to the next.

Spark runs many tasks and micro-batches in one worker, and connections and metadata are expensive to set up. Clients are
cached by their options, and the least recently used one is closed when there are too many. A forked child starts with
an empty cache. `kwire.producer` and `kwire.consumer` are imported on first use: no process needs all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from kwire.admin import Admin
    from kwire.consumer import Consumer
    from kwire.producer import Producer
    from kwire.spark.transactions import TransactionRequests

# A worker serves one query at a time, and a query has one set of options; a few more are for notebooks.
CLIENTS_MAX = 8


class _Client(Protocol):
    def close(self, timeout: float | None = ...) -> None: ...


C = TypeVar("C", bound=_Client)


class Clients(Generic[C]):
    """A cache of one kind of client, by options. Thread-safe."""

    def __init__(self, make: Callable[..., C]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._clients: dict[tuple[tuple[str, Any], ...], C] = {}
        self._inherited: list[dict[tuple[tuple[str, Any], ...], C]] = []
        # A child keeps a reference to its parent's clients: their finalizers could close sockets that both share.
        os.register_at_fork(after_in_child=self._forget)

    def get(self, options: Mapping[str, Any]) -> C:
        """Return the client with these keywords; create it if necessary."""
        key = tuple(sorted(options.items()))
        with self._lock:
            client = self._clients.pop(key, None) or self._make(**options)
            self._clients[key] = client  # the most recently used is the last
            surplus = [self._clients.pop(old) for old in list(self._clients)[:-CLIENTS_MAX]]
        for old_client in surplus:
            old_client.close(0)
        return client

    def discard(self, options: Mapping[str, Any]) -> None:
        """Close the client with these keywords at once. The next `get` creates another."""
        with self._lock:
            client = self._clients.pop(tuple(sorted(options.items())), None)
        if client is not None:
            client.close(0)

    def close(self) -> None:
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            client.close(0)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._inherited.append(self._clients)
        self._clients = {}


def _new_producer(**options: Any) -> Producer:
    from kwire.producer import Producer

    return Producer(**options)


def _new_consumer(**options: Any) -> Consumer:
    from kwire.consumer import Consumer

    return Consumer(**options)


def _new_admin(**options: Any) -> Admin:
    from kwire.admin import Admin

    return Admin(**options)


def _new_transactions(**options: Any) -> TransactionRequests:
    from kwire.spark.transactions import TransactionRequests

    return TransactionRequests(**options)


producers: Clients[Producer] = Clients(_new_producer)
consumers: Clients[Consumer] = Clients(_new_consumer)
admins: Clients[Admin] = Clients(_new_admin)
transactions: Clients[TransactionRequests] = Clients(_new_transactions)
