"""`kwire versions`: the table of Kafka's releases against real brokers, and which version is used."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from kwire.broker import Cluster
from kwire.cli.versions import (
    OPTIONAL,
    BrokerVersions,
    differences,
    has_zookeeper,
    maybe_release,
    nearest_release,
    negotiated,
    range_difference,
)
from kwire.protocol import ApiKey
from kwire.protocol.messages.api_versions import ApiVersionsResponse
from kwire.protocol.releases import RELEASES, release_versions
from tests.cli.running import run

FIXTURES = Path(__file__).parents[2] / "fixtures"


def recorded(broker: str) -> dict[int, range]:
    """Return the versions that a real broker offered."""
    newest = sorted((FIXTURES / broker).glob("api_versions_v*_response.json"))[-1]
    served = json.loads(newest.read_text())["body"]["apiKeys"]
    return {one["apiKey"]: range(one["minVersion"], one["maxVersion"] + 1) for one in served}


@pytest.mark.parametrize(("broker", "release"), [("4.3.1", "4.3"), ("2.8.2", "2.8"), ("0.11.0.3", "0.11")])
def test_the_table_equals_the_versions_of_real_brokers(broker: str, release: str) -> None:
    served = recorded(broker)
    assert has_zookeeper(served) == (release < "4")
    assert differences(served, release) == {}
    assert nearest_release(served) == (release, 0)
    expected = release_versions(release, has_zookeeper=has_zookeeper(served))
    assert {key for key in expected if key not in OPTIONAL} == set(served)
    for other in RELEASES:
        assert (differences(served, other) == {}) == (other == release)


def test_what_a_cluster_lacks_and_has_beyond() -> None:
    found = differences(recorded("2.8.2"), "3.9")
    assert found[ApiKey.FETCH] == (range(18), range(13))
    assert found[ApiKey.CONSUMER_GROUP_HEARTBEAT] == (range(1), range(0))
    assert ApiKey.HEARTBEAT not in found
    assert ApiKey.DESCRIBE_QUORUM not in found, "a broker with ZooKeeper does not have it"
    assert differences(recorded("4.3.1"), "3.9")[ApiKey.LIST_OFFSETS] == (range(10), range(1, 12))
    assert ApiKey.UPDATE_METADATA not in differences(recorded("4.3.1"), "3.9")


@pytest.mark.parametrize(
    ("text", "release"),
    [("3.9", "3.9"), ("3.9.1", "3.9"), ("v4.0.0", "4.0"), ("0.10.1.1", "0.10.1"), ("0.11.0.3", "0.11"), ("5.0", None),
     ("", None), ("4", None)],
)  # fmt: skip
def test_names_of_releases(text: str, release: str | None) -> None:
    assert maybe_release(text) == release


def test_the_highest_version_falls_only_in_4_0() -> None:
    """Only 4.0 dropped versions, except of APIs that clients never use."""
    for zookeeper in (False, True):
        for before, after in pairwise(RELEASES):
            if after == "4.0":
                continue
            old, new = (release_versions(one, has_zookeeper=zookeeper) for one in (before, after))
            assert [ApiKey(key) for key in old if key in new and new[key].stop < old[key].stop] == []
    assert len(release_versions("4.4", has_zookeeper=False)) == 79
    with pytest.raises(KeyError):
        release_versions("9.9", has_zookeeper=False)


@pytest.mark.parametrize(
    ("versions", "others", "left"),
    [
        (range(10), range(3, 5), [range(3), range(5, 10)]),
        (range(4, 10), range(12), []),
        (range(4, 10), range(2), [range(4, 10)]),
        (range(10), range(0), [range(10)]),
        (range(0), range(3), []),
        (range(3, 13), range(9), [range(9, 13)]),
    ],
)
def test_range_difference(versions: range, others: range, left: list[range]) -> None:
    assert range_difference(versions, others) == left


def test_versions_against_a_release() -> None:
    with Cluster(2) as cluster:
        ran = run("versions", "-b", cluster.bootstrap, "--release", "3.9.1")
        table = run("versions", "-b", cluster.bootstrap, "--release", "3.9", "-f", "table")
        unknown = run("versions", "-b", cluster.bootstrap, "--release", "9")
    assert ran.code == 0
    by_name = {line["name"]: line for line in ran.lines()}
    assert all(line["kind"] == "difference" and line["brokers"] == [1, 2] for line in ran.lines())
    for line in by_name.values():
        assert line["lacks"] or line["beyond"]
    assert "brokers 1,2" in table.stdout
    assert "unlike Kafka 3.9; the nearest release is" in table.stderr
    assert (unknown.code, "kwire knows 0.10.0" in unknown.stderr) == (2, True)


def broker(node: int, **ranges: tuple[int, int]) -> BrokerVersions:
    """Return the response of a broker with these versions; k3 is the API with key 3."""
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=int(key[1:]), min_version=low, max_version=high)
        for key, (low, high) in ranges.items()
    ]
    return BrokerVersions(node, "h:1", ApiVersionsResponse(error_code=0, api_keys=keys))


OLD = BrokerVersions(9, "h:9", None)


@pytest.mark.parametrize(
    ("ours", "brokers", "used"),
    [
        (range(0, 14), [broker(1, k3=(0, 12))], 12),
        (range(0, 14), [broker(1, k3=(0, 12)), broker(2, k3=(4, 9))], 9),
        (range(0, 5), [broker(1, k3=(4, 12))], 4),
        (range(0, 4), [broker(1, k3=(4, 12))], None),
        (range(0, 14), [broker(1, k3=(0, 2)), broker(2, k3=(3, 4))], None),
        (range(0, 14), [broker(1, k3=(0, 2)), broker(2)], None),
        (range(0, 14), [broker(1, k3=(5, 2))], None),
        (range(0, 14), [broker(1, k3=(0, 12)), OLD], 0),
        (None, [broker(1, k3=(0, 12))], None),
        (range(0, 14), [], None),
    ],
)
def test_negotiated(ours: range | None, brokers: list[BrokerVersions], used: int | None) -> None:
    assert negotiated(ours, brokers, 3) == used
