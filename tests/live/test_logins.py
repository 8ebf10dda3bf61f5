"""Every way to log in, plain and over TLS, and every refusal, on real brokers.

The parameters are the cells of a table, which `pytest --collect-only -q tests/live/test_logins.py` prints.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from brokers.cluster import NEWEST, KafkaCluster
from brokers.configuration import USERS
from brokers.kdc import Kdc

from kwire import Admin, Consumer, Producer, Sasl, Tls
from kwire.errors import AuthenticationError, KwireError, NodeError, TlsError
from tests.broker.test_refused_logins import CONNECTIONS_MAX
from tests.relay import Relay
from tests.token_server import Issuer
from tests.waiting import wait_until

pytestmark = pytest.mark.shared_brokers  # by getfixturevalue
PASSWORD = USERS["alice"]
BROKERS = (NEWEST, "3.9.1")
TRANSPORTS = ("plain", "TLS")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER", "GSSAPI", "delegation token", "certificate")
TIMEOUT_MS = 3_000


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest) -> KafkaCluster:
    found: KafkaCluster = request.getfixturevalue("secure" if request.param == NEWEST else "secure_3_9")
    return found


def listener(mechanism: str, transport: str) -> str:
    if mechanism == "certificate":
        return "mtls"
    name = {"OAUTHBEARER": "oauth", "GSSAPI": "kerberos"}.get(mechanism, "sasl")
    return name if transport == "plain" else f"{name}_tls"


def tls(broker: KafkaCluster, **changes: Any) -> Tls:
    assert broker.certificates is not None
    return Tls(**{"ca_file": str(broker.certificates.ca_file), **changes})


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_way_in(
    broker: KafkaCluster, mechanism: str, transport: str, issuer: Issuer, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if (mechanism, transport) == ("certificate", "plain"):
        pytest.skip("certificates are of TLS")
    kdc: Kdc | None = request.getfixturevalue("kdc") if mechanism == "GSSAPI" else None
    bootstrap = broker.addresses(listener(mechanism, transport))
    options: dict[str, Any] = {"tls": tls(broker)} if transport == "TLS" else {}
    files = broker.certificates
    assert files is not None
    if mechanism == "certificate":
        options["tls"] = tls(broker, cert_file=str(files.client_cert_file), key_file=str(files.client_key_file))
    elif mechanism == "OAUTHBEARER":
        options["sasl"] = Sasl.oauth(issuer.token)
    elif kdc is not None:
        keytab = kdc.directory / f"in-{transport}.keytab"
        kdc.add(f"in-{transport}".lower(), keytab)
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
        monkeypatch.setenv("KRB5CCNAME", str(kdc.directory / "no.cache"))
        options["sasl"] = Sasl.kerberos(keytab=str(keytab))
    elif mechanism == "delegation token":
        with Admin(bootstrap, sasl=Sasl("SCRAM-SHA-512", "alice", PASSWORD), **options) as admin:
            token = admin.tokens.create(timeout=30)
            wait_until(lambda: token.id in [one.id for one in admin.tokens.list(timeout=30)])
        options["sasl"] = Sasl.delegation_token(token.id, token.hmac)
    else:
        options["sasl"] = Sasl(mechanism, "alice", PASSWORD)
    with Producer(bootstrap, **options) as producer:
        placed = producer.send("secured", b"in", partition=0).result(timeout=30)
    with Consumer(bootstrap, **options) as consumer:
        consumer.assign([("secured", 0, placed.offset)])
        assert next(consumer).value == b"in"


def wrong(mechanism: str) -> Callable[[Issuer], Sasl]:
    return lambda _: Sasl(mechanism, "alice", "guess")


def token(**claims: Any) -> Callable[[Issuer], Sasl]:
    """Return a login by a token that this client believes to be valid."""
    return lambda issuer: Sasl.oauth(lambda: (issuer.token(**claims), time.time() + 600))


# What is wrong: the mechanism whose listener it is, the login, changes of TLS, the error, and words of it.
# Failures of Kerberos, with the skew of the clocks, are in test_kerberos.py on the same brokers.
REFUSALS: dict[str, tuple[str, Callable[[Issuer], Sasl | None], dict[str, str], type[NodeError], str]] = {
    "wrong password, PLAIN": ("PLAIN", wrong("PLAIN"), {}, AuthenticationError, "rejected"),
    "wrong password, SCRAM-SHA-256": ("SCRAM-SHA-256", wrong("SCRAM-SHA-256"), {}, AuthenticationError, "rejected"),
    "wrong password, SCRAM-SHA-512": ("SCRAM-SHA-512", wrong("SCRAM-SHA-512"), {}, AuthenticationError, "rejected"),
    "unknown user": ("SCRAM-SHA-512", lambda _: Sasl("PLAIN", "eve", "x"), {}, AuthenticationError, "rejected"),
    "unknown delegation token": (
        "delegation token", lambda _: Sasl.delegation_token("none", b"guess"), {}, AuthenticationError, "rejected",
    ),
    "mechanism that is off": ("PLAIN", lambda issuer: Sasl.oauth(issuer.token), {}, AuthenticationError, "offer"),
    "expired token": ("OAUTHBEARER", token(lifetime=-3600), {}, AuthenticationError, "rejected"),
    "unknown audience": ("OAUTHBEARER", token(aud="others"), {}, AuthenticationError, "rejected"),
    "foreign key": ("OAUTHBEARER", lambda _: Sasl.oauth(Issuer().token), {}, AuthenticationError, "rejected"),
    "wrong host name": (
        "PLAIN", lambda _: Sasl("PLAIN", "alice", PASSWORD), {"server_name": "elsewhere.example"}, TlsError,
        "elsewhere.example",
    ),
    "revoked certificate": (
        "PLAIN", lambda _: Sasl("PLAIN", "alice", PASSWORD), {"crl_file": "crl_file"}, TlsError, "revoked",
    ),
    "unknown authority": (
        "PLAIN", lambda _: Sasl("PLAIN", "alice", PASSWORD), {"ca_file": "other_ca_file"}, TlsError, "certificate",
    ),
    "no client certificate": ("certificate", lambda _: None, {}, NodeError, ""),
}  # fmt: skip


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_a_typed_error_in_time_and_no_storm(
    broker: KafkaCluster, case: str, transport: str, issuer: Issuer
) -> None:
    mechanism, login, changes, kind, words = REFUSALS[case]
    if transport == "plain" and (changes or mechanism == "certificate"):
        pytest.skip("certificates are of TLS")
    files = broker.certificates
    changed = {name: str(getattr(files, value, value)) for name, value in changes.items()}
    options: dict[str, Any] = {"tls": tls(broker, **changed)} if transport == "TLS" else {}
    options["sasl"] = login(issuer)
    host, _, port = broker.addresses(listener(mechanism, transport)).rpartition(":")
    relay = Relay((host, int(port)))
    start = time.monotonic()
    admin = Admin(relay.bootstrap, request_timeout_ms=TIMEOUT_MS, **options)
    with contextlib.closing(relay), admin, pytest.raises(KwireError) as caught:
        admin.topics.list()
    took = time.monotonic() - start
    assert took < TIMEOUT_MS / 1000 + 10
    chain: list[BaseException] = [caught.value]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    named = [error for error in chain if isinstance(error, kind)]
    assert named, chain
    assert words in str(named[0])
    assert named[0].remedy
    assert "guess" not in "".join(map(str, chain))
    assert relay.accepted <= CONNECTIONS_MAX, f"{relay.accepted} connections in {took:.1f} s"
