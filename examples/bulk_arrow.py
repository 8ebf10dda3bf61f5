"""Send a pyarrow table and read it back as a table, without a Python object per record.

Needs `pip install kwire[arrow]`.

    python examples/bulk_arrow.py localhost:9092
"""

import sys

import pyarrow as pa

import kwire

ROWS = 50_000


def main(bootstrap: str) -> None:
    table = pa.table(
        {
            "key": [f"sensor {row % 10}" for row in range(ROWS)],
            "value": [f"{row / 7:.3f}" for row in range(ROWS)],
        }
    )
    with kwire.Producer(bootstrap, compression="lz4") as producer:
        result = producer.send_arrow("measured", table).result(timeout=30)
        print(f"{len(result)} rows sent, the first to partition {result[0].partition}")

    with kwire.Consumer(bootstrap) as consumer:
        consumer.assign([("measured", number, "earliest") for number in consumer.partitions("measured")])
        batches: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in batches) < ROWS:
            batches.append(consumer.poll_arrow(timeout=1.0))
    read = pa.Table.from_batches(batches)
    largest = max(map(float, read["value"].to_pylist()))
    print(f"{read.num_rows} rows read, the largest is {largest}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
