"""Export a producer's metrics to Prometheus.

Needs `pip install kwire[metrics]`. A real program would leave the server running; this one scrapes itself once.

    python examples/prometheus.py localhost:9092
"""

import sys
from urllib.request import urlopen

from prometheus_client import CollectorRegistry, start_http_server

import kwire
from kwire.metrics import Collector


def main(bootstrap: str) -> None:
    registry = CollectorRegistry()
    with kwire.Producer(bootstrap, client_id="shop") as producer:
        registry.register(Collector(producer))
        server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
        for number in range(1_000):
            producer.send("orders", f"order {number}")
        producer.flush(timeout=30)
        with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as page:
            lines = page.read().decode().splitlines()
        server.shutdown()
        server.server_close()
        thread.join()
    print(*(line for line in lines if line.startswith("kwire_producer_records")), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
