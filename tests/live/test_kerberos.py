"""GSSAPI with a real key distribution centre: kwire's clients at every broker, and Java's at the embedded one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from brokers.cluster import NEWEST, KafkaCluster
from brokers.commands import Commands
from brokers.jars import fetch_jars
from brokers.kdc import REALM, Kdc

import kwire
from kwire import Admin, Consumer, Producer, Sasl
from kwire.broker import Cluster, KerberosAcceptor, SaslServer
from kwire.cli import main
from kwire.doctor import Status, Target, diagnose
from kwire.errors import AuthenticationError, KerberosError, KwireError

pytestmark = pytest.mark.shared_brokers  # by getfixturevalue
PASSWORD = "alice-secret"
JAAS = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"


@dataclass(frozen=True)
class Files:
    """What the users have: keytabs and caches with tickets."""

    alice: Path
    outdated: Path
    cache: Path
    expired: Path


@pytest.fixture(scope="module")
def files(kdc: Kdc) -> Files:
    found = Files(*(kdc.directory / name for name in ("alice.keytab", "carol.keytab", "alice.cache", "expired.cache")))
    kdc.add("alice", found.alice, PASSWORD)
    kdc.add("carol", found.outdated)
    kdc.add("carol", kdc.directory / "new.keytab", "changed")
    kdc.kinit("alice", found.alice, found.cache)
    kdc.kinit("alice", found.alice, found.expired, config=kdc.start_elsewhen("-2d"), at="-2d")
    return found


@pytest.fixture(autouse=True)
def _environment(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
    monkeypatch.setenv("KRB5CCNAME", str(kdc.directory / "no.cache"))
    monkeypatch.setenv("KRB5RCACHENAME", "none:")  # of the embedded broker


@pytest.fixture(scope="module", params=["embedded", f"kafka-{NEWEST}", "kafka-3.9.1"])
def bootstrap(request: pytest.FixtureRequest, kdc: Kdc) -> Iterator[str]:
    if request.param == "embedded":
        server = SaslServer({}, kerberos=KerberosAcceptor(str(kdc.keytab)))
        with Cluster(brokers=1, topics={"secured": 1}, sasl=server) as cluster:
            yield cluster.bootstrap
            assert not cluster.failures
        return
    name = "secure" if request.param.endswith(NEWEST) else "secure_3_9"
    real: KafkaCluster = request.getfixturevalue(name)
    yield real.addresses("kerberos")


def round_trip(bootstrap: str, sasl: Sasl) -> None:
    with Producer(bootstrap, sasl=sasl) as producer:
        placed = producer.send("secured", b"with a ticket", partition=0).result(timeout=30)
    with Consumer(bootstrap, sasl=sasl) as consumer:
        consumer.assign([("secured", 0, placed.offset)])
        assert next(consumer).value == b"with a ticket"


def failure(bootstrap: str, sasl: Sasl) -> Any:
    """Return why a login failed, within the time of a request and without a storm of connections."""
    start = time.monotonic()
    with Producer(bootstrap, sasl=sasl, request_timeout_ms=3_000, delivery_timeout_ms=3_000) as producer:
        with pytest.raises(KwireError) as caught:
            producer.send("secured", b"never", partition=0).result(timeout=10)
        assert sum(one.connects for one in producer.metrics().cluster.brokers.values()) < 20
    assert time.monotonic() - start < 10
    error: Any = caught.value
    while not isinstance(error, AuthenticationError) and error.__cause__ is not None:
        error = error.__cause__
    assert error.remedy
    return error


@pytest.mark.parametrize("source", ["keytab", "password", "cache"])
def test_a_ticket_logs_in(bootstrap: str, files: Files, source: str) -> None:
    logins = {
        "keytab": Sasl.kerberos(principal="alice", keytab=str(files.alice)),
        "password": Sasl.kerberos(principal=f"alice@{REALM}", password=lambda: PASSWORD),
        "cache": Sasl.kerberos(ccache=str(files.cache)),
    }
    round_trip(bootstrap, logins[source])


def test_asyncio(bootstrap: str, files: Files) -> None:
    async def send() -> int:
        sasl = Sasl.kerberos(keytab=str(files.alice))
        async with kwire.aio.Producer(bootstrap, sasl=sasl) as producer:
            return (await (await producer.send("secured", b"1"))).offset

    assert asyncio.run(send()) >= 0


def test_each_failure_says_its_reason(bootstrap: str, files: Files, kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    logins = [
        (Sasl.kerberos(), "no ticket"),
        (Sasl.kerberos(ccache=str(files.expired)), "expired ticket"),
        (Sasl.kerberos("http", ccache=str(files.cache)), "unknown service"),
        (Sasl.kerberos(principal="alice", password="guess"), "wrong key"),
        (Sasl.kerberos(principal="carol", keytab=str(files.outdated)), "wrong key"),
        (Sasl.kerberos(principal="carol", keytab=str(files.alice)), "wrong key"),
        (Sasl.kerberos(principal="nobody", password="guess"), "unknown principal"),
    ]
    errors = [failure(bootstrap, sasl) for sasl, _ in logins]
    assert all(isinstance(error, KerberosError) for error in errors)
    assert [error.reason for error in errors] == [reason for _, reason in logins]
    assert not [error for error in errors if "guess" in str(error)]
    keytab = Sasl.kerberos(principal="alice", keytab=str(files.alice))
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.write_config("no-kdc.conf", 1)))
    assert failure(bootstrap, keytab).reason == "no kdc"


def test_clocks_that_differ(bootstrap: str, files: Files, kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose centre lives in the future notices it, or else, if it corrects its own clock, the broker does."""
    sasl = Sasl.kerberos(principal="alice", keytab=str(files.alice))
    config = kdc.start_elsewhen("+2h")
    monkeypatch.setenv("KRB5_CONFIG", str(config))
    error = failure(bootstrap, sasl)
    assert type(error) is AuthenticationError
    assert "clocks" in str(error.remedy)
    config.write_text(config.read_text().replace("[libdefaults]", "[libdefaults]\n  kdc_timesync = 0"))
    assert failure(bootstrap, sasl).reason == "clock skew"


def test_doctor_and_a_property_file(bootstrap: str, files: Files, tmp_path: Path, capfd: Any) -> None:
    sasl = Sasl.kerberos(principal="alice", keytab=str(files.alice))
    report = diagnose(Target(bootstrap, sasl=sasl))
    assert [report[name].status for name in ("D15", "D16", "D17", "D18")] == [Status.OK] * 4
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={JAAS} keyTab="{files.alice}" principal="alice@{REALM}";\n'
    )
    with pytest.raises(SystemExit) as exited:
        main(["topics", "list", "-b", bootstrap, "--command-config", str(properties)])
    assert not exited.value.code
    assert "secured" in capfd.readouterr().out


def test_the_embedded_broker_names_users_by_kafkas_default_rule(files: Files, kdc: Kdc) -> None:
    sasl = Sasl.kerberos(keytab=str(files.alice))
    service = Sasl.kerberos(keytab=str(kdc.keytab))
    with Cluster(brokers=1, sasl=SaslServer({}, kerberos=KerberosAcceptor(str(kdc.keytab)))) as cluster:
        for login, name in ((sasl, "alice"), (service, "kafka")):
            with Admin(cluster.bootstrap, sasl=login) as admin:
                assert admin.tokens.create().owner == f"User:{name}"
    with Cluster(brokers=1, sasl=SaslServer({}, kerberos=KerberosAcceptor(str(kdc.keytab), realm="OTHER"))) as cluster:
        assert type(failure(cluster.bootstrap, sasl)) is AuthenticationError


def test_a_broker_with_an_outdated_keytab_refuses(files: Files, kdc: Kdc, tmp_path: Path) -> None:
    with Cluster(brokers=1, sasl=SaslServer({}, kerberos=KerberosAcceptor(str(files.alice)))) as cluster:
        error = failure(cluster.bootstrap, Sasl.kerberos(keytab=str(files.alice)))
    assert type(error) is AuthenticationError
    assert "keytab" in str(error.remedy)


def test_a_session_is_renewed_with_the_ticket(files: Files, kdc: Kdc) -> None:
    server = SaslServer({}, kerberos=KerberosAcceptor(str(kdc.keytab)), session_lifetime_ms=1_500)
    pause = threading.Event()
    with Cluster(brokers=1, topics={"secured": 1}, sasl=server) as cluster:
        with Producer(cluster.bootstrap, sasl=Sasl.kerberos(keytab=str(files.alice))) as producer:
            until = time.monotonic() + 3.2
            while time.monotonic() < until:
                producer.send("secured", b"1").result(timeout=10)
                pause.wait(0.01)
            brokers = producer.metrics().cluster.brokers.values()
            assert (sum(one.losses for one in brokers), sum(one.connects for one in brokers) <= 2) == (0, True)
        assert not cluster.failures


def test_javas_client_logs_in_at_the_embedded_broker(
    files: Files, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kdc.config}")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={JAAS} keyTab="{files.alice}" principal="alice@{REALM}";\n'
    )
    with Cluster(brokers=1, topics={"seen": 1}, sasl=SaslServer({}, kerberos=KerberosAcceptor(str(kdc.keytab)))) as one:
        commands = Commands(NEWEST, fetch_jars("kafka", NEWEST), one.bootstrap, None)
        out = commands.topic(["--list", "--command-config", str(properties)])
        assert "seen" in out
        assert not one.failures
