"""Read a topic with asyncio: as a loop, or many records at once with `process`. Cancelling loses no record.

python examples/asyncio_consumer.py localhost:9092
"""

import asyncio
import signal
import sys

from kwire import ConsumerRecord, TopicPartition
from kwire.aio import Consumer


async def in_a_loop(bootstrap: str) -> None:
    async def flush(partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)  # here: write to the database what is in memory
        print("revoked", len(partitions), flush=True)

    async with Consumer(bootstrap, group="billing") as consumer:
        await consumer.subscribe(["orders"], on_revoked=flush)
        count = 0
        async for record in consumer:
            count += record.value is not None
            if count == 10:
                break
    print(f"{count} records in a loop", flush=True)


async def in_parallel(bootstrap: str) -> None:
    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.01)  # a request to another service
        print(record.value, flush=True)

    async with Consumer(bootstrap, group="billing") as consumer:
        await consumer.subscribe(["orders"])
        processor = consumer.process(handle, order="partition", concurrency=500)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, processor.stop)
        await processor.run()
    print(f"{processor.metrics().processed} records in parallel")


async def main(bootstrap: str) -> None:
    await in_a_loop(bootstrap)
    await in_parallel(bootstrap)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["localhost:9092"]))
