"""At least once, in batches: insert many rows at once, then commit exactly what was inserted.

A rebalance may take partitions away between the two. Then the commit fails, and the new owner inserts the rows again.

    python examples/commit_batches.py localhost:9092 DATABASE
"""

import sqlite3
import sys

import kwire


def main(bootstrap: str, path: str) -> None:
    database = sqlite3.connect(path)
    database.execute("create table if not exists orders (place text primary key, value blob)")
    with kwire.stop_on_signals() as stop, kwire.Consumer(bootstrap, group="archive", commit="manual") as consumer:
        consumer.subscribe(["orders"])
        while not stop.is_set():
            batch = consumer.poll_batch(max_records=5_000, timeout=1.0)
            if not batch:
                continue
            rows = [(f"{one.topic}-{one.partition}-{one.offset}", one.value) for one in batch]
            with database:
                database.executemany("insert or replace into orders values (?, ?)", rows)
            try:
                batch.commit()
            except (kwire.CommitFailedError, kwire.RebalanceInProgressError) as error:
                print(f"another member inserts these rows again: {error}")
            else:
                print(f"{len(rows)} rows", flush=True)
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092", "orders.db"])
