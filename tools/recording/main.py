"""Start each broker in turn, send it every version of every request, and write the exchanges to fixtures/."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Sequence

from brokers.cluster import KafkaCluster
from brokers.configuration import HOST, has_sasl

from kwire.errors import ErrorCode
from kwire.protocol import api
from recording import fixtures
from recording.scene import set_up
from recording.script import APIS
from recording.wire import Wire

VERSIONS = ("0.8.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.1", "4.3.1")
# Kafka 3.9 has the new groups (KIP-848) as a preview, which must be switched on.
_SETTINGS = {
    "3.9.1": {"group.coordinator.rebalance.protocols": "classic,consumer", "unstable.feature.versions.enable": "true"}
}
# Expected errors: a fetch beyond the end of partition 1; and version 0 of committed offsets, which ZooKeeper keeps, so
# that brokers without one reject that version although they offer it.
_WANTED_CODES = {
    ("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE),
    ("OffsetCommit", ErrorCode.UNSUPPORTED_VERSION),
    ("OffsetFetch", ErrorCode.UNSUPPORTED_VERSION),
}


def record(version: str) -> int:
    """Record one broker. Return the number of exchanges."""
    shutil.rmtree(fixtures.ROOT / version, ignore_errors=True)
    count = 0
    kafka = KafkaCluster(version, sasl=has_sasl(version), settings=_SETTINGS.get(version))
    with kafka as cluster, Wire(HOST, cluster.port(1)) as wire:
        scene = set_up(cluster, wire)
        for name, ask in APIS.items():
            for number in scene.versions(api(name).request):
                try:
                    exchange = ask(scene, number)
                except ConnectionError as error:
                    raise SystemExit(f"{name} v{number} to {version}: {error}") from error
                body = exchange.response.to_json(number)
                for code in error_codes(body):
                    if code and (name, code) not in _WANTED_CODES:
                        said = json.dumps(body)
                        raise SystemExit(f"{name} v{number} was answered with error {code} by {version}: {said}")
                fixtures.write(exchange, version)
                count += 1
    return count


def error_codes(body: object) -> Iterator[int]:
    """Yield every errorCode in a message's JSON, at any depth, partitionErrorCode too."""
    if isinstance(body, dict):
        for name, value in body.items():
            if name.lower().endswith("errorcode"):
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
