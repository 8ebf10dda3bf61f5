"""Let two producers and a consumer share connections, metadata and one event loop.

Each client has its own options and callbacks, and is closed separately: here one producer long before the others.

    python examples/shared_cluster.py localhost:9092
"""

import sys

import kwire


def main(bootstrap: str) -> None:
    with kwire.Cluster(bootstrap, client_id="shop") as cluster:
        with kwire.Producer(cluster, linger_ms=20, compression="gzip") as importer:
            for number in range(1_000):
                importer.send("orders", f"order {number}", key=f"customer {number % 100}")
        with kwire.Producer(cluster, linger_ms=0) as single, kwire.Consumer(cluster) as consumer:
            sent = single.send("numbers", b"1").result(timeout=30)
            consumer.assign([("numbers", sent.partition, sent.offset)])
            record = consumer.poll(max_records=1, timeout=30)[0]
            metrics = cluster.metrics().brokers.values()
            connections = sum(broker.connections for broker in metrics)
            print(f"read {record.value!r} from {record.topic}, by {connections} connections of one client_id")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
