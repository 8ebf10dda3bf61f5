"""Cluster: real sockets, its thread and its controls. Other tests check responses on virtual time."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

import kwire
from kwire.broker import Answer, Cluster, Cut, Delay, Disconnect, Mute, Refuse, RequestRecord, serve
from kwire.errors import (
    AuthenticationError,
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    DisconnectedError,
    ErrorCode,
    TlsError,
)
from kwire.net import SystemClock, Tls
from kwire.protocol import ApiKey
from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.describe_cluster import DescribeClusterRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import encode_batch
from kwire.session import ConnectionBroken, HandshakeDone, Sasl
from tests.broker.client import Client
from tests.broker.conftest import StartCluster
from tests.waiting import wait_until

PATIENCE_SECONDS = 10.0


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def connect_one(cluster: Cluster, node: int = 1, **options: Any) -> Client:
        clients.append(Client(cluster.brokers[node], **options))
        return clients[-1]

    yield connect_one
    for client in clients:
        client.close()


Connect = Callable[..., Client]


def produce(cluster: Cluster, value: bytes, acks: int = -1) -> ProduceRequest:
    data = ProduceRequest.Topic.Partition(index=0, records=encode_batch([(1, None, value, ())]))
    return ProduceRequest(acks=acks, timeout_ms=1, topic_data=[ProduceRequest.Topic(name="t", partition_data=[data])])


class TestLifecycle:
    def test_brokers_listen_and_the_given_topics_exist(self, start: StartCluster, connect: Connect) -> None:
        cluster = start(2, racks=["a", "b"], topics={"one": 1, "two": 2}, cluster_id="c-1")
        assert cluster.bootstrap == ",".join(f"127.0.0.1:{port}" for _, port in cluster.brokers.values())
        response = connect(cluster, 2).request(MetadataRequest(topics=None))
        assert [(b.node_id, b.rack) for b in response.brokers] == [(1, "a"), (2, "b")]
        assert [(t.name, len(t.partitions)) for t in response.topics] == [("one", 1), ("two", 2)]
        assert response.cluster_id == "c-1"

    def test_ports_can_be_chosen(self, start: StartCluster, connect: Connect) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        cluster = start(2, ports=[port])
        assert cluster.brokers[1] == ("127.0.0.1", port)
        assert connect(cluster, 1).cause is None

    def test_the_advertised_host_may_differ_from_the_listening_one(self, start: StartCluster, connect: Connect) -> None:
        cluster = start(1, host="localhost", listen_host="127.0.0.1")
        assert cluster.brokers[1][0] == "localhost"
        assert connect(cluster).cause is None

    def test_a_port_in_use_is_a_connect_error(self) -> None:
        threads = threading.active_count()
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConnectError):
            Cluster(1, ports=[taken.getsockname()[1]])
        assert threading.active_count() == threads

    @pytest.mark.parametrize(
        "options", [{"brokers": 0}, {"default_partitions": 0}, {"max_groups": -1}, {"topic_configs": {"no.such": "1"}}]
    )
    def test_a_wrong_option_is_a_configuration_error(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            Cluster(**options)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"ports": [99999]}, "ports has 99999: a port is 0 .any free one. to 65535"),
            ({"ports": ["9092"]}, "ports has '9092'"),
            ({"ports": [0, 0, 0, 0]}, "ports are .*, with 3 brokers"),
            ({"racks": ["a"]}, "racks is .*, with 3 brokers: give one for each broker"),
            ({"topics": ["a"]}, "topics is .'a'.: give names and partitions"),
            ({"topics": {"a": "3"}}, "topics has 'a': '3'"),
            ({"nonsense": 1}, "unknown option nonsense"),
            ({"default_partition": 1}, "unknown option default_partition: did you mean default_partitions"),
            ({"brokers": "3"}, "brokers is '3'"),
            ({"storage_bytes_max": "5"}, "storage_bytes_max is '5'"),
            ({"auto_create_topics": 1}, "auto_create_topics is 1: give True or False"),
            ({"seed": "x"}, "seed is 'x'"),
            ({"cluster_id": 5}, "cluster_id is 5"),
            ({"topic_configs": [1]}, "topic_configs is"),
            ({"topic_configs": {"retention.ms": 5}}, "retention.ms is 5: give it as a str"),
            ({"ports": 9092}, "ports is 9092: give a list"),
            ({"sasl": "alice"}, "sasl is a str: give users and passwords"),
            ({"sasl": {"alice": 5}}, "sasl has a user or a password that is not a str"),
            ({"api_versions": {"Produce": range(3)}}, "api_versions has 'Produce'"),
            ({"api_versions": {ApiKey.PRODUCE: (0, 3)}}, "api_versions has .*PRODUCE.*: write it as"),
            (
                {"api_versions": {ApiKey.PRODUCE: range(50, 60)}},
                "api_versions has versions 50 to 59 of PRODUCE",
            ),
        ],
    )
    def test_an_unknown_option_is_named_with_a_suggestion(self, options: dict[str, Any], message: str) -> None:
        threads = threading.active_count()
        with pytest.raises(ConfigurationError, match=message):
            Cluster(**options)
        assert threading.active_count() == threads

    def test_a_fault_for_an_unknown_broker_is_rejected(self, start: StartCluster) -> None:
        with pytest.raises(ConfigurationError, match="there is no broker 4"):
            start(3).add_fault(Disconnect(), node=4)

    def test_a_fault_applies_once_by_default(self, start: StartCluster, connect: Connect) -> None:
        cluster = start(1)
        fault = cluster.add_fault(Refuse(ErrorCode.UNKNOWN_SERVER_ERROR), api=ApiKey.DESCRIBE_CLUSTER)
        client = connect(cluster)
        codes = [client.request(DescribeClusterRequest()).error_code for _ in range(2)]
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
        assert (fault.seen, fault.hits) == (1, 1)

    def test_topic_ids_differ_between_clusters_unless_a_seed_is_given(
        self, start: StartCluster, connect: Connect
    ) -> None:
        def topic_id(**options: Any) -> Any:
            client = connect(start(1, topics={"t": 1}, **options))
            return client.request(MetadataRequest(topics=None)).topics[0].topic_id

        assert topic_id() != topic_id()
        assert topic_id(seed=7) == topic_id(seed=7)

    def test_every_control_raises_after_close(self) -> None:
        cluster = Cluster(1)
        cluster.close()
        cluster.close()
        with pytest.raises(ClosedError):
            cluster.leader("t")
        with pytest.raises(OSError):  # noqa: PT011 -- the error of a closed port depends on the system
            socket.create_connection(cluster.brokers[1], 1)

    def test_a_clock_that_is_put_forward_lets_records_expire(self, start: StartCluster, connect: Connect) -> None:
        class Clock(SystemClock):
            ahead = 0.0

            def now(self) -> float:
                return super().now() + self.ahead

            def time_ms(self) -> int:
                return super().time_ms() + int(self.ahead * 1000)

        clock = Clock()
        cluster = start(1, clock=clock)
        cluster.create_topic("t", 1, configs={"retention.ms": "60000", "message.timestamp.type": "LogAppendTime"})
        connect(cluster).request(produce(cluster, b"old"), 9)
        assert cluster.log("t").start_offset == 0
        clock.ahead = 3600.0
        wait_until(lambda: cluster.log("t").start_offset == 1)
        assert cluster.log("t").end_offset == 1

    def test_close_closes_connections(self, connect: Connect) -> None:
        with Cluster(1) as cluster:
            client = connect(cluster)
        assert isinstance(client.wait_for_close(), DisconnectedError)

    def test_api_versions_can_be_narrowed(self, start: StartCluster, connect: Connect) -> None:
        cluster = start(1, api_versions={ApiKey.METADATA: range(0, 6), ApiKey.DESCRIBE_CLUSTER: range(0)})
        client = connect(cluster)
        assert client.session.version(MetadataRequest) == 5
        (ready,) = [event for event in client.events if isinstance(event, HandshakeDone)]
        assert ApiKey.DESCRIBE_CLUSTER not in ready.versions


class TestControls:
    def test_leaders_move_when_brokers_stop_and_on_request(self, cluster: Cluster, connect: Connect) -> None:
        leader = cluster.leader("t", 0)
        client = connect(cluster, leader)
        address = cluster.brokers[leader]
        cluster.stop(leader)
        cluster.stop(leader)
        assert isinstance(client.wait_for_close(), DisconnectedError)
        assert isinstance(connect(cluster, leader).cause, ConnectError)
        successor = cluster.leader("t", 0)
        assert successor not in (leader, -1)
        cluster.restart(leader)
        cluster.restart(leader)
        assert cluster.brokers[leader] == address
        assert connect(cluster, leader).cause is None
        assert cluster.leader("t", 0) == successor
        cluster.move_leader("t", 0, leader)
        assert cluster.leader("t", 0) == leader

    def test_topics_can_be_created_and_deleted_and_logs_read(self, cluster: Cluster, connect: Connect) -> None:
        client = connect(cluster, cluster.leader("t", 0))
        for value in (b"one", b"two"):
            assert client.request(produce(cluster, value), 9).responses[0].partition_responses[0].error_code == 0
        log = cluster.log("t", 0)
        assert (log.start_offset, log.end_offset, log.high_watermark, log.last_stable_offset) == (0, 2, 2, 2)
        assert [record.value for record in log.records()] == [b"one", b"two"]
        assert cluster.requests()[ApiKey.PRODUCE] == 2
        cluster.create_topic("u", 2, 1, {"retention.ms": "5"})
        assert cluster.leader("u", 1) in (1, 2, 3)
        cluster.delete_topic("u")
        with pytest.raises(BrokerError) as raised:
            cluster.leader("u", 1)
        assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_controls_reject_an_unknown_broker(self, cluster: Cluster) -> None:
        for control in (cluster.stop, cluster.restart):
            with pytest.raises(ConfigurationError):
                control(9)

    def test_controls_work_from_many_threads(self, cluster: Cluster) -> None:
        names = [f"topic-{n}" for n in range(20)]
        threads = [threading.Thread(target=cluster.create_topic, args=(name, 1)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {cluster.leader(name) for name in names} == {1, 2, 3}

    def test_a_call_may_use_other_controls(self, cluster: Cluster) -> None:
        assert cluster.call(lambda state, now: cluster.leader("t", 0)) == cluster.leader("t", 0)


class TestFaultsOnSockets:
    def test_cut_truncates_the_frame(self, cluster: Cluster, connect: Connect) -> None:
        cluster.add_fault(Cut(keep_bytes=30), api=ApiKey.METADATA)
        client = connect(cluster)
        assert client.request(MetadataRequest(topics=None)) is None
        assert "26 of" in str(client.cause)
        assert "in the middle of a frame" in str(client.cause)

    def test_cut_can_truncate_the_size_field(self, cluster: Cluster, connect: Connect) -> None:
        cluster.add_fault(Cut(keep_bytes=2), api=ApiKey.METADATA)
        client = connect(cluster)
        assert client.request(MetadataRequest(topics=None)) is None
        assert isinstance(client.cause, DisconnectedError)

    @pytest.mark.parametrize("applied", [False, True])
    def test_disconnect_can_lose_an_acknowledgement(self, cluster: Cluster, connect: Connect, applied: bool) -> None:
        cluster.add_fault(Disconnect(applied=applied), api=ApiKey.PRODUCE)
        client = connect(cluster, cluster.leader("t", 0))
        assert client.request(produce(cluster, b"v"), 9) is None
        assert isinstance(client.cause, DisconnectedError)
        assert cluster.log("t", 0).end_offset == int(applied)

    def test_a_broker_can_close_the_connection_at_api_versions(self, cluster: Cluster, connect: Connect) -> None:
        cluster.add_fault(Disconnect(), api=ApiKey.API_VERSIONS, times=None)
        assert isinstance(connect(cluster).cause, DisconnectedError)

    def test_faults_can_be_cleared(self, cluster: Cluster, connect: Connect) -> None:
        cluster.add_fault(Refuse(ErrorCode.UNKNOWN_SERVER_ERROR), times=None)
        cluster.add_fault(Mute(), times=None)
        cluster.clear_faults()
        assert connect(cluster).request(MetadataRequest(topics=[])).error_code == 0


class TestLimits:
    def test_a_client_with_too_many_queued_requests_is_not_read_from(
        self, start: StartCluster, connect: Connect
    ) -> None:
        cluster = start(1, max_queued_requests=4)
        client = connect(cluster)
        cluster.add_fault(Delay(50), api=ApiKey.METADATA)
        for _ in range(200):
            client.session.send(MetadataRequest(topics=[]), 0.0)
        client.wait_for_responses(200)
        assert cluster.requests()[ApiKey.METADATA] == 200

    def test_connections_beyond_the_limit_are_closed(self, start: StartCluster, connect: Connect) -> None:
        cluster = start(1, max_connections=1)
        first, second = connect(cluster), connect(cluster)
        assert isinstance(second.cause, DisconnectedError)
        assert first.request(MetadataRequest(topics=[])).brokers

    def test_a_frame_above_the_limit_closes_the_connection(self, start: StartCluster, connect: Connect) -> None:
        client = connect(start(1, max_frame_bytes=1_000))
        assert client.request(MetadataRequest(topics=[MetadataRequest.Topic(name="x" * 2_000)])) is None


def test_a_bug_closes_the_connection_that_met_it_and_no_other(connect: Connect) -> None:
    with Cluster(1) as cluster:
        unlucky, other = connect(cluster), connect(cluster)
        topics = cluster.call(lambda state, now: state.topics)
        cluster.call(lambda state, now: setattr(state, "topics", None))
        assert unlucky.request(MetadataRequest(topics=None)) is None
        cluster.call(lambda state, now: setattr(state, "topics", topics))
        assert other.request(MetadataRequest(topics=None)).brokers
        assert [type(failure) for failure in cluster.failures] == [AttributeError]


class TestFunctionsOfTests:
    """What a test runs within the brokers must not stop them, and the test must learn of its failure."""

    @pytest.mark.parametrize("error", [ZeroDivisionError("mine"), SystemExit(3)], ids=["an exception", "an exit"])
    def test_a_listener_that_fails(self, connect: Connect, error: BaseException) -> None:
        def listener(record: RequestRecord) -> None:
            raise error

        with Cluster(1) as cluster:
            cluster.on_request(listener)
            client = connect(cluster)
            for _ in range(2):
                assert client.request(MetadataRequest(topics=[])).brokers
            client.close()
            assert cluster.requests()[ApiKey.METADATA] == 2
            assert set(cluster.failures) == {error}

    def test_a_fault_whose_functions_fail(self, connect: Connect) -> None:
        with Cluster(1, topics={"t": 1}) as cluster:
            changes: list[Any] = [lambda request, response: 1 / 0, lambda request, response: "junk"]
            for change in changes:
                cluster.add_fault(Answer(change), api=ApiKey.METADATA)
                assert connect(cluster).request(MetadataRequest(topics=[])) is None
            cluster.add_fault(Disconnect(), api=ApiKey.METADATA, when=lambda request: request.nonsense)
            assert connect(cluster).request(MetadataRequest(topics=[])) is None
            said = [str(failure) for failure in cluster.failures]
        assert "function of Answer raised ZeroDivisionError('division by zero') for a MetadataRequest" in said[0]
        assert "function of Answer returned 'junk' for a MetadataRequest: return a MetadataResponse" in said[1]
        assert "when of a fault raised AttributeError" in said[2]

    @pytest.mark.timeout(20)
    def test_a_loop_that_fails_leaves_no_call_waiting(self) -> None:
        with Cluster(1) as cluster:

            def fail(timeout: float | None = None) -> None:
                raise ZeroDivisionError("the loop")

            cluster.call(lambda state, now: setattr(cluster._server, "turn", fail))
            cluster._thread.join(PATIENCE_SECONDS)
            with pytest.raises(ClosedError, match="ended with ZeroDivisionError"):
                cluster.leader("t")
            assert [str(failure) for failure in cluster.failures] == ["the loop"]

    def test_a_listener_may_close_the_cluster(self, connect: Connect) -> None:
        cluster = Cluster(1)
        cluster.on_request(lambda record: cluster.close())
        client = connect(cluster)
        client.session.send(MetadataRequest(topics=[]), 0.0)
        client.wait_for_close()
        cluster.close()
        assert not cluster.failures

    def test_what_is_no_listener_is_refused(self, cluster: Cluster) -> None:
        with pytest.raises(ConfigurationError, match="listener is 5: give a function"):
            cluster.on_request(5)  # type: ignore[arg-type]


class TestForks:
    """A process that was forked has copies of the brokers' sockets, and no thread that serves them."""

    @staticmethod
    def _in_child(action: Callable[[], object]) -> tuple[int, int]:
        """Run `action` in a child, which then stays. Return its id, and a pipe with what it returned or raised."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writer, repr(action()).encode())
            except BaseException as error:
                os.write(writer, repr(error).encode())
            finally:
                signal.pause()
                os._exit(0)
        os.close(writer)
        return child, reader

    def test_a_broker_stops_although_a_child_lives(self, start: StartCluster, tmp_path: Path) -> None:
        cluster = start(1, data_dir=tmp_path)
        with socket.create_connection(cluster.brokers[1], PATIENCE_SECONDS) as connection:
            cluster.call(lambda state, now: None)
            cluster.call(lambda state, now: None)  # the connection is accepted
            child, reader = self._in_child(cluster.close)
            try:
                assert os.read(reader, 100) == b"None"
                cluster.stop(1)
                assert connection.recv(1) == b""
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(cluster.brokers[1], PATIENCE_SECONDS)
                cluster.restart(1)
                cluster.close()
                Cluster(1, data_dir=tmp_path).close()
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                os.close(reader)

    def test_a_control_in_a_child_is_an_error(self, start: StartCluster) -> None:
        cluster = start(1, topics={"t": 1})
        child, reader = self._in_child(lambda: cluster.leader("t"))
        try:
            assert f"the cluster runs in the process {os.getpid()}" in os.read(reader, 300).decode()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
        assert cluster.leader("t") == 1


class TestSecurity:
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_sasl_authenticates(self, start: StartCluster, connect: Connect, mechanism: str) -> None:
        cluster = start(1, sasl={"alice": "secret"})
        client = connect(cluster, sasl=Sasl(mechanism, "alice", "secret"))
        assert client.request(MetadataRequest(topics=[])).brokers
        wrong = connect(cluster, sasl=Sasl(mechanism, "alice", "wrong"))
        (broken,) = [event for event in wrong.events if isinstance(event, ConnectionBroken)]
        assert isinstance(broken.error, AuthenticationError)

    def test_a_client_without_sasl_is_disconnected(self, start: StartCluster, connect: Connect) -> None:
        client = connect(start(1, sasl={"alice": "secret"}))
        assert client.request(MetadataRequest(topics=[])) is None
        assert isinstance(client.cause, DisconnectedError)

    def test_tls_encrypts(self, start: StartCluster, connect: Connect, tmp_path: Path) -> None:
        listener, trust = certificates(tmp_path)
        cluster = start(1, tls=listener)
        assert connect(cluster, tls=trust).request(MetadataRequest(topics=[])).brokers
        assert isinstance(connect(cluster, tls=Tls()).cause, TlsError)

    def test_it_listens_on_ipv6(self, start: StartCluster, tmp_path: Path) -> None:
        """An address with colons works in the certificate, the bootstrap servers and the advertised hosts."""
        listener, trust = certificates(tmp_path)
        cluster = start(2, host="::1", tls=listener, topics={"t": 4})
        assert re.fullmatch(r"\[::1\]:\d+,\[::1\]:\d+", cluster.bootstrap)
        with kwire.Producer(cluster.bootstrap, tls=trust) as producer:
            for partition in range(4):
                producer.send("t", b"here", partition=partition).result(timeout=PATIENCE_SECONDS)
            brokers = producer.metrics().cluster.brokers
        for node, address in zip((1, 2), cluster.bootstrap.split(","), strict=True):
            assert brokers[node].is_connected
            assert brokers[node].address == f"{node} at {address}"


def certificates(folder: Path) -> tuple[Tls, Tls]:
    """Return the TLS settings of a listener on 127.0.0.1 or ::1, and those of a client that trusts it."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1", "::1", "localhost")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server.private_key_pem.write_to_path(str(folder / "key.pem"))
    with open(folder / "cert.pem", "wb") as file:
        file.write(b"".join(blob.bytes() for blob in server.cert_chain_pems))
    shown = Tls(cert_file=str(folder / "cert.pem"), key_file=str(folder / "key.pem"))
    return shown, Tls(ca_file=str(folder / "ca.pem"))


class TestServe:
    def test_it_runs_until_stop_is_set(self) -> None:
        stop = threading.Event()
        seen: list[int] = []

        def ready(cluster: Cluster) -> None:
            seen.append(len(cluster.brokers))
            stop.set()

        serve(brokers=2, topics={"t": 1}, stop=stop, on_ready=ready)
        assert seen == [2]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_stops_it(self, number: signal.Signals) -> None:
        before = signal.getsignal(number)
        serve(brokers=1, on_ready=lambda cluster: os.kill(os.getpid(), number))
        assert signal.getsignal(number) is before

    def test_it_runs_on_another_thread(self) -> None:
        stop, ready = threading.Event(), threading.Event()
        options: dict[str, Any] = {"brokers": 1, "stop": stop, "on_ready": lambda cluster: ready.set()}
        thread = threading.Thread(target=serve, kwargs=options)
        thread.start()
        assert ready.wait(PATIENCE_SECONDS)
        stop.set()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def test_a_broker_is_downgraded_between_two_connections(start: StartCluster) -> None:
    cluster = start(2, topics={"t": 2}, default_replication_factor=1)

    def newest_fetch(node: int) -> int:
        found: list[int] = [one.max_version for one in versions(cluster.brokers[node]) if one.api_key == ApiKey.FETCH]
        return found[0]

    with kwire.Producer(cluster.bootstrap) as producer:
        producer.send("t", b"1", partition=0).result(timeout=60)
        before = newest_fetch(1)
        for node in (1, 2):
            cluster.serve_as(node, "2.8")
        assert newest_fetch(1) < before
        for partition in range(2):
            producer.send("t", b"2", partition=partition).result(timeout=60)
        used = {record.version for record in cluster.request_log(api=ApiKey.PRODUCE)}
        assert len(used) == 2
        cluster.serve_as(1, None)
        assert newest_fetch(1) == before
    with pytest.raises(ConfigurationError, match=r"'2\.99'"):
        cluster.serve_as(1, "2.99")


def versions(address: tuple[str, int]) -> list[Any]:
    client = Client(address)
    response = client.request(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    client.close()
    return list(response.api_keys)
