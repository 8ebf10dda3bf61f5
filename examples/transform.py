"""Exactly once: consume, transform, produce. Results and offsets become visible together, or not at all.

Each transaction has the results of one batch and, by `send_offsets`, the offsets after it. If it is aborted, the
consumer goes back to the beginning of the batch by itself. If a rebalance took partitions of the batch away, the
transaction is aborted and their new owner does the work. Consumers with `isolation="read_committed"` see each result
once. A new program with the same transactional id fences the previous one.

    python examples/transform.py localhost:9092 [TRANSACTIONAL_ID]
"""

import sys

import kwire
from kwire.errors import FatalError


def main(bootstrap: str, transactional_id: str = "doubler-0") -> None:
    transactions = 0
    with (
        kwire.stop_on_signals() as stop,
        kwire.Producer(bootstrap, transactional_id=transactional_id) as producer,
        kwire.Consumer(bootstrap, group="doubler", commit="manual", isolation="read_committed") as consumer,
    ):
        consumer.subscribe(["numbers"])
        producer.init_transactions()  # ends what an earlier run left open
        while not stop.is_set():
            batch = consumer.poll_batch(max_records=25, timeout=1.0)
            if not batch:
                continue
            try:
                with producer.transaction():
                    for record in batch:
                        producer.send("doubled", str(2 * int(record.value or b"0")), key=record.key)
                    producer.send_offsets(batch, group=consumer)
            except FatalError:
                raise  # fenced, or not authorized: another program has taken over, or somebody must look
            except (kwire.AbortableError, kwire.GroupError) as error:
                print(f"aborted, the batch is read again: {error}", file=sys.stderr)
                batch.rewind()  # the error may have come before send_offsets
                continue
            transactions += 1
            print(f"up to {batch.next_offsets()}", flush=True)
    print(f"{transactions} transactions")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
