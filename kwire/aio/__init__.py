"""The faces for asyncio: the cores, options and guarantees of the clients for threads, awaited.

    producer        `kwire.aio.Producer`
    consumer        `kwire.aio.Consumer`
    share_consumer  `kwire.aio.ShareConsumer`

The event loop of a client stays a thread of its own: an application that is busy for seconds would otherwise miss
responses and time limits. No call uses a thread pool. Everything works in any running asyncio loop, in several in turn.

Imports: cluster, consumer, producer, records, share.
"""

from kwire.aio.consumer import Consumer
from kwire.aio.producer import Producer
from kwire.aio.share_consumer import ShareConsumer

__all__ = ["Consumer", "Producer", "ShareConsumer"]
