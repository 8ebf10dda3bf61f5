"""Checks on facts that are hard to bring about: clocks, rights, rebalances, hanging transactions, old certificates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kwire.admin import ConfigEntry, Group, GroupLag, GroupMember, PartitionLag, Transaction
from kwire.doctor import Endpoint, Facts, Result, Status, Target, judge
from kwire.doctor.brokers import nearest_release
from kwire.doctor.facts import ClockOffset, ProbeResult
from kwire.errors import RequestTimeoutError
from kwire.net import Address, Tls
from kwire.net.probe import Resolved, TlsFacts
from kwire.protocol.messages.metadata import MetadataResponse
from kwire.protocol.releases import release_versions
from kwire.session import Sasl

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
DAY_MS = 86_400_000


def address(ip: str) -> Address:
    return Address(2, (ip, 9092))


def endpoint(host: str = "kafka", ip: str = "192.0.2.1", **facts: Any) -> Endpoint:
    resolved = Resolved(host, (address(ip),), 0.001)
    metadata = MetadataResponse(
        brokers=[MetadataResponse.Broker(node_id=1, host=host, port=9092)], controller_id=1, topics=[], cluster_id="c"
    )
    versions = dict(release_versions("4.3", has_zookeeper=False))
    known = {"resolved": resolved, "metadata": metadata, "versions": versions, "stage": "metadata"}
    return Endpoint(host, 9092, **{**known, **facts})


def judged(id: str, target: Target | None = None, **facts: Any) -> Result:
    given: dict[str, Any] = {"now_ms": NOW_MS, "bootstrap": [endpoint()], "advertised": [endpoint(node=1)], **facts}
    return judge(Facts(target or Target("kafka:9092"), **given))[id]


def text(result: Result) -> str:
    return " | ".join(f"{finding.text} -> {finding.remedy}" for finding in result.worst)


def member(name: str, *partitions: int) -> GroupMember:
    return GroupMember(name, name, "/10.0.0.1", assignment=tuple(("orders", number) for number in partitions))


def group(state: str, *members: GroupMember) -> Group:
    return Group("billing", "classic", state, "consumer", "range", members=members)


BILLING = Target("kafka:9092", group="billing")


@pytest.mark.parametrize(
    ("state", "status", "says"),
    [
        ("Stable", Status.OK, "lag 7"),
        ("PreparingRebalance", Status.WARN, "is rebalancing"),
        ("Completing Rebalance", Status.WARN, "is rebalancing"),
        ("Reconciling", Status.WARN, "a member may keep partitions"),
        ("Dead", Status.WARN, "there is no group"),
    ],
)
def test_states_of_a_group(state: str, status: Status, says: str) -> None:
    lag = GroupLag("billing", 7, (PartitionLag("orders", 0, 3, 10, 7),))
    result = judged("D26", BILLING, group=group(state, member("a", 0)), lag=lag)
    assert result.status is status
    assert says in text(result)


def test_a_group_that_lags() -> None:
    lag = GroupLag("billing", 40_300, (PartitionLag("o", 3, 1, 90, 89), PartitionLag("o", 4, 0, 40_211, 40_211)))
    result = judged("D26", BILLING, group=group("Stable", member("a", 0)), lag=lag)
    assert "40,300 records behind, 40,211 of them in o-4" in text(result)


def test_members_without_partitions() -> None:
    result = judged("D26", BILLING, group=group("Stable", member("a", 0), member("b")))
    assert "1 of 2 members of billing has no partition" in text(result)


def test_records_that_retention_deleted_before_they_were_read() -> None:
    configs = {
        name: ConfigEntry(name, value, "topic")
        for name, value in {"retention.ms": "1000", "cleanup.policy": "delete"}.items()
    }
    topic = MetadataResponse.Topic(error_code=0, name="orders", partitions=[])
    facts = {
        "lag": GroupLag("billing", 5, (PartitionLag("orders", 0, 10, 60, 50),)), "topic": topic,
        "topic_configs": configs,
    }  # fmt: skip
    target = Target("kafka:9092", group="billing", topic="orders")
    assert "before" not in text(judged("D25", target, **facts, log_starts={("orders", 0): 10}))
    late = judged("D25", target, **facts, log_starts={("orders", 0): 11})
    assert late.status is Status.FAIL
    assert "deleted records of orders-0" in text(late)


def open_for(seconds: float) -> Result:
    found = Transaction("t", "Ongoing", 1, 0, 60_000, NOW - timedelta(seconds=seconds), (("orders", 0),))
    return judged("D27", Target("kafka:9092", transactional_id="t"), transaction=found)


def test_a_transaction_that_hangs() -> None:
    assert open_for(10).status is Status.OK
    assert open_for(31).status is Status.WARN
    hanging = open_for(61)
    assert hanging.status is Status.FAIL
    assert "it hangs, and read_committed readers wait behind it -> abort it" in text(hanging)


@pytest.mark.parametrize(
    ("ahead_ms", "error_ms", "status"),
    [
        (4_000, 10, Status.OK),
        (6_000, 10, Status.WARN),
        (6_000, 2_000, Status.OK),  # it may be 4 s
        (-400_000, 10, Status.FAIL),
    ],
)
def test_clock_skew(ahead_ms: float, error_ms: float, status: Status) -> None:
    result = judged("D30", clocks=[ClockOffset("controller 1", ahead_ms, error_ms)])
    assert result.status is status
    assert ("behind" if ahead_ms < 0 else "ahead of") in text(result)


def test_a_certificate_of_the_future_shows_a_wrong_clock() -> None:
    young = endpoint(tls=TlsFacts("TLSv1.3", "x", not_before_ms=NOW_MS + 5_000, not_after_ms=NOW_MS + DAY_MS))
    assert "becomes valid in 5 s by this clock" in text(judged("D30", bootstrap=[young]))


@pytest.mark.parametrize(("days", "status"), [(29, Status.WARN), (31, Status.OK)])
def test_a_certificate_that_expires_soon(days: int, status: Status) -> None:
    facts = TlsFacts("TLSv1.3", "x", "CN=kafka", ("kafka",), 0, NOW_MS + days * DAY_MS)
    result = judged("D11", Target("k:1", tls=Tls()), bootstrap=[endpoint(tls=facts)], advertised=[])
    assert result.status is status


def test_an_old_version_of_tls() -> None:
    old = endpoint(tls=TlsFacts("TLSv1.1", "AES"))
    assert judged("D10", Target("k:1", tls=Tls()), bootstrap=[old]).status is Status.FAIL


@pytest.mark.parametrize(("lifetime_ms", "status"), [(0, Status.OK), (59_000, Status.WARN), (3_600_000, Status.OK)])
def test_the_lifetime_of_an_authentication(lifetime_ms: int, status: Status) -> None:
    one = endpoint(is_authenticated=True, session_lifetime_ms=lifetime_ms)
    assert judged("D18", Target("k:1", sasl=Sasl("PLAIN", "a", "b")), bootstrap=[one], advertised=[]).status is status


def test_localhost_advertised_by_a_broker_elsewhere() -> None:
    local = endpoint("localhost", "127.0.0.1", node=1)
    assert "that is the client itself" in text(judged("D04", advertised=[local]))
    both = judged("D04", bootstrap=[endpoint("localhost", "127.0.0.1")], advertised=[local])
    assert both.status is Status.OK


def test_a_private_address_advertised_to_the_world() -> None:
    public, private = endpoint(ip="8.8.8.8"), endpoint("10.0.0.9", "10.0.0.9", node=1)
    assert "advertises the private" in text(judged("D22", bootstrap=[public], advertised=[private]))


def test_a_rolling_upgrade() -> None:
    brokers = [
        endpoint(node=node, versions=dict(release_versions(release, has_zookeeper=False)))
        for node, release in ((1, "4.2"), (2, "4.3"))
    ]
    assert "1: about 4.2, 2: about 4.3" in text(judged("D23", advertised=brokers))


def test_features_that_differ() -> None:
    brokers = [endpoint(node=1, features={"share.version": 1}), endpoint(node=2, features={})]
    assert "share.version differs between brokers: [0, 1]" in text(judged("D14", advertised=brokers))


@pytest.mark.parametrize(("controller", "status"), [(-1, Status.FAIL), (9, Status.WARN), (1, Status.OK)])
def test_the_controller(controller: int, status: Status) -> None:
    metadata = MetadataResponse(
        brokers=[MetadataResponse.Broker(node_id=1, host="a", port=1)], controller_id=controller, topics=[]
    )
    assert judged("D20", bootstrap=[endpoint(metadata=metadata)]).status is status


def test_large_responses_that_do_not_arrive() -> None:
    lost = endpoint(large_error=RequestTimeoutError("no response in 5,000 ms"))
    assert "lower the MTU" in text(judged("D08", bootstrap=[lost]))


def test_rights() -> None:
    target = Target("kafka:9092", topic="orders", group="billing")

    def of(topic: int, group: int) -> Result:
        found = MetadataResponse.Topic(error_code=0, name="orders", partitions=[], topic_authorized_operations=topic)
        return judged("D28", target, topic=found, group_operations=group)

    assert of(1 << 3 | 1 << 4 | 1 << 8, 1 << 3 | 1 << 8).status is Status.OK
    assert "lacks Write on topic orders" in text(of(1 << 3 | 1 << 8, 1 << 3 | 1 << 8))
    assert "lacks Read on group billing" in text(of(1 << 3 | 1 << 4 | 1 << 8, 1 << 8))


def test_a_slow_or_throttled_probe() -> None:
    target = Target("kafka:9092", topic="orders", probe=True)
    assert "produce is slow" in text(judged("D29", target, probe=ProbeResult({"produce": 1.5}, offset=1)))
    assert "throttles this client by 80 ms" in text(judged("D29", target, probe=ProbeResult({}, 80, offset=1)))


def test_interfaces_of_a_vpn_matter_only_where_nothing_answers() -> None:
    assert judged("D03", interfaces=["tun0"]).status is Status.OK
    assert "tun0" in text(judged("D03", interfaces=["tun0"], bootstrap=[], advertised=[]))


@pytest.mark.parametrize("release", ["1.1", "2.8", "3.9", "4.3"])
def test_the_nearest_release(release: str) -> None:
    """A broker that lacks some APIs of its release, as an embedded one does, is still of that release."""
    versions = dict(release_versions(release, has_zookeeper=False))
    assert nearest_release(versions) == release
    for key in list(versions)[20::7]:
        del versions[key]
    assert nearest_release(versions) == release
