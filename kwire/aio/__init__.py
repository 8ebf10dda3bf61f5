"""The faces for asyncio: the same cores, options and guarantees as `kwire.Producer`'s, awaited instead of waited for.

    producer  `kwire.aio.Producer`
    waiting   how a task waits for what happens on a client's own thread

The event loop of a client stays a thread of its own: an application that is busy for seconds would otherwise miss
answers and time limits. No call uses a thread pool. Everything works in any running asyncio loop, in several in turn.

Imports: cluster, producer.
"""

from kwire.aio.producer import Producer

__all__ = ["Producer"]
