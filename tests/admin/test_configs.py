"""`Admin.configs` with the embedded cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kwire import Admin
from kwire.broker import Cluster
from kwire.errors import BrokerError, ConfigurationError, ErrorCode, UnsupportedVersionError


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap) as running:
        running.topics.create("t", partitions=1)
        yield running
        running.topics.delete("t")


def test_a_value_is_set_and_reset_and_the_others_stay(admin: Admin) -> None:
    admin.configs.set({"retention.ms": 3_600_000, "segment.bytes": "2000000"}, topic="t")
    admin.configs.set({"retention.ms": 7_200_000}, topic="t")
    entry = admin.configs.get(topic="t")["retention.ms"]
    assert (entry.value, entry.source, entry.is_default, entry.type) == ("7200000", "topic", False, "long")
    assert admin.configs.get(["segment.bytes"], topic="t")["segment.bytes"].value == "2000000"
    admin.configs.reset(["retention.ms"], topic="t")
    now = admin.configs.get(topic="t")
    assert now["retention.ms"].is_default
    assert now["segment.bytes"].source == "topic"


def test_items_are_added_to_lists_and_taken_away(admin: Admin) -> None:
    admin.configs.append({"cleanup.policy": ["compact"]}, topic="t")
    assert admin.configs.get(topic="t")["cleanup.policy"].value == "delete,compact"
    admin.configs.subtract({"cleanup.policy": "delete"}, topic="t")
    assert admin.configs.get(topic="t")["cleanup.policy"].value == "compact"


def test_a_dry_run_changes_nothing_and_finds_errors(admin: Admin) -> None:
    admin.configs.set({"retention.ms": 5}, topic="t", dry_run=True)
    assert admin.configs.get(topic="t")["retention.ms"].is_default
    with pytest.raises(BrokerError) as caught:
        admin.configs.set({"retention.ms": "soon"}, topic="t", dry_run=True)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert "topic t" in str(caught.value)


def test_configs_of_brokers_and_groups(admin: Admin) -> None:
    assert admin.configs.get(broker=2)["broker.id"].value == "2"
    admin.configs.set({"consumer.session.timeout.ms": 50_000}, group="g")
    assert admin.configs.get(group="g")["consumer.session.timeout.ms"].value == "50000"


def test_several_resources_have_a_result_each(admin: Admin) -> None:
    results = admin.configs.set_many({
        ("topic", "t"): {"retention.ms": 5}, ("topic", "never"): {"retention.ms": 5},
    })  # fmt: skip
    assert results["topic", "t"] is None
    with pytest.raises(BrokerError):
        results["topic", "never"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "no resource is named"),
        ({"topic": "t", "group": "g"}, "topic and group are named"),
        ({"topic": ""}, "topic is ''"),
        ({"broker": "1"}, "broker is '1'"),
    ],
)
def test_exactly_one_resource_is_named(admin: Admin, arguments: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        admin.configs.get(**arguments)  # type: ignore[arg-type]


def test_wrong_arguments_name_the_remedy(admin: Admin) -> None:
    with pytest.raises(ConfigurationError, match="reset"):
        admin.configs.set({"retention.ms": None}, topic="t")  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="'topics' is no keyword"):
        admin.configs.get(topics="t")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match=r"names is 'retention\.ms'"):
        admin.configs.reset("retention.ms", topic="t")


@pytest.mark.parametrize("verb", ["get", "set", "delete", "set_many", "list"])
def test_brokers_without_subscriptions_to_metrics_are_too_old_not_wrong(verb: str) -> None:
    """They say INVALID_REQUEST, as for any type of resource that they do not know."""
    with Cluster(brokers=1, version="3.6") as old, Admin(old.bootstrap) as admin:
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: admin.client_metrics.get("etl"),
            "set": lambda: admin.client_metrics.set("etl", ["*"]),
            "delete": lambda: admin.client_metrics.delete("etl"),
            "set_many": lambda: admin.configs.set_many({("client_metrics", "etl"): {"metrics": "*"}})[
                "client_metrics", "etl"
            ],
            "list": admin.client_metrics.list,
        }
        with pytest.raises(UnsupportedVersionError) as refused:
            calls[verb]()
        assert refused.value.remedy


def test_a_wrong_subscription_of_new_brokers_is_what_they_say(admin: Admin) -> None:
    with pytest.raises(BrokerError) as refused:
        admin.client_metrics.set("etl", ["*"], interval_ms=1)
    assert refused.value.code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
