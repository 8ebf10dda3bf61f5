"""Commit each record when it is stored. The simplest program that loses nothing; one round trip for each record.

After a crash the last record may come again, so storing it twice must do no harm: here its place is the primary key.
To be fast, commit batches: see commit_batches.py.

    python examples/commit_records.py localhost:9092 DATABASE
"""

import sqlite3
import sys

import kwire


def main(bootstrap: str, path: str) -> None:
    database = sqlite3.connect(path)
    database.execute("create table if not exists orders (place text primary key, value blob)")
    with kwire.stop_on_signals(), kwire.Consumer(bootstrap, group="archive", commit="manual") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            with database:
                place = f"{record.topic}-{record.partition}-{record.offset}"
                database.execute("insert or replace into orders values (?, ?)", (place, record.value))
            consumer.commit(record)  # the next offset, and the leader epoch: kwire adds the 1
            print(place, flush=True)
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092", "orders.db"])
