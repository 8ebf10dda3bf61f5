"""Broken set-ups, each found by its own check, with cause and remedy; and clusters where nothing is wrong."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import kwire
from kwire.broker import Cluster
from kwire.broker.faults import Mute
from kwire.doctor import CHECKS, Report, Status, Target, diagnose
from kwire.net import Tls
from kwire.protocol import ApiKey
from kwire.session import SaslServer
from tests.doctor.conftest import Serve
from tests.net.harness import FakeResolver, address_of, closed_port
from tests.net.test_tls import Files


def broken(report: Report) -> set[str]:
    return {result.check.id for result in report.results if result.status is Status.FAIL}


def told(report: Report, id: str) -> str:
    """Return cause and remedy of a check that is not ok; each finding has both."""
    result = report[id]
    assert result.status >= Status.WARN, [finding.text for finding in result.findings]
    assert all(finding.text and finding.remedy for finding in result.worst)
    return " | ".join(f"{finding.text} -> {finding.remedy}" for finding in result.worst)


def examined(bootstrap: str, **options: Any) -> Report:
    resolver = options.pop("resolver", None)
    return diagnose(Target(bootstrap, **{"timeout": 5.0, **options}), resolver=resolver)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, topics={"orders": 4}) as running:
        yield running


# -- nothing is wrong


def test_three_healthy_brokers_are_green(cluster: Cluster) -> None:
    report = examined(cluster.bootstrap, topic="orders", probe=True)
    assert {result.status for result in report.results} <= {Status.OK, Status.SKIPPED}
    assert report.facts.is_connected
    skips = {result.check.id for result in report.results if result.status is Status.SKIPPED}
    assert skips == {"D10", "D11", "D12", "D16", "D17", "D18", "D26", "D27"}
    assert "offset 0" in report["D29"].findings[-1].text


def test_only_the_probe_writes() -> None:
    with Cluster(1, topics={"orders": 1}) as one:
        examined(one.bootstrap, topic="orders", group="g")
        examined(one.bootstrap, topic="not-there")
        assert one.log("orders").end_offset == 0
        assert one.requests()[ApiKey.PRODUCE] == 0
        with kwire.Admin(one.bootstrap) as admin:
            assert admin.topics.list() == ["orders"]
        examined(one.bootstrap, topic="orders", probe=True)
        assert one.log("orders").end_offset == 1


def test_tls_and_scram_are_green(files: Files) -> None:
    with Cluster(2, tls=files.broker(), sasl={"alice": "secret"}) as secured:
        report = examined(secured.bootstrap, tls=files.trusting(), sasl=kwire.Sasl("SCRAM-SHA-512", "alice", "secret"))
        assert not broken(report)
        assert {report[id].status for id in ("D10", "D11", "D12", "D15", "D16", "D17", "D18")} == {Status.OK}
        assert "TLSv1.3" in report["D10"].findings[0].text
        assert "broker.example" in report["D11"].findings[0].text


# -- addresses


def test_a_name_that_does_not_resolve() -> None:
    resolver = FakeResolver(nowhere=OSError(-2, "Name or service not known"))
    report = examined("nowhere:9092", resolver=resolver)
    assert broken(report) == {"D01"}
    assert "nowhere: Name or service not known -> correct the name" in told(report, "D01")


def test_a_name_server_that_does_not_respond() -> None:
    report = examined("silent:9092", resolver=FakeResolver(), timeout=0.2)
    assert "did not respond in 0.2 s" in told(report, "D01")
    assert "resolv.conf" in told(report, "D05")


def test_a_slow_name_server(cluster: Cluster) -> None:
    class Slow(FakeResolver):
        def resolve(self, host: str, port: int, done: Any) -> None:
            threading.Timer(0.15, done, [[address_of(("127.0.0.1", port))]]).start()

    (_, port) = cluster.brokers[1]
    assert "to resolve" in told(examined(f"kafka:{port}", resolver=Slow()), "D05")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bootstrap", "says"),
    [
        ("http://127.0.0.1:{port}", "has a scheme"),
        ("PLAINTEXT://127.0.0.1:{port}", "PLAINTEXT belongs into security.protocol"),
        ("127.0.0.1:{port},127.0.0.1:{port}", "is there twice"),
        ("127.0.0.1:{port},127.0.0.1", "has no port"),
        ("127.0.0.1:{port},a:b:c", "ambiguous"),
        ("127.0.0.1:{port},x:99999", "is not host:port"),
    ],
)
def test_a_bootstrap_list_that_clients_refuse(cluster: Cluster, bootstrap: str, says: str) -> None:
    report = examined(bootstrap.format(port=cluster.brokers[1][1]), timeout=1.0)
    assert says in told(report, "D02")
    assert report.facts.is_connected  # the rest is examined all the same


def test_a_proxy_is_told_where_nothing_answers() -> None:
    host, port = closed_port()
    report = examined(f"{host}:{port}", environment={"HTTPS_PROXY": "http://proxy:3128"})
    assert "https_proxy is set" in told(report, "D03")


def test_a_closed_port() -> None:
    host, port = closed_port()
    report = examined(f"{host}:{port}")
    assert broken(report) == {"D06", "D07"}
    assert "refuses connections" in told(report, "D07")
    assert "check the port" in told(report, "D07")


def test_a_blackhole_holds_up_nothing(cluster: Cluster, blackhole: tuple[str, int]) -> None:
    host, port = blackhole
    alone = examined(f"{host}:{port}", timeout=0.3)
    assert broken(alone) == {"D06", "D07"}
    assert re.search(r"does not answer \(filtered: no answer in \d+\.\d s\)", told(alone, "D07"))
    assert "firewall" in told(alone, "D07")
    beside = examined(f"{host}:{port},{cluster.bootstrap}", timeout=1.0)
    assert beside.facts.is_connected
    assert beside["D21"].status is Status.OK


def test_an_address_of_two_that_is_refused_first(cluster: Cluster) -> None:
    closed, open_ = closed_port(), cluster.brokers[1]
    resolver = FakeResolver(kafka=[address_of(closed), address_of(open_)])
    assert "clients that try IPv4 first wait for it" in told(examined("kafka:9092", resolver=resolver), "D06")


def test_an_http_server(serve: Serve) -> None:
    report = examined(serve(lambda data: b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert broken(report) == {"D09"}
    assert "speaks HTTP, not Kafka" in told(report, "D09")
    assert "Connect" in told(report, "D09")


def test_a_mail_server(serve: Serve) -> None:
    assert "220 mail.example ESMTP" in told(examined(serve(lambda data: b"220 mail.example ESMTP\r\n")), "D09")


def test_zookeeper(serve: Serve) -> None:
    report = examined(serve(lambda data: b"Zookeeper version: 3.8.4\n" if data == b"srvr" else b""))
    assert broken(report) == {"D09"}
    assert "use the port of a broker" in told(report, "D09")


def test_a_port_that_never_answers() -> None:
    with Cluster(1) as one:
        one.add_fault(Mute(), api=ApiKey.API_VERSIONS, times=None)
        report = examined(one.bootstrap, timeout=0.3)
    assert broken(report) == {"D09"}
    assert "accepts the connection and sends nothing" in told(report, "D09")


# -- TLS


def test_tls_to_a_plaintext_port(cluster: Cluster, files: Files) -> None:
    report = examined(cluster.bootstrap, tls=files.trusting(), timeout=1.0)
    assert broken(report) == {"D09"}
    assert "speaks plaintext, not TLS -> turn TLS off" in told(report, "D09")


def test_plaintext_to_a_tls_port(files: Files) -> None:
    with Cluster(1, tls=files.broker()) as secured:
        report = examined(secured.bootstrap, timeout=1.0)
    assert broken(report) == {"D09"}
    assert "speaks TLS, not Kafka in plaintext -> turn TLS on" in told(report, "D09")


@pytest.mark.parametrize(
    ("certificate", "trusted", "says"),
    [
        ("server", "stranger_ca", "not trusted"),
        ("expired", "ca", "has expired"),
        ("wrong_host", "ca", "is for another"),
    ],
)
def test_a_certificate_that_clients_refuse(files: Files, certificate: str, trusted: str, says: str) -> None:
    with Cluster(1, tls=files.broker(certificate)) as secured:
        report = examined(secured.bootstrap, tls=Tls(ca_file=getattr(files, trusted)))
    assert broken(report) == {"D11"}
    assert says in told(report, "D11")
    assert report["D10"].status is Status.OK  # the handshake itself works


def test_a_client_certificate_that_is_missing(files: Files) -> None:
    with Cluster(1, tls=files.broker(wants_client=True)) as secured:
        report = examined(secured.bootstrap, tls=files.trusting())
        assert "D12" in broken(report)
        assert "give cert_file and key_file" in told(report, "D12")
        good = examined(secured.bootstrap, tls=files.trusting("client"))
        assert good["D12"].findings[0].text == "given, and accepted"


def test_a_key_of_another_certificate(cluster: Cluster, files: Files) -> None:
    tls = Tls(ca_file=files.ca, cert_file=files.client[0], key_file=files.stranger[1])
    report = examined(cluster.bootstrap, tls=tls)
    assert broken(report) == {"D12"}
    assert "is not that of the certificate" in told(report, "D12")


# -- SASL


@pytest.fixture(scope="module")
def with_users() -> Iterator[Cluster]:
    with Cluster(1, sasl={"alice": "secret"}) as running:
        yield running


def test_a_password_of_a_function_is_green(with_users: Cluster) -> None:
    report = examined(with_users.bootstrap, sasl=kwire.Sasl("SCRAM-SHA-256", "alice", lambda: "secret"))
    assert broken(report) == set()


def test_a_password_that_cannot_be_had(with_users: Cluster) -> None:
    def password() -> str:
        raise LookupError("the vault is locked")

    report = examined(with_users.bootstrap, sasl=kwire.Sasl("SCRAM-SHA-256", "alice", password))
    assert "the callable of the password raised LookupError" in told(report, "D17")


def test_sasl_that_is_missing(with_users: Cluster) -> None:
    report = examined(with_users.bootstrap)
    assert "D15" in broken(report)
    assert "wants SASL (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512), and no user is configured" in told(report, "D15")


def test_sasl_that_the_listener_does_not_use(cluster: Cluster) -> None:
    report = examined(cluster.bootstrap, sasl=kwire.Sasl("PLAIN", "alice", "secret"))
    assert "does not use SASL, and PLAIN is configured" in told(report, "D15")


def test_a_mechanism_that_is_not_offered() -> None:
    server = SaslServer({"alice": "secret"}, mechanisms=["SCRAM-SHA-256"])
    with Cluster(1, sasl=server) as one:
        report = examined(one.bootstrap, sasl=kwire.Sasl("PLAIN", "alice", "secret"))
    assert broken(report) == {"D16"}
    assert "offers SCRAM-SHA-256, not PLAIN -> use one of SCRAM-SHA-256" in told(report, "D16")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password(with_users: Cluster, mechanism: str) -> None:
    report = examined(with_users.bootstrap, sasl=kwire.Sasl(mechanism, "alice", "wrong-password"))
    assert broken(report) == {"D17"}
    assert f"rejected SASL {mechanism} for user 'alice'" in told(report, "D17")
    assert "wrong-password" not in str([finding.text for result in report.results for finding in result.findings])


# -- what brokers advertise


def advertise(cluster: Cluster, node: int, host: str, port: int) -> None:
    def change(state: Any, now: float) -> None:
        state.nodes[node].host, state.nodes[node].port = host, port

    cluster.call(change)


@pytest.fixture
def own() -> Iterator[tuple[Cluster, str]]:
    """Yield a cluster for one test, and the address of its first broker."""
    with Cluster(3, topics={"orders": 3}) as running:
        yield running, "{}:{}".format(*running.brokers[1])


def test_an_advertised_port_that_is_closed(own: tuple[Cluster, str]) -> None:
    cluster, first = own
    advertise(cluster, 2, *closed_port())
    report = examined(first, topic="orders")
    assert broken(report) == {"D21"}
    assert "broker 2 says 127.0.0.1:" in told(report, "D21")
    assert "This client cannot reach partition 1 of orders" in told(report, "D21")
    assert "start broker 2 if it is down; else set advertised.listeners on broker 2" in told(report, "D21")


def test_an_advertised_name_that_does_not_resolve(own: tuple[Cluster, str]) -> None:
    cluster, first = own
    advertise(cluster, 2, "kafka-1.internal", 9092)
    names: dict[str, Any] = {
        "127.0.0.1": [address_of(cluster.brokers[1])], "kafka-1.internal": OSError(-2, "Name or service not known"),
    }  # fmt: skip
    resolver = FakeResolver(**names)
    report = examined(first, resolver=resolver)
    assert "broker 2 says kafka-1.internal:9092: kafka-1.internal: Name or service not known" in told(report, "D21")


def test_an_advertised_address_that_is_none(own: tuple[Cluster, str]) -> None:
    cluster, first = own
    advertise(cluster, 2, "0.0.0.0", cluster.brokers[2][1])
    assert "broker 2 advertises 0.0.0.0" in told(examined(first), "D04")


def test_an_advertised_address_of_another_cluster(own: tuple[Cluster, str]) -> None:
    cluster, first = own
    with Cluster(1, cluster_id="another") as other:
        advertise(cluster, 2, *other.brokers[1])
        report = examined(first)
    assert broken(report) == {"D21"}
    assert "where cluster another answers and not kwire-embedded-cluster" in told(report, "D21")


def test_an_advertised_address_of_another_broker(own: tuple[Cluster, str]) -> None:
    cluster, first = own
    two, three = cluster.brokers[2], cluster.brokers[3]
    advertise(cluster, 2, *three)
    advertise(cluster, 3, *two)
    assert "where broker 3 answers" in told(examined(first), "D21")


def test_one_address_for_two_brokers(own: tuple[Cluster, str]) -> None:
    cluster, first = own
    advertise(cluster, 3, *cluster.brokers[2])
    report = examined(first)
    assert "brokers 2, 3 advertise the same address" in told(report, "D22")


def test_bootstrap_addresses_of_two_clusters(cluster: Cluster) -> None:
    with Cluster(1, cluster_id="another") as other:
        report = examined(f"{cluster.bootstrap},{other.bootstrap}")
    assert "belong to 2 clusters" in told(report, "D19")


def test_brokers_of_an_old_release() -> None:
    with Cluster(1, version="1.1") as old:
        report = examined(old.bootstrap)
    assert not broken(report)
    assert "about Kafka 1.1, which clients of 4.x do not speak to" in told(report, "D13")


def test_a_broker_without_an_api_that_the_client_needs() -> None:
    with Cluster(1, api_versions={ApiKey.INIT_PRODUCER_ID: range(0)}) as odd:
        report = examined(odd.bootstrap, transactional_id="t", timeout=1.0)
    assert "lacks InitProducerId -> upgrade the broker" in told(report, "D13")


# -- topic and group


def test_a_topic_that_is_missing(cluster: Cluster) -> None:
    report = examined(cluster.bootstrap, topic="ordres")
    assert broken(report) == {"D24"}
    assert "there is no topic ordres" in told(report, "D24")


def test_partitions_without_a_leader() -> None:
    with Cluster(2) as two:
        two.create_topic("orders", 4, 1)
        two.stop(2)
        report = examined("{}:{}".format(*two.brokers[1]), topic="orders")
    assert "D24" in broken(report)
    assert "have no leader" in told(report, "D24")


def test_under_replicated_partitions(own: tuple[Cluster, str]) -> None:
    cluster, first = own
    cluster.stop(3)
    report = examined(first, topic="orders")
    assert report["D24"].status is Status.WARN
    assert "under-replicated: broker 3 is not in sync" in told(report, "D24")


def test_fewer_replicas_in_sync_than_acks_all_wants(own: tuple[Cluster, str]) -> None:
    cluster, first = own
    cluster.create_topic("strict", 1, 3, {"min.insync.replicas": "3"})
    assert "no broker may fail" in told(examined(first, topic="strict"), "D25")
    cluster.stop(3)
    report = examined(first, topic="strict")
    assert "NOT_ENOUGH_REPLICAS" in told(report, "D24")


def test_small_messages_and_compaction(cluster: Cluster) -> None:
    cluster.create_topic("small", 1, 3, {"max.message.bytes": "1000", "cleanup.policy": "compact"})
    report = examined(cluster.bootstrap, topic="small")
    assert "max.message.bytes=1000" in told(report, "D25")
    assert any("records need keys" in finding.text for finding in report["D25"].findings)


def test_a_group_that_nobody_knows(cluster: Cluster) -> None:
    assert "there is no group nobody" in told(examined(cluster.bootstrap, group="nobody"), "D26")


def test_a_group_that_its_members_left() -> None:
    with Cluster(1, topics={"orders": 1}) as one:
        with kwire.Producer(one.bootstrap) as producer:
            for number in range(10):
                producer.send("orders", str(number).encode())
        with kwire.Admin(one.bootstrap) as admin:
            admin.groups.set_offsets("billing", {("orders", 0): 4})
        report = examined(one.bootstrap, group="billing")
    assert "billing has no members, and is 6 records behind" in told(report, "D26")


def test_every_check_is_in_the_table() -> None:
    assert list(CHECKS) == [f"D{number:02}" for number in range(1, 31)]


def test_a_cluster_whose_controllers_are_gone() -> None:
    """Metadata goes on to name a controller. A request that a broker passes on to it gets no response."""
    with Cluster(1) as one:
        one.add_fault(Mute(), api=ApiKey.DESCRIBE_QUORUM, times=None)
        report = examined(one.bootstrap, timeout=1.0)
    assert "no controller answers: no answer in 1 s -> look whether most of the controllers run" in told(report, "D20")
    assert report["D30"].status is Status.SKIPPED


def test_a_user_without_rights() -> None:
    """pytest turns an exception that a thread does not catch into a failure."""
    options: dict[str, Any] = {"authorizer": True, "super_users": "User:admin"}
    with Cluster(1, sasl={"admin": "a", "bob": "b"}, topics={"orders": 1}, **options) as one:
        report = examined(
            one.bootstrap, sasl=kwire.Sasl("PLAIN", "bob", "b"), topic="orders", group="g", transactional_id="t"
        )
    assert broken(report) == {"D24", "D26", "D27", "D28"}
    assert report["D30"].status is Status.SKIPPED
