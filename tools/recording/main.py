"""Start each broker in turn, send it every version of every request, and write the exchanges to fixtures/."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence

from brokers.cluster import KafkaCluster
from brokers.configuration import HOST, has_sasl, is_kraft
from brokers.jars import version_numbers

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
# Access rules need an authorizer, which lets this program do everything.
_AUTHORIZERS = (
    ((3, 3), "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ((2, 4), "kafka.security.authorizer.AclAuthorizer"),
    ((0, 11), "kafka.security.auth.SimpleAclAuthorizer"),
)
# Expected errors: a fetch beyond the end of partition 1; and version 0 of committed offsets, which ZooKeeper keeps, so
# that brokers without one reject that version although they offer it. The last ones are of things that do not exist.
_WANTED_CODES = {
    ("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE),
    ("OffsetCommit", ErrorCode.UNSUPPORTED_VERSION),
    ("OffsetFetch", ErrorCode.UNSUPPORTED_VERSION),
    ("ElectLeaders", ErrorCode.ELECTION_NOT_NEEDED),
    ("UpdateFeatures", ErrorCode.INVALID_REQUEST),
    ("UpdateFeatures", ErrorCode.INVALID_UPDATE_VERSION),
    ("AddRaftVoter", ErrorCode.INCONSISTENT_CLUSTER_ID),
    ("RemoveRaftVoter", ErrorCode.INCONSISTENT_CLUSTER_ID),
    ("UnregisterBroker", ErrorCode.BROKER_ID_NOT_REGISTERED),
}


def settings(version: str) -> Mapping[str, str]:
    """Return what the broker needs beside the usual settings to serve every request."""
    wanted = dict(_SETTINGS.get(version, {}))
    for since, authorizer in _AUTHORIZERS:
        if version_numbers(version) >= since:
            wanted["authorizer.class.name"] = authorizer
            break
    else:
        return wanted
    token_key = "delegation.token.secret.key" if is_kraft(version) else "delegation.token.master.key"
    return wanted | {"super.users": "User:ANONYMOUS;User:alice", token_key: "the key of recorded tokens"}


def record(version: str, names: Collection[str] = APIS) -> int:
    """Record these APIs of one broker. Return the number of exchanges."""
    if set(names) == set(APIS):
        shutil.rmtree(fixtures.ROOT / version, ignore_errors=True)
    count = 0
    kafka = KafkaCluster(version, sasl=has_sasl(version), settings=settings(version))
    with kafka as cluster, Wire(HOST, cluster.port(1)) as wire:
        scene = set_up(cluster, wire)
        for name, ask in APIS.items():
            if name not in names:
                continue
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
    parser.add_argument(
        "--api", dest="apis", action="append", choices=list(APIS), metavar="API",
        help="only this one, such as CreateAcls, and keep the files of the others; repeatable",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    for version in chosen.versions:
        print(f"{version}: {record(version, chosen.apis or APIS)} exchanges", flush=True)
    return 0
