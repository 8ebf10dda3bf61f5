"""Whoever is refused gets a typed error within the request timeout, and does not knock in a storm.

A relay before the broker counts the connections. The client of each test has work that waits for as long as it may.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from brokers.certificates import Certificates, make_certificates

import kwire
from kwire import Sasl, Tls
from kwire.broker import Cluster, OAuthValidator, SaslServer
from kwire.errors import (
    AuthenticationError,
    KwireError,
    LoginError,
    NodeError,
    NotKafkaError,
    TlsError,
)
from tests.relay import Relay
from tests.token_server import Issuer

TIMEOUT_MS = 2_000
# What the back-off between connections (50 ms to 1 s) allows in that time, and a few for their jitter.
CONNECTIONS_MAX = 12
ISSUER = Issuer()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def clusters(files: Certificates) -> Iterator[dict[str, Cluster]]:
    """Return clusters by what they want of clients."""
    sasl = SaslServer(
        {"alice": "hers"}, oauth=OAuthValidator(jwks=ISSUER.jwks(), audience="kafka", issuer="https://issuer")
    )
    server = Tls(cert_file=str(files.server_cert_file), key_file=str(files.server_key_file))
    revoking = Tls(
        cert_file=str(files.server_cert_file), key_file=str(files.server_key_file), ca_file=str(files.ca_file),
        crl_file=str(files.crl_file),
    )  # fmt: skip
    with (
        Cluster(1, topics={"t": 1}) as plain,
        Cluster(1, topics={"t": 1}, sasl=sasl) as by_sasl,
        Cluster(1, topics={"t": 1}, sasl={"alice": "hers"}) as by_users,
        Cluster(1, topics={"t": 1}, tls=server) as by_tls,
        Cluster(1, topics={"t": 1}, tls=revoking) as by_certificate,
    ):
        yield {
            "plain": plain, "sasl": by_sasl, "users": by_users, "tls": by_tls, "certificate": by_certificate,
        }  # fmt: skip


def unexpired(**claims: Any) -> Sasl:
    """Return a login by a token that this client believes to be valid."""
    return Sasl.oauth(lambda: (ISSUER.token(**claims), time.time() + 600))


def no_token() -> str:
    raise OSError("the token server is down")


def authority(files: Certificates) -> Tls:
    return Tls(ca_file=str(files.ca_file))


def revoked_client(files: Certificates) -> Tls:
    # The list has the server's certificate, which is a client's here.
    return Tls(str(files.ca_file), str(files.server_cert_file), str(files.server_key_file))


Options = Callable[[Certificates], dict[str, Any]]

# What is wrong: the cluster, the options of the client, the error, and words of it.
CASES: dict[str, tuple[str, Options, type[NodeError], str]] = {
    "wrong password": ("sasl", lambda _: {"sasl": Sasl("PLAIN", "alice", "his")}, AuthenticationError, "rejected"),
    "wrong password, SCRAM": (
        "sasl", lambda _: {"sasl": Sasl("SCRAM-SHA-512", "alice", "his")}, AuthenticationError, "rejected",
    ),
    "unknown user": ("sasl", lambda _: {"sasl": Sasl("SCRAM-SHA-256", "eve", "x")}, AuthenticationError, "rejected"),
    "unknown mechanism": (
        "users", lambda _: {"sasl": Sasl.oauth(ISSUER.token)}, AuthenticationError, "does not offer",
    ),
    "expired token": ("sasl", lambda _: {"sasl": unexpired(lifetime=-3600)}, AuthenticationError, "rejected"),
    "token of the future": (
        "sasl", lambda _: {"sasl": unexpired(iat=time.time() + 3600, nbf=time.time() + 3600)}, AuthenticationError,
        "rejected",
    ),
    "unknown audience": ("sasl", lambda _: {"sasl": unexpired(aud="others")}, AuthenticationError, "rejected"),
    "foreign key": (
        "sasl", lambda _: {"sasl": Sasl.oauth(lambda: Issuer().token())}, AuthenticationError, "rejected",
    ),
    "no token": ("sasl", lambda _: {"sasl": Sasl.oauth(no_token)}, LoginError, "token"),
    "no SASL": ("sasl", lambda _: {}, NodeError, ""),
    "SASL where there is none": ("plain", lambda _: {"sasl": Sasl("PLAIN", "a", "b")}, AuthenticationError, "SASL"),
    "unknown authority": ("tls", lambda files: {"tls": Tls(ca_file=str(files.other_ca_file))}, TlsError, "certificate"),
    "wrong host name": (
        "tls", lambda files: {"tls": Tls(ca_file=str(files.ca_file), server_name="elsewhere.example")}, TlsError,
        "elsewhere.example",
    ),
    "revoked certificate of the broker": (
        "tls", lambda files: {"tls": Tls(str(files.ca_file), crl_file=str(files.crl_file))}, TlsError,
        "revoked",
    ),
    "revoked certificate of the client": ("certificate", lambda f: {"tls": revoked_client(f)}, NodeError, ""),
    "no certificate": ("certificate", lambda files: {"tls": authority(files)}, NodeError, ""),
    "TLS where there is none": ("plain", lambda files: {"tls": authority(files)}, NodeError, ""),
    "no TLS": ("tls", lambda _: {}, NotKafkaError, "speaks TLS"),
}  # fmt: skip


def administer(bootstrap: str, options: dict[str, Any]) -> None:
    with kwire.Admin(bootstrap, request_timeout_ms=TIMEOUT_MS, **options) as admin:
        admin.topics.list()


def produce(bootstrap: str, options: dict[str, Any]) -> None:
    with kwire.Producer(
        bootstrap, request_timeout_ms=TIMEOUT_MS, delivery_timeout_ms=TIMEOUT_MS, **options
    ) as producer:
        sent = [producer.send("t", b"x") for _ in range(20)]
        sent[0].result(timeout=30)


def consume(bootstrap: str, options: dict[str, Any]) -> None:
    with kwire.Consumer(bootstrap, group="g", request_timeout_ms=TIMEOUT_MS, **options) as consumer:
        consumer.subscribe(["t"])
        until = time.monotonic() + TIMEOUT_MS / 1000
        while time.monotonic() < until:
            consumer.poll(timeout=0.5)
        # What may pass by itself does not end a poll; a call with a timeout says why it fails.
        consumer.end_offsets([("t", 0)], timeout=1)


@pytest.mark.slow
@pytest.mark.parametrize("work", [administer, produce, consume])
@pytest.mark.parametrize("case", CASES)
def test_a_refusal_is_a_typed_error_in_time_and_no_storm(
    clusters: dict[str, Cluster], files: Certificates, case: str, work: Callable[[str, dict[str, Any]], None]
) -> None:
    where, options, kind, words = CASES[case]
    host, _, port = clusters[where].bootstrap.rpartition(":")
    relay = Relay((host, int(port)))
    start = time.monotonic()
    with contextlib.closing(relay), pytest.raises(KwireError) as caught:
        work(relay.bootstrap, options(files))
    took = time.monotonic() - start
    assert took < TIMEOUT_MS / 1000 + 6
    chain: list[BaseException] = [caught.value]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    named = [error for error in chain if isinstance(error, kind)]
    assert named, chain
    assert words in str(named[0])
    assert named[0].remedy, named[0]
    assert relay.accepted <= CONNECTIONS_MAX, f"{relay.accepted} connections in {took:.1f} s"
