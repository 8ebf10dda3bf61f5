"""`tools/record_fixtures`: start each broker in turn, ask it everything, and write down what was said."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Sequence

from brokers.cluster import KafkaCluster
from brokers.configuration import HOST
from brokers.jars import version_numbers

from recording import fixtures
from recording.script import APIS, set_up
from recording.wire import Wire

# Together these have every version that was ever released of every API in the script, up to 4.3.
VERSIONS = ("0.8.2.2", "0.11.0.3", "2.8.2", "4.3.1")
# What may be asked for and missed on purpose: partition 1 is fetched beyond its end.
_WANTED_CODES = {("Fetch", 1)}


def record(version: str) -> int:
    """Record one broker; the number of exchanges."""
    shutil.rmtree(fixtures.ROOT / version, ignore_errors=True)
    count = 0
    with KafkaCluster(version, sasl=version_numbers(version) >= (2,)) as cluster, Wire(HOST, cluster.port(1)) as wire:
        scene = set_up(cluster, wire)
        for request, ask in APIS:
            if "sasl" not in cluster.listeners and request.__name__.startswith("Sasl"):
                continue
            for number in scene.versions(request):
                exchange = ask(scene, number)
                name = request.__name__.removesuffix("Request")
                for code in error_codes(exchange.response.to_json(number)):
                    if code and (name, code) not in _WANTED_CODES:
                        body = json.dumps(exchange.response.to_json(number))
                        raise SystemExit(f"{name} v{number} was answered with error {code} by {version}: {body}")
                fixtures.write(exchange, version)
                count += 1
    return count


def error_codes(body: object) -> Iterator[int]:
    """Every errorCode in a message's JSON, at any depth."""
    if isinstance(body, dict):
        for name, value in body.items():
            if name == "errorCode":
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(body, list):
        for item in body:
            yield from error_codes(item)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/record_fixtures", description=__doc__)
    known = ", ".join(VERSIONS)
    parser.add_argument("versions", nargs="*", default=VERSIONS, help=f"of brokers (default: {known})")
    for version in parser.parse_args(arguments).versions:
        print(f"{version}: {record(version)} exchanges", flush=True)
    return 0
