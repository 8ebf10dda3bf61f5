"""Produce records and get the result of each in a callback.

`send` returns at once. The callback runs on its own thread when the broker has acknowledged the record, or when
delivery has failed. `close`, here at the end of the `with` block, delivers the remaining records.

    python examples/produce.py localhost:9092
"""

import sys
from collections import Counter

import kwire

outcomes: Counter[str] = Counter()


def delivered(response: kwire.ProduceResponse) -> None:
    error = response.exception()
    if error is None:
        outcomes[f"partition {response.result().partition}"] += 1
    else:
        outcomes["failed"] += 1
        print(f"not delivered: {error}", file=sys.stderr)


def main(bootstrap: str) -> None:
    with kwire.Producer(bootstrap, linger_ms=20, compression="lz4") as producer:
        for number in range(10_000):
            producer.send("orders", f"order {number}", key=f"customer {number % 100}", on_delivery=delivered)
        producer.flush(timeout=30)
    print(f"{sum(outcomes.values())} records, {outcomes['failed']} failed, in {len(outcomes)} partitions")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
