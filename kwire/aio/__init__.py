"""The faces for asyncio: the cores, options and guarantees of the clients for threads, awaited.

    producer        `kwire.aio.Producer`
    consumer        `kwire.aio.Consumer`
    share_consumer  `kwire.aio.ShareConsumer`
    admin           `kwire.aio.Admin`
    queue           `kwire.aio.queue.Service`: message queues

The event loop of a client stays a thread of its own: an application that is busy for seconds would otherwise miss
responses and time limits. No call uses a thread pool. Everything works in any running asyncio loop, in several in turn.

Imports: admin, cluster, consumer, producer, queue, records, share.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kwire.aio.consumer import Consumer
from kwire.aio.producer import Producer
from kwire.aio.share_consumer import ShareConsumer

if TYPE_CHECKING:
    from kwire.aio import queue as queue
    from kwire.aio.admin import Admin as Admin

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer", "queue"]

if not TYPE_CHECKING:  # or checkers would accept every name

    def __getattr__(name: str) -> object:
        """Import `Admin` and `queue` on first use: the other clients need neither."""
        if name == "queue":
            return import_module("kwire.aio.queue")
        if name == "Admin":
            return import_module("kwire.aio.admin").Admin
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
