"""OAUTHBEARER with a real OIDC server and a real broker, which verifies tokens by JWKS and ends sessions (KIP-368)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from brokers.cluster import KafkaCluster
from brokers.oidc import OidcServer

from kwire import Admin, Consumer, Producer, Sasl, Tls
from kwire.errors import AuthenticationError, KwireError, LoginError
from tests.live.backends import create_topic
from tests.token_server import Issuer

_SESSION_MS = 4_000
# How long the load goes on: five sessions, or as long as this says. Ten minutes:
#   KWIRE_REAUTH_SECONDS=600 pytest tests/live/test_oauth.py -k renewed
_SECONDS = float(os.environ.get("KWIRE_REAUTH_SECONDS", 5 * _SESSION_MS / 1000))


@pytest.fixture(scope="module")
def oidc() -> Iterator[OidcServer]:
    with OidcServer() as server:
        yield server


@pytest.fixture(scope="module")
def broker(oidc: OidcServer) -> Iterator[KafkaCluster]:
    settings = {"connections.max.reauth.ms": str(_SESSION_MS)}
    with KafkaCluster(tls=True, jwks_url=oidc.jwks_url, settings=settings) as cluster:
        create_topic(cluster.bootstrap, "secured")
        yield cluster


def failure(bootstrap: str, sasl: Sasl) -> Any:
    with Admin(bootstrap, sasl=sasl, request_timeout_ms=5_000) as admin, pytest.raises(KwireError) as caught:
        admin.topics.list(timeout=10)
    error: Any = caught.value
    while not isinstance(error, AuthenticationError) and error.__cause__ is not None:
        error = error.__cause__
    return error


@pytest.mark.timeout(_SECONDS + 150)
def test_sessions_are_renewed_under_load_and_no_record_is_lost(broker: KafkaCluster, oidc: OidcServer) -> None:
    """The broker ends each session after four seconds, if it is not renewed."""
    sasl = Sasl.oauth_client_credentials(oidc.token_url, "kwire", "secret", scope="kafka")
    bootstrap = broker.addresses("oauth")
    until = time.monotonic() + _SECONDS
    sent: list[int] = []
    got: list[int] = []
    pause = threading.Event()
    with Producer(bootstrap, sasl=sasl) as producer, Consumer(bootstrap, sasl=sasl) as consumer:
        consumer.assign([("secured", 0, 0)])
        while time.monotonic() < until:
            results = [producer.send("secured", str(len(sent) + n).encode(), partition=0) for n in range(100)]
            sent += range(len(sent), len(sent) + 100)
            for result in results:
                result.result(timeout=30)
            got += [int(record.value or b"-1") for record in consumer.poll(timeout=1.0)]
            pause.wait(0.02)
        deadline = time.monotonic() + 30
        while len(got) < len(sent) and time.monotonic() < deadline:
            got += [int(record.value or b"-1") for record in consumer.poll(timeout=1.0)]
        for client in (producer, consumer):
            brokers = client.metrics().cluster.brokers.values()
            assert sum(one.losses for one in brokers) == 0
            assert sum(one.connects for one in brokers) <= 4
    assert got == sent


@pytest.mark.parametrize("grant", ["jwt_bearer", "client_credentials"])
def test_assertions(broker: KafkaCluster, oidc: OidcServer, grant: str, tmp_path: Any) -> None:
    from cryptography.hazmat.primitives import serialization

    key = tmp_path / "key.pem"
    plain = serialization.NoEncryption()
    key.write_bytes(Issuer().key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    claims = {"iss": "kwire", "sub": "kwire", "aud": oidc.token_url}
    sasl = Sasl.oauth_assertion(
        oidc.token_url, private_key=str(key), claims=claims, grant=grant, client_id="kwire", scope="kafka", has_id=True
    )
    with Admin(broker.addresses("oauth"), sasl=sasl) as admin:
        assert "secured" in str(admin.topics.list())


def test_over_tls(broker: KafkaCluster, oidc: OidcServer) -> None:
    files = broker.certificates
    assert files is not None
    sasl = Sasl.oauth_client_credentials(oidc.token_url, "kwire", "secret", scope="kafka")
    with Admin(broker.addresses("oauth_tls"), sasl=sasl, tls=Tls(ca_file=str(files.ca_file))) as admin:
        assert "secured" in str(admin.topics.list())


def test_kafka_3_9(secure_3_9: KafkaCluster, issuer: Issuer) -> None:
    files = secure_3_9.certificates
    assert files is not None
    tls = Tls(ca_file=str(files.ca_file))
    for listener, with_tls in (("oauth", None), ("oauth_tls", tls)):
        with Admin(secure_3_9.addresses(listener), sasl=Sasl.oauth(issuer.token), tls=with_tls) as admin:
            assert "secured" in str(admin.topics.list())
    for refused in (issuer.token(aud="others"), Issuer().token(), issuer.token(lifetime=-3600)):
        error = failure(secure_3_9.addresses("oauth"), Sasl.oauth(partial(unexpired, refused)))
        assert type(error) is AuthenticationError
        assert "rejected" in str(error)


def test_an_unknown_audience_a_foreign_key_and_an_expired_token(broker: KafkaCluster, oidc: OidcServer) -> None:
    bootstrap = broker.addresses("oauth")
    other = Sasl.oauth_client_credentials(oidc.token_url, "kwire", "secret", scope="elsewhere")
    stranger = Issuer().token()
    expired = Issuer().token(lifetime=-3600)
    for sasl in (other, Sasl.oauth(lambda: stranger), Sasl.oauth(partial(unexpired, expired))):
        start = time.monotonic()
        error = failure(bootstrap, sasl)
        assert type(error) is AuthenticationError
        assert "rejected" in str(error)
        assert time.monotonic() - start < 10


def unexpired(token: str) -> tuple[str, float]:
    """Return a token that may have expired, as if this machine's clock were wrong."""
    return token, time.time() + 600


def test_a_token_server_that_is_not_there(broker: KafkaCluster) -> None:
    sasl = Sasl.oauth_client_credentials("http://127.0.0.1:1/token", "kwire", "secret")
    assert isinstance(failure(broker.addresses("oauth"), sasl), LoginError)
