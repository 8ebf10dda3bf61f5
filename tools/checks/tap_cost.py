"""Measure what a tap costs: CPU for a record, and time added to a request. Runs with and without it take turns.

tools/tap-cost [--records N] [--requests N] [--rounds N]

The time added is also that of a bare relay: a loop in Python that passes on bytes and knows no protocol. Much of it is
the time until the system runs a process that waits. Broker, taps and relay are processes of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import kwire

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def produce_and_consume(bootstrap: str, topic: str, records: int) -> None:
    value = bytes(100)
    with kwire.Producer(bootstrap, linger_ms=5) as producer:
        for _ in range(records):
            producer.send(topic, value)
    with kwire.Consumer(bootstrap) as consumer:
        consumer.assign([(topic, partition, "earliest") for partition in range(4)])
        found = 0
        while found < records:
            found += sum(len(batch) for batch in [consumer.poll(timeout=10)])


# Most responses pass as they are; those of ApiVersions and Metadata do not.
_INIT_PRODUCER_ID = bytes.fromhex("00000010 0016 0000 00000001 ffff ffff 0000ea60")
_RELAY = """
import selectors, socket, sys
host, _, port = sys.argv[1].rpartition(":")
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in selector.select():
        if key.data is None:
            pair = listener.accept()[0], socket.create_connection((host, int(port)))
            for one, other in (pair, pair[::-1]):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(one, selectors.EVENT_READ, other)
        elif data := key.fileobj.recv(65536):
            key.data.sendall(data)
        else:
            for one in (key.fileobj, key.data):
                selector.unregister(one)
                one.close()
            break
"""


def median_ms(address: str, requests: int) -> float:
    """Return the median time of a request and its response, one after the other on one connection."""
    host, _, port = address.rpartition(":")
    found = []
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(requests):
            begin = time.perf_counter()
            sock.sendall(_INIT_PRODUCER_ID)
            left = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
            while left:
                left -= len(sock.recv(left))
            found.append((time.perf_counter() - begin) * 1000)
    return statistics.median(found[requests // 10 :])


class Process:
    """A program that prints an address first, and runs until it is closed."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.first_line = self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class TapProcess:
    """`kwire tap` in a process of its own."""

    def __init__(self, bootstrap: str, *options: str) -> None:
        command = [sys.executable, "-m", "kwire", "tap", "-q", "-b", bootstrap, *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.address = self.process.stderr.readline().split()[3]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def _figures(found: list[float]) -> str:
    return f"{statistics.median(found):.2f} ({', '.join(f'{one:.2f}' for one in found)})"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    kinds: dict[str, list[str]] = {"tap": [], "tap -o": ["-o"]}
    cpu: dict[str, list[float]] = {name: [] for name in kinds}
    added: dict[str, list[float]] = {name: [] for name in ("bare relay", *kinds)}
    broker = Process("-m", "kwire", "broker", "--port", "0", "--default-partitions", "4")
    with broker, tempfile.TemporaryDirectory() as folder:
        address = json.loads(broker.first_line)["bootstrap"].split(",")[0]
        for number in range(given.rounds):
            direct = median_ms(address, given.requests)
            with Process("-c", _RELAY, address) as relay:
                added["bare relay"].append(median_ms(f"127.0.0.1:{relay.first_line.strip()}", given.requests) - direct)
            for name, options in kinds.items():
                tap = TapProcess(address, *options, *([f"{folder}/t.pcapng"] if options else []))
                before = cpu_seconds(tap.process.pid)
                produce_and_consume(tap.address, f"t{number}-{name.replace(' ', '')}", given.records)
                cpu[name].append((cpu_seconds(tap.process.pid) - before) / (2 * given.records) * 1e6)
                added[name].append(median_ms(tap.address, given.requests) - direct)
                tap.close()
    for name, found in cpu.items():
        print(f"{name}: {_figures(found)} us of CPU for a record produced or consumed")
    for name, found in added.items():
        print(f"{name}: {_figures(found)} ms added to a request")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
