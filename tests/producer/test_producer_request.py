"""Requests with parameters: their delivery options, and which records may share a batch."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kwire.errors import ConfigurationError
from kwire.producer.message import Message
from kwire.producer.options import ProducerSettings
from kwire.producer.producer_request import DeliveryOptions, ProducerRequest, may_share


def test_messages_in_the_proposals_order() -> None:
    request = (
        ProducerRequest().add_message("a", "k1", "v1").add_message("b", b"k2", b"v2", partition=3, headers={"h": "x"})
    )
    assert list(request) == [
        Message("a", key="k1", value="v1"),
        Message("b", key=b"k2", value=b"v2", partition=3, headers={"h": "x"}),
    ]
    assert len(request) == 2


@pytest.mark.parametrize(
    ("settings", "build", "expected"),
    [
        # The producer's own parameters need no options, so such records share its batches.
        ({}, lambda r: r, None),
        ({}, lambda r: r.await_committed(), None),
        ({"acks": 1}, lambda r: r.await_acks(1), None),
        # An idempotent producer waits for all replicas, which is more than requested.
        ({}, lambda r: r.await_acks(1), None),
        ({}, lambda r: r.await_acks(0), None),
        # Producers without idempotence use the request's acks, higher or lower.
        ({"idempotence": False}, lambda r: r.await_acks(1), DeliveryOptions(1)),
        ({"ordered": False}, lambda r: r.await_acks(0), DeliveryOptions(0)),
        ({"acks": 1}, lambda r: r.await_committed(), DeliveryOptions(-1)),
        ({"acks": 0}, lambda r: r.await_committed(), DeliveryOptions(-1)),
        ({"acks": 1}, lambda r: r.await_acks(1).await_committed(), DeliveryOptions(-1)),
        # A time limit counts from `send`.
        ({}, lambda r: r.timeout(1.5), DeliveryOptions(-1, 1.5, 11.5)),
        ({"acks": 1}, lambda r: r.timeout(2).await_committed(), DeliveryOptions(-1, 2.0, 12.0)),
        ({}, lambda r: r.timeout(2).await_acks(1), DeliveryOptions(-1, 2.0, 12.0)),
    ],
)
def test_terms(settings: dict[str, Any], build: Any, expected: DeliveryOptions | None) -> None:
    assert build(ProducerRequest()).terms(ProducerSettings(**settings), 10.0) == expected


@pytest.mark.parametrize("count", [2, -1, 3, True, "all"])
def test_brokers_count_no_replicas(count: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"min\.insync\.replicas"):
        ProducerRequest().await_acks(count)


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
def test_wrong_time_limits(seconds: float) -> None:
    with pytest.raises(ConfigurationError):
        ProducerRequest().timeout(seconds)


@pytest.mark.parametrize(
    ("batch", "record", "expected"),
    [
        (None, None, True),
        (None, DeliveryOptions(1), False),
        (DeliveryOptions(1), None, False),
        (DeliveryOptions(1), DeliveryOptions(1), True),
        (DeliveryOptions(1), DeliveryOptions(-1), False),
        (DeliveryOptions(-1, 1.0, 5.0), DeliveryOptions(-1, 1.0, 5.0), True),
        (DeliveryOptions(-1, 1.0, 5.0), DeliveryOptions(-1, 1.0, 5.1), True),  # loses a tenth of its limit
        (DeliveryOptions(-1, 1.0, 5.0), DeliveryOptions(-1, 1.0, 5.11), False),
        (DeliveryOptions(-1, 1.0, 5.0), DeliveryOptions(-1, 1.0, 4.99), False),  # the batch would be late for it
        (DeliveryOptions(-1, 1.0, 5.0), DeliveryOptions(-1, 2.0, 5.0), False),
        (DeliveryOptions(-1, 1.0, 5.0), DeliveryOptions(1, 1.0, 5.0), False),
        (DeliveryOptions(-1, 1.0, 5.0), DeliveryOptions(-1), False),
    ],
)
def test_which_records_may_share_a_batch(
    batch: DeliveryOptions | None, record: DeliveryOptions | None, expected: bool
) -> None:
    assert may_share(batch, record) is expected


def test_repr_has_the_acks_and_the_time_limit() -> None:
    assert repr(ProducerRequest()) == "<ProducerRequest of 0 messages, the producer's acks>"
    request = ProducerRequest().add_message("t").timeout(2).await_acks(1)
    assert repr(request) == "<ProducerRequest of 1 messages, 1 acks, within 2.0 s>"
    assert "committed" in repr(request.await_committed())


@pytest.mark.parametrize("seconds", [1_000, 30_000.0])
def test_a_timeout_that_looks_like_milliseconds_is_warned_about(seconds: float) -> None:
    with pytest.warns(UserWarning, match="these are seconds, not milliseconds") as warned:
        ProducerRequest().timeout(seconds)
    assert warned[0].filename == __file__
    ProducerRequest().timeout(999)
