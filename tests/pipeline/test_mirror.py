"""What a mirror checks before it begins; that it copies is in test_on_spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kwire
from kwire.broker import Cluster
from kwire.errors import ConfigurationError
from kwire.pipeline.mirror import MirrorPlan, prepare_topics
from kwire.pipeline.sides import Cluster as Brokers
from tests.pipeline.test_sides import create


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Brokers, Brokers]]:
    with Cluster(brokers=1) as source, Cluster(brokers=1) as target:
        yield Brokers(source.bootstrap), Brokers(target.bootstrap)


def test_topics_are_checked_before_a_mirror_begins(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    create(source.bootstrap, "wide", partitions=3)
    plan = MirrorPlan(("wide",))
    with pytest.raises(ConfigurationError, match="the target has no topic wide: create it, or add --create-topics"):
        prepare_topics(plan, source, target, creates=False)
    create(target.bootstrap, "wide", partitions=2)
    with pytest.raises(ConfigurationError, match="wide has 2 partitions on the target, wide 3 on the source"):
        prepare_topics(plan, source, target, creates=True)
    assert prepare_topics(MirrorPlan(("wide",), keeps_partitions=False), source, target, creates=True) == []
    with pytest.raises(ConfigurationError, match="the source has no topic nowhere"):
        prepare_topics(MirrorPlan(("nowhere",)), source, target, creates=True)


def test_topics_are_created_like_those_of_the_source(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    create(source.bootstrap, "orders", "payments", partitions=4)
    plan = MirrorPlan(("orders", "payments"), prefix="eu.")
    assert prepare_topics(plan, source, target, creates=True) == ["eu.orders", "eu.payments"]
    assert prepare_topics(plan, source, target, creates=True) == []
    with kwire.Consumer(target.bootstrap) as consumer:
        assert consumer.partitions("eu.orders") == [0, 1, 2, 3]


@pytest.mark.parametrize(("topics", "prefix"), [((), ""), (("a'b",), ""), (("orders",), "x'")])
def test_names_that_no_topic_has(topics: tuple[str, ...], prefix: str) -> None:
    with pytest.raises(ConfigurationError):
        MirrorPlan(topics, prefix)
