"""Delegation tokens that the controller does not know yet, or no longer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kwire import Admin, Sasl
from kwire.broker import Cluster
from kwire.broker.faults import Disconnect, Refuse
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol import ApiKey

NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(1, sasl={"alice": "hers"}) as running:
        yield running


@pytest.fixture
def alice(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap, sasl=Sasl("PLAIN", "alice", "hers"), retry_backoff_ms=10) as running:
        yield running


@pytest.mark.parametrize(("verb", "api"), [("renew", "RENEW"), ("expire", "EXPIRE")])
def test_a_new_token_is_changed_once_the_controller_knows_it(
    cluster: Cluster, alice: Admin, verb: str, api: str
) -> None:
    token = alice.tokens.create()
    fault = cluster.add_fault(Refuse(NOT_FOUND), api=ApiKey[f"{api}_DELEGATION_TOKEN"], times=3)
    changed = getattr(alice.tokens, verb)(token)
    assert fault.hits == 3
    assert changed <= token.lives_until


def test_a_token_that_is_gone_is_an_error(cluster: Cluster, alice: Admin) -> None:
    token = alice.tokens.create()
    alice.tokens.expire(token)
    fault = cluster.add_fault(Refuse(NOT_FOUND), api=ApiKey.RENEW_DELEGATION_TOKEN, times=None)
    with pytest.raises(BrokerError) as caught:  # after the patience, which is shorter than the timeout
        alice.tokens.renew(token, timeout=60)
    assert (caught.value.code, fault.hits > 1) == (NOT_FOUND, True)
    hits = fault.hits
    with pytest.raises(BrokerError) as caught:  # nobody knows how old this one is
        alice.tokens.renew(token.hmac, timeout=60)
    assert (caught.value.code, fault.hits) == (NOT_FOUND, hits + 1)


def test_a_token_whose_end_got_no_response_counts_as_ended(cluster: Cluster, alice: Admin) -> None:
    token = alice.tokens.create(lifetime=timedelta(hours=1))
    cluster.add_fault(Disconnect(applied=True), api=ApiKey.EXPIRE_DELEGATION_TOKEN, times=1)
    assert alice.tokens.expire(token) < token.expires_at
    assert alice.tokens.list() == []
