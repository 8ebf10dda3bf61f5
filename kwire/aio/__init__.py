"""The faces for asyncio: the cores, options and guarantees of `kwire.Producer` and `kwire.Consumer`, awaited.

    producer  `kwire.aio.Producer`
    consumer  `kwire.aio.Consumer`
    waiting   how a task waits for what happens on a client's own thread

The event loop of a client stays a thread of its own: an application that is busy for seconds would otherwise miss
answers and time limits. No call uses a thread pool. Everything works in any running asyncio loop, in several in turn.

Imports: cluster, consumer, producer, records.
"""

from kwire.aio.consumer import Consumer
from kwire.aio.producer import Producer

__all__ = ["Consumer", "Producer"]
