"""Find out why records wait: `explain` says why a partition's records are not sent now.

This program starts a cluster, stops its only broker, waits for a record in vain, and calls `explain`.

    python examples/explain.py
"""

import kwire
from kwire.broker import Cluster


def main() -> None:
    with Cluster(brokers=1, topics={"orders": 1}) as cluster, kwire.Producer(cluster.bootstrap) as producer:
        producer.send("orders", b"before").result(timeout=10)
        cluster.stop(1)
        response = producer.send("orders", b"while it is down")
        try:
            response.result(timeout=0.5)
        except kwire.RequestTimeoutError:
            print(producer.explain("orders", 0))
        cluster.restart(1)
        print(f"delivered after all, at offset {response.result(timeout=30).offset}")


if __name__ == "__main__":
    main()
