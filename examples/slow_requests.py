"""Summarise a capture of Kafka's traffic: requests, errors and latency for each API.

`kwire decode` reassembles the TCP connections and prints a JSON line for each request with its response. This program
reads those lines.

    tcpdump -i any -w traffic.pcap port 9092
    python examples/slow_requests.py traffic.pcap
"""

import json
import subprocess
import sys
from collections import defaultdict
from statistics import median


def main(capture: str) -> None:
    command = [sys.executable, "-c", "from kwire.cli import main; main()", "decode", capture, "-f", "json", "-q"]
    latencies: defaultdict[str, list[float]] = defaultdict(list)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as decoding:
        assert decoding.stdout is not None
        for line in decoding.stdout:
            exchange = json.loads(line)
            if exchange.get("latency_ms") is not None:
                latencies[exchange["api"]].append(exchange["latency_ms"])
    for api, times in sorted(latencies.items(), key=lambda item: -max(item[1])):
        print(f"{api:20} {len(times):6} times, median {median(times):8.2f} ms, worst {max(times):8.2f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["traffic.pcap"])
