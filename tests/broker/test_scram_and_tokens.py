"""SCRAM users, delegation tokens and the throttling of producers, with clients on real sockets."""

from __future__ import annotations

import time
from datetime import timedelta
from random import Random

import pytest

from kwire import Admin, Sasl
from kwire.broker.authorizer import Access, Authorizer
from kwire.broker.delegation_tokens import DelegationTokens
from kwire.errors import AuthenticationError, BrokerError, ErrorCode
from kwire.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.session import SaslServer
from tests.broker.bench import batch
from tests.broker.client import Client
from tests.broker.conftest import StartCluster
from tests.broker.virtual_cluster import VirtualCluster

USERS = {"alice": "alice's", "bob": "bob's"}
ALICE = Sasl("PLAIN", "alice", "alice's")
_DAY_MS = 86_400_000


def test_scram_users_come_and_go(start: StartCluster) -> None:
    cluster = start(1, sasl=USERS)
    with Admin(cluster.bootstrap, sasl=ALICE) as admin:
        assert admin.users.list()["bob"].iterations == {"SCRAM-SHA-256": 4_096, "SCRAM-SHA-512": 4_096}
        admin.users.set_scram("carol", "hers", mechanism="SCRAM-SHA-256", iterations=5_000)
        assert admin.users.list()["carol"].iterations == {"SCRAM-SHA-256": 5_000}
        with Admin(cluster.bootstrap, sasl=Sasl("SCRAM-SHA-256", "carol", "hers")) as hers:
            assert hers.cluster.describe().brokers
        admin.users.delete_scram("carol", mechanism="SCRAM-SHA-256")
        with pytest.raises(BrokerError) as caught:
            admin.users.delete_scram("carol", mechanism="SCRAM-SHA-256")
        assert caught.value.code == ErrorCode.RESOURCE_NOT_FOUND
        with (
            Admin(cluster.bootstrap, sasl=Sasl("SCRAM-SHA-256", "carol", "hers")) as hers,
            pytest.raises(AuthenticationError),
        ):
            hers.cluster.describe()


def test_a_user_is_altered_once_in_a_request() -> None:
    """As in Kafka, two mechanisms of one user take two requests."""
    cluster = VirtualCluster(1)
    upsertions = [
        AlterUserScramCredentialsRequest.Upsertion(
            name="carol", mechanism=mechanism, iterations=4_096, salt=b"salt", salted_password=bytes(32 * mechanism)
        )
        for mechanism in (1, 2)
    ]
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
    assert [one.error_code for one in cluster.request(1, request).results] == [ErrorCode.DUPLICATE_RESOURCE]
    for upsertion in upsertions:
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
        assert [one.error_code for one in cluster.request(1, request).results] == [0]


def test_delegation_tokens_of_an_application(start: StartCluster) -> None:
    cluster = start(1, sasl=USERS)
    with Admin(cluster.bootstrap, sasl=ALICE) as alice:
        token = alice.tokens.create(renewers=["User:bob"], lifetime=timedelta(hours=1))
        assert (token.owner, token.renewers, alice.tokens.list()) == ("User:alice", ("User:bob",), [token])
        with Admin(cluster.bootstrap, sasl=Sasl("PLAIN", "bob", "bob's")) as bob:
            assert bob.tokens.renew(token, by=timedelta(minutes=5)) < token.expires_at
        alice.tokens.expire(token)
        assert alice.tokens.list() == []


class TestTokens:
    def setup_method(self) -> None:
        self.tokens = DelegationTokens(Random(0), SaslServer({}))
        self.authorizer = Authorizer(is_enabled=True)

    def access(self, user: str) -> Access:
        return Access(self.authorizer, f"User:{user}", "10.0.0.1")

    def test_times(self) -> None:
        alice = self.access("alice")
        token = self.tokens.create(alice, "", [], 3 * _DAY_MS, 0)
        assert (token.expires_ms, token.max_ms) == (_DAY_MS, 3 * _DAY_MS)
        assert self.tokens.renew(alice, token.hmac, 9 * _DAY_MS, 5) == 3 * _DAY_MS
        assert self.tokens.expire(alice, token.hmac, 10, 5) == 15
        self.check(ErrorCode.DELEGATION_TOKEN_EXPIRED, lambda: self.tokens.renew(alice, token.hmac, 1, 16))
        assert self.tokens.visible(alice, None, 16) == []

    def test_who_may_do_what(self) -> None:
        alice, bob, eve = (self.access(name) for name in ("alice", "bob", "eve"))
        token = self.tokens.create(alice, "", [("User", "bob")], -1, 0)
        assert self.tokens.visible(bob, None, 1) == [token]
        assert self.tokens.visible(eve, None, 1) == []
        self.check(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, lambda: self.tokens.expire(eve, token.hmac, -1, 1))
        self.check(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, lambda: self.tokens.expire(alice, b"no", -1, 1))
        refused = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        self.check(refused, lambda: self.tokens.create(eve, "User:alice", [], -1, 0))
        self.check(ErrorCode.INVALID_PRINCIPAL_TYPE, lambda: self.tokens.create(alice, "", [("Group", "g")], -1, 0))
        nobody = Access(self.authorizer)
        self.check(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, lambda: self.tokens.visible(nobody, None, 0))

    @staticmethod
    def check(code: ErrorCode, call: object) -> None:
        assert callable(call)
        with pytest.raises(BrokerError) as caught:
            call()
        assert caught.value.code == code


def test_a_producer_over_its_quota_is_throttled_and_muted(start: StartCluster) -> None:
    cluster = start(1, topics={"t": 1})
    with Admin(cluster.bootstrap) as admin:
        admin.quotas.set(client_id=None, producer_byte_rate=1_000)
    client = Client(cluster.brokers[1])
    records = batch(bytes(10_500))
    data = ProduceRequest.Topic.Partition(index=0, records=records)
    request = ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=[ProduceRequest.Topic(name="t", partition_data=[data])]
    )
    began = time.monotonic()
    throttled = client.request(request, 12).throttle_time_ms
    assert 400 <= throttled < 1_500
    client.request(MetadataRequest(topics=[]))
    assert time.monotonic() - began >= throttled / 1000, "the next request waits"
    client.close()


def test_a_token_makes_no_token(start: StartCluster) -> None:
    cluster = start(1, sasl=USERS)
    with Admin(cluster.bootstrap, sasl=ALICE) as admin:
        token = admin.tokens.create()
    with Admin(cluster.bootstrap, sasl=Sasl.delegation_token(token.id, token.hmac)) as admin:
        with pytest.raises(BrokerError) as caught:
            admin.tokens.create()
        assert caught.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
