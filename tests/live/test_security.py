"""Test TLS, mutual TLS, SASL PLAIN and SCRAM, alone and over TLS, and their errors, on a real and an embedded broker.

The tests use `kwire.Producer` and `kwire.Consumer`, as users do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from brokers.certificates import KEY_PASSWORD, Certificates
from brokers.cluster import NEWEST, KafkaCluster
from brokers.configuration import HOST, USERS

from kwire import Admin, Consumer, Producer, Sasl, Tls
from kwire.broker import Cluster
from kwire.errors import AuthenticationError, DeliveryError, KwireError, TlsError
from tests.live.backends import create_topic
from tests.waiting import wait_until

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = USERS["alice"]


@dataclass(frozen=True)
class Secured:
    """Hold addresses by listener, and the matching files."""

    name: str
    addresses: Mapping[str, str]
    files: Certificates

    def tls(self, **changes: Any) -> Tls:
        return Tls(**{"ca_file": str(self.files.ca_file), **changes})

    def mutual_tls(self, **changes: Any) -> Tls:
        files = {"cert_file": str(self.files.client_cert_file), "key_file": str(self.files.client_key_file)}
        return self.tls(**files, **changes)


@pytest.fixture(scope="module", params=["embedded", f"kafka-{NEWEST}", "kafka-3.9.1"])
def secured(request: pytest.FixtureRequest, secure: KafkaCluster) -> Iterator[Secured]:
    if request.param != "embedded":
        real = secure if request.param.endswith(NEWEST) else request.getfixturevalue("secure_3_9")
        assert real.certificates is not None
        yield Secured(request.param, {name: real.addresses(name) for name in real.listeners}, real.certificates)
        return
    files = secure.certificates
    assert files is not None
    # A broker with a CA requires a certificate of every client, so `tls` and `mtls` are two clusters.
    server = Tls(cert_file=str(files.server_cert_file), key_file=str(files.server_key_file))
    strict = Tls(ca_file=str(files.ca_file), cert_file=server.cert_file, key_file=server.key_file)
    with (
        Cluster(brokers=1, tls=server) as tls,
        Cluster(brokers=1, tls=strict) as mtls,
        Cluster(brokers=1, sasl=USERS) as sasl,
        Cluster(brokers=1, tls=server, sasl=USERS) as sasl_tls,
    ):
        clusters = {"tls": tls, "mtls": mtls, "sasl": sasl, "sasl_tls": sasl_tls}
        for cluster in clusters.values():
            cluster.create_topic("secured")
        yield Secured("embedded", {name: cluster.bootstrap for name, cluster in clusters.items()}, files)


def round_trip(bootstrap: str, **options: Any) -> None:
    with Producer(bootstrap, delivery_timeout_ms=20_000, **options) as producer:
        placed = producer.send("secured", b"secret", partition=0).result(timeout=30)
    with Consumer(bootstrap, **options) as consumer:
        consumer.assign([("secured", 0, placed.offset)])
        assert next(consumer).value == b"secret"


def failure(bootstrap: str, **options: Any) -> KwireError:
    """Return the cause of a failed delivery."""
    with Producer(bootstrap, delivery_timeout_ms=2_000, **options) as producer, pytest.raises(KwireError) as caught:
        producer.send("secured", b"never", partition=0).result(timeout=20)
    error = caught.value
    while isinstance(error, DeliveryError) and isinstance(error.__cause__, KwireError):
        error = error.__cause__
    return error


def test_tls(secured: Secured) -> None:
    round_trip(secured.addresses["tls"], tls=secured.tls())
    round_trip(secured.addresses["tls"].replace(HOST, "localhost"), tls=secured.tls())


def test_mutual_tls(secured: Secured) -> None:
    round_trip(secured.addresses["mtls"], tls=secured.mutual_tls())
    locked = str(secured.files.client_locked_key_file)
    tls = secured.tls(cert_file=str(secured.files.client_cert_file), key_file=locked, key_password=KEY_PASSWORD)
    round_trip(secured.addresses["mtls"], tls=tls)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["sasl", "sasl_tls"])
def test_sasl(secured: Secured, listener: str, mechanism: str, user: str) -> None:
    tls = secured.tls() if listener == "sasl_tls" else None
    round_trip(secured.addresses[listener], sasl=Sasl(mechanism, user, USERS[user]), tls=tls)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD)])
def test_wrong_user_or_password(secured: Secured, mechanism: str, user: str, password: str) -> None:
    error = failure(secured.addresses["sasl"], sasl=Sasl(mechanism, user, password))
    assert isinstance(error, AuthenticationError)
    assert error.remedy
    assert password not in str(error)


def test_sasl_of_a_broker_before_1_0() -> None:
    """Its SASL messages have no header, and it closes the connection on a failure (before KIP-152)."""
    with KafkaCluster("0.11.0.3", sasl=True) as old:
        create_topic(old.bootstrap, "secured")
        for mechanism, user in zip(MECHANISMS, ("alice", "bob", "bob"), strict=True):
            round_trip(old.addresses("sasl"), sasl=Sasl(mechanism, user, USERS[user]))
        error = failure(old.addresses("sasl"), sasl=Sasl("PLAIN", "alice", "wrong"))
    assert isinstance(error, AuthenticationError)
    assert error.remedy


def test_broker_with_an_untrusted_authority(secured: Secured) -> None:
    error = failure(secured.addresses["tls"], tls=secured.tls(ca_file=str(secured.files.other_ca_file)))
    assert isinstance(error, TlsError)
    assert "certificate" in str(error)
    assert error.remedy


def test_broker_whose_name_is_not_in_its_certificate(secured: Secured) -> None:
    error = failure(secured.addresses["tls"], tls=secured.tls(server_name="elsewhere.example"))
    assert isinstance(error, TlsError)
    assert "elsewhere.example" in str(error)


def test_revoked_certificate_of_the_broker(secured: Secured) -> None:
    round_trip(secured.addresses["tls"], tls=secured.tls(crl_file=str(secured.files.empty_crl_file)))
    error = failure(secured.addresses["tls"], tls=secured.tls(crl_file=str(secured.files.crl_file)))
    assert isinstance(error, TlsError)
    assert "revoked" in str(error)


def test_principal_of_a_certificate(secured: Secured) -> None:
    """Every broker says the same of a name with types and characters that Java writes in its own way."""
    named = str(secured.files.named_client_file)
    owners = []
    for tls in (secured.mutual_tls(), secured.tls(cert_file=named)):
        with Admin(secured.addresses["mtls"], tls=tls) as admin:
            owners.append(admin.tokens.create(timeout=30).owner)
    email = b"me@kwire.test"
    assert owners == [
        "User:CN=kwire-client",
        f"User:1.2.840.113549.1.9.1=#16{len(email):02x}{email.hex()},CN=\\ me\\ ,DC=kwire,"
        'OU=c\\"d\\<e\\>\\;\\#\\\\,OU=a\\=b,O=Ä\\, B \\+ C,C=DE',
    ]


def test_delegation_token(secured: Secured) -> None:
    bootstrap = secured.addresses["sasl"]
    with Admin(bootstrap, sasl=Sasl("SCRAM-SHA-512", "alice", PASSWORD)) as admin:
        token = admin.tokens.create(timeout=30)
        # A broker knows a token only once the controller has told it.
        wait_until(lambda: token.id in [one.id for one in admin.tokens.list(timeout=30)])
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = Sasl.delegation_token(token.id, token.hmac, mechanism)
            round_trip(bootstrap, sasl=login)
        error = failure(bootstrap, sasl=Sasl.delegation_token(token.id, b"guess"))
        assert isinstance(error, AuthenticationError)
        assert token.id in str(error)
        assert token.password not in str(error)
        with Admin(bootstrap, sasl=login) as by_token, pytest.raises(KwireError, match=r"(?i)delegation"):
            by_token.tokens.create(timeout=30)  # a token cannot make another
        admin.tokens.expire(token, timeout=30)
        wait_until(lambda: token.id not in [one.id for one in admin.tokens.list(timeout=30)])
    assert isinstance(failure(bootstrap, sasl=login), AuthenticationError)


def test_client_without_the_required_certificate(secured: Secured) -> None:
    error = failure(secured.addresses["mtls"], tls=secured.tls())
    assert isinstance(error, TlsError)
    assert error.remedy
