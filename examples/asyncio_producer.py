"""Produce from asyncio: many tasks share one producer.

`send` waits only for memory, without blocking the loop. Awaiting its response returns partition and offset.

    python examples/asyncio_producer.py localhost:9092
"""

import asyncio
import sys

from kwire.aio import Producer


async def till(producer: Producer, number: int) -> int:
    responses = [await producer.send("orders", f"sale {sale}", key=f"till {number}") for sale in range(100)]
    places = await asyncio.gather(*responses)
    assert [place.offset for place in places] == sorted(place.offset for place in places)  # one key, in order
    return len(places)


async def run(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        delivered = await asyncio.gather(*(till(producer, number) for number in range(20)))
    print(f"{sum(delivered)} records of {len(delivered)} tasks")


def main(bootstrap: str) -> None:
    asyncio.run(run(bootstrap))


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
