"""Subscriptions: what `subscribe` takes, and which topics match."""

from __future__ import annotations

import re
from typing import Any

import pytest

import kwire
from kwire.consumer.subscription import Regex, Subscription
from kwire.consumer.topic_watch import TopicWatch
from kwire.errors import ConfigurationError
from tests.cluster.snapshots import metadata, snapshot

KNOWN = snapshot({name: [(1, 0)] for name in ("orders", "orders-2", "my-orders", "__internal")}).topics


def test_names_are_a_set() -> None:
    assert Subscription.of(["b", "a", "b"]).topics == {"a", "b"}
    assert Subscription.of(iter(("a",))).matched(KNOWN) == {"a"}


def test_a_pattern_matches_from_the_beginning_and_no_internal_topics() -> None:
    assert Subscription.of(re.compile("orders")).matched(KNOWN) == {"orders", "orders-2"}
    assert Subscription.of(re.compile("orders$")).matched(KNOWN) == {"orders"}
    assert Subscription.of(re.compile(".*")).matched(KNOWN) == {"orders", "orders-2", "my-orders"}
    assert "__internal" in Subscription.of(re.compile(".*"), internal=True).matched(KNOWN)


def test_a_topic_that_may_not_be_read_does_not_match() -> None:
    known = snapshot({"a": [(1, 0)]}, errors={"b": 29}).topics
    assert Subscription.of(re.compile(".")).matched(known) == {"a"}


def test_a_pattern_of_the_broker_goes_with_names() -> None:
    subscription = Subscription.of(["a", Regex("^b")])
    assert subscription == Subscription(frozenset({"a"}), regex=Regex("^b"))
    assert str(subscription) == "a, the broker's pattern '^b'"
    assert kwire.Regex is Regex


@pytest.mark.parametrize("wrong", ["orders", b"orders", 7, None, [7], [["a"]], re.compile(b"a")])
def test_a_wrong_type_is_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match="give"):
        Subscription.of(wrong)
    with pytest.raises(TypeError, match="RE2"):
        Regex(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [[], [""], ["x" * 40_000], [Regex("a"), Regex("b")]])
def test_a_wrong_value_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        Subscription.of(wrong)
    with pytest.raises(ConfigurationError):
        Regex("")


def test_a_pattern_in_the_form_of_librdkafka_is_no_name() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Subscription.of(["a", "^orders-.*"])
    assert "'^orders-.*': for a pattern give re.compile('^orders-.*'), or kwire.Regex('^" in str(caught.value)


def test_a_topic_is_gone_when_two_refreshes_lack_it() -> None:
    watch, one = TopicWatch(), snapshot({"a": [(1, 0)], "b": [(1, 0)]})
    watch.update(one)
    lacking = one.updated(metadata({"a": [(1, 0)]}), 2.0)
    watch.update(lacking)
    assert set(watch.known) == {"a", "b"}
    assert watch.is_unsure
    watch.update(lacking)  # the same refresh
    assert set(watch.known) == {"a", "b"}
    watch.update(lacking.updated(metadata({"a": [(1, 0)]}), 3.0))
    assert set(watch.known) == {"a"}
    assert not watch.is_unsure
