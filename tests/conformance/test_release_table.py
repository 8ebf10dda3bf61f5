"""The table of releases behind `kwire versions --release`, against Kafka's schemas of those releases."""

import pytest

from kwire.protocol import ApiKey
from kwire.protocol.releases import release_versions
from tests.conformance import oracle

# 4.0 removed ZooKeeper.
MODES = [(one, mode) for one in oracle.RELEASES for mode in ("zkBroker", "broker") if mode == "broker" or one < "4"]


@pytest.mark.parametrize(("release", "listener"), MODES)
def test_the_table_is_what_the_schemas_say(release: str, listener: str) -> None:
    expected = {}
    for schema in oracle.schemas(release).values():
        if schema["type"] == "request" and listener in schema.get("listeners", ()):
            versions = oracle.versions(schema["validVersions"])
            if schema.get("latestVersionUnstable"):
                versions = versions[:-1]
            if versions:
                expected[schema["apiKey"]] = versions
    table = release_versions(release.rpartition(".")[0], has_zookeeper=listener == "zkBroker")
    if release > "4":
        # The range that brokers advertise (KAFKA-18659), not the one that they accept.
        expected[ApiKey.PRODUCE] = range(expected[ApiKey.PRODUCE].stop)
    assert dict(table) == expected
