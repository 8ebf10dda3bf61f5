"""Metrics that clients push: the state machine on virtual time, what is encoded, and clients on the embedded broker."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData

import kwire
from kwire.broker import Cluster, Mute
from kwire.broker.telemetry import Push
from kwire.cluster.metrics import BOUNDS, Distribution
from kwire.cluster.otlp import Sample, encode_metrics
from kwire.cluster.requests import PendingRequest, ToAny, ToNode
from kwire.cluster.telemetry import Changes, Reading, TelemetryReporter
from kwire.errors import (
    ConfigurationError,
    DisconnectedError,
    ErrorCode,
    KwireError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kwire.protocol import ApiKey, Response
from kwire.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from kwire.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kwire.records import Compression
from kwire.records.compression import decompress
from tests.waiting import wait_until

ID = UUID(int=7)
INTERVAL = 60.0


def durations(total_seconds: float, count: int) -> Distribution:
    return Distribution((count, *[0] * len(BOUNDS)), total_seconds)


# -- the format


def test_opentelemetry_reads_what_is_encoded() -> None:
    samples = [
        Sample("a.gauge", -2.5, labels={"topic": "täglich", "partition": "3"}),
        Sample("a.total", 1e9, is_sum=True),
        Sample("", 0.0),
    ]
    data = encode_metrics(samples, {"group_id": "g" * 200}, since_ms=1, now_ms=1_700_000_000_123, is_delta=True)
    (resource,) = MetricsData.FromString(data).resource_metrics
    (scope,) = resource.scope_metrics
    assert {one.key: one.value.string_value for one in resource.resource.attributes} == {"group_id": "g" * 200}
    assert scope.scope.name == "kwire"
    gauge, total, empty = scope.metrics
    (point,) = gauge.gauge.data_points
    assert (gauge.name, point.as_double) == ("a.gauge", -2.5)
    assert {one.key: one.value.string_value for one in point.attributes} == {"topic": "täglich", "partition": "3"}
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1_000_000, 1_700_000_000_123_000_000)
    (point,) = total.sum.data_points
    assert (total.name, point.as_double, total.sum.is_monotonic) == ("a.total", 1e9, True)
    assert total.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    assert empty.gauge.data_points[0].as_double == 0.0


def test_counts_and_means_are_those_since_the_last_push() -> None:
    changes = Changes()

    def values(count: float, time: Distribution, seconds: float, *, is_delta: bool) -> dict[str, float]:
        readings = [Reading("c", count, is_count=True), Reading("t", time), Reading("g", 5.0)]
        samples = changes.samples(readings, seconds, is_delta=is_delta)
        return {one.name.removeprefix("org.apache.kafka."): one.value for one in samples}

    assert values(10, durations(0.5, 5), 0.0, is_delta=True) == {"c.total": 10, "c.rate": 0, "t.avg": 100, "g": 5}
    assert values(30, durations(0.5, 5), 10.0, is_delta=True) == {"c.total": 20, "c.rate": 2, "g": 5}
    assert values(31, durations(0.9, 7), 10.0, is_delta=False) == {
        "c.total": 31, "c.rate": 0.1, "t.avg": pytest.approx(200), "g": 5,
    }  # fmt: skip


def test_rare_things_have_a_rate_per_hour() -> None:
    samples = Changes().samples([Reading("c", 2, is_count=True, is_hourly=True)], 60.0, is_delta=True)
    assert {one.name: one.value for one in samples} == {
        "org.apache.kafka.c.total": 2, "org.apache.kafka.c.rate.per.hour": 120,
    }  # fmt: skip


# -- the state machine


@dataclass
class Machine:
    """A reporter on virtual time, whose samples are taken at once, and the requests that it sent."""

    readings: list[Reading] = field(default_factory=lambda: [Reading("producer.record.send", 3, is_count=True)])
    now: float = 1_000.0
    brokers: Mapping[int, object] = field(default_factory=lambda: {1: object(), 2: object()})
    sent: list[PendingRequest] = field(default_factory=list)
    ready: bool = True

    def __post_init__(self) -> None:
        def post(function: Callable[..., object], *args: Any) -> None:
            function(*args)

        self.reporter = TelemetryReporter(
            lambda: self.readings,
            lambda: {"transactional_id": "x"},
            dispatch=post,
            post=post,
            random=Random(1),
            time_ms=lambda: int(self.now * 1000),
        )

    def turn(self, seconds: float = 0.0) -> PendingRequest | None:
        """Let time pass, and take the turns of the loop; return the request that is sent."""
        self.now += seconds
        view: Any = SimpleNamespace(snapshot=SimpleNamespace(brokers=self.brokers), is_ready=lambda node: self.ready)
        found = [*self.reporter.turn(self.now, view), *self.reporter.turn(self.now, view)]
        self.sent += found
        assert len(found) < 2
        return found[0] if found else None

    def respond(self, response: Response | KwireError) -> None:
        pending = self.sent[-1]
        pending.node = 2
        pending.on_done(response, self.now)

    def subscribe(self, names: Iterable[str] = ("*",), **fields: Any) -> None:
        """Answer the request for a subscription."""
        given: dict[str, Any] = {
            "error_code": 0, "client_instance_id": ID, "subscription_id": 5, "accepted_compression_types": [],
            "push_interval_ms": int(INTERVAL * 1000), "telemetry_max_bytes": 10_000, "delta_temporality": True,
            "requested_metrics": list(names),
        }  # fmt: skip
        assert self.turn() is not None
        self.respond(GetTelemetrySubscriptionsResponse(**(given | fields)))

    def push(self, seconds: float = INTERVAL * 1.5) -> PushTelemetryRequest:
        """Return the next push."""
        pending = self.turn(seconds)
        assert pending is not None
        request = pending.build(0)
        assert isinstance(request, PushTelemetryRequest)
        return request

    def pushed(self, code: int = 0) -> None:
        self.respond(PushTelemetryResponse(error_code=code))

    @property
    def pause(self) -> float | None:
        """The seconds until the next turn that is due."""
        due = self.reporter.deadline()
        return None if due is None else max(0.0, due - self.now)


def metrics_of(data: bytes) -> dict[str, Metric]:
    return {
        metric.name: metric
        for resource in MetricsData.FromString(data).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_nothing_is_asked_before_a_broker_is_known() -> None:
    machine = Machine(brokers={})
    assert (machine.turn(), machine.pause) == (None, None)
    machine.brokers = {1: object()}
    assert machine.turn() is not None


def test_the_first_push_is_at_any_time_within_an_interval_or_so_and_the_next_ones_by_the_interval() -> None:
    machine = Machine()
    machine.subscribe()
    assert 0.5 * INTERVAL <= (machine.pause or 0) <= 1.5 * INTERVAL
    assert machine.turn(0.49 * INTERVAL) is None
    request = machine.push()
    assert (request.client_instance_id, request.subscription_id, request.terminating) == (ID, 5, False)
    assert sorted(metrics_of(request.metrics)) == [
        "org.apache.kafka.producer.record.send.rate", "org.apache.kafka.producer.record.send.total",
    ]  # fmt: skip
    machine.pushed()
    assert machine.pause == INTERVAL
    assert machine.turn(INTERVAL - 0.01) is None
    assert machine.push(0.01)


def test_pushes_go_to_the_broker_that_gave_the_subscription_while_it_is_there() -> None:
    machine = Machine()
    machine.subscribe()
    assert isinstance(machine.sent[0].route, ToAny)
    machine.push()
    assert machine.sent[-1].route == ToNode(2)
    machine.pushed()
    machine.ready = False
    machine.push()
    assert isinstance(machine.sent[-1].route, ToAny)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["*"], {"a.b", "c"}),
        ([""], {"a.b", "c"}),
        (["org.apache.kafka.a"], {"a.b"}),
        (["org.apache.kafka.a", "org.apache.kafka.c"], {"a.b", "c"}),
        (["other"], set()),
    ],
)
def test_a_subscription_names_prefixes(names: list[str], expected: set[str]) -> None:
    machine = Machine(readings=[Reading("a.b", 1), Reading("c", 2), Reading("nothing", float("nan"))])
    machine.subscribe(names)
    assert {name.removeprefix("org.apache.kafka.") for name in metrics_of(machine.push().metrics)} == expected


def test_without_a_subscription_the_broker_is_asked_again_after_the_interval() -> None:
    machine = Machine()
    machine.subscribe([])
    assert machine.turn(INTERVAL * 0.49) is None
    machine.now += INTERVAL
    machine.subscribe()
    assert machine.push()


def test_the_first_codec_that_is_known_is_used() -> None:
    machine = Machine()
    machine.subscribe(accepted_compression_types=[99, 3, 1])
    request = machine.push()
    assert request.compression_type == Compression.LZ4
    assert metrics_of(bytes(decompress(Compression.LZ4, request.metrics)))


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION])
def test_after_these_errors_nothing_is_pushed_any_more(code: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.subscribe()
    machine.push()
    machine.pushed(code)
    assert (machine.pause, machine.turn(1e9)) == (None, None)
    assert code.name in caplog.text


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_after_these_errors_the_subscription_is_requested_at_once_with_the_same_id(code: ErrorCode) -> None:
    machine = Machine()
    machine.subscribe()
    machine.push()
    machine.pushed(code)
    pending = machine.turn()
    assert pending is not None
    request: Any = pending.build(0)
    assert request.client_instance_id == ID


@pytest.mark.parametrize("code", [ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
def test_after_these_errors_the_next_push_is_at_its_time(code: ErrorCode) -> None:
    machine = Machine()
    machine.subscribe()
    machine.push()
    machine.pushed(code)
    assert machine.pause == INTERVAL


def test_what_is_too_large_is_not_sent() -> None:
    machine = Machine()
    machine.subscribe(telemetry_max_bytes=10)
    assert machine.turn(INTERVAL * 1.5) is None
    assert machine.pause == INTERVAL


@pytest.mark.parametrize("failure", [ErrorCode.UNKNOWN_SERVER_ERROR, DisconnectedError("cut")])
def test_other_failures_pause_for_five_minutes(failure: Any) -> None:
    machine = Machine()
    machine.subscribe()
    machine.push()
    machine.respond(failure if isinstance(failure, KwireError) else PushTelemetryResponse(error_code=failure))
    assert machine.pause == 300
    machine.now += 300
    machine.subscribe()


def test_brokers_that_take_no_metrics_are_asked_once() -> None:
    machine = Machine()
    found: list[Any] = []
    machine.reporter.when_identified(found.append)
    assert machine.turn() is not None
    machine.respond(UnsupportedVersionError("no common version"))
    assert (machine.pause, machine.turn(1e9)) == (None, None)
    machine.reporter.when_identified(found.append)
    assert [type(one) for one in found] == [UnsupportedVersionError] * 2
    assert "metric.reporters" in str(found[0])


def test_the_last_push_says_so_and_comes_at_once() -> None:
    machine = Machine()
    machine.subscribe()
    ended: list[str] = []
    machine.reporter.end(lambda: ended.append("ended"))
    assert (machine.push(0.0).terminating, ended) == (True, [])
    machine.pushed(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert (ended, machine.pause, machine.turn(1e9)) == (["ended"], None, None)


def test_the_last_push_waits_for_the_one_that_is_out() -> None:
    machine = Machine()
    machine.subscribe()
    machine.push()
    ended: list[str] = []
    machine.reporter.end(lambda: ended.append("ended"))
    assert machine.turn() is None
    machine.pushed()
    assert machine.push(0.0).terminating
    machine.pushed()
    assert ended == ["ended"]


@pytest.mark.parametrize("names", [None, []])
def test_without_a_subscription_the_end_is_at_once(names: list[str] | None) -> None:
    machine = Machine()
    if names is not None:
        machine.subscribe(names)
    ended: list[str] = []
    machine.reporter.end(lambda: ended.append("ended"))
    assert (ended, machine.turn(1e9)) == (["ended"], None)


def test_what_the_program_measures_is_pushed_and_its_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(readings=[])
    machine.subscribe()
    machine.reporter.add("app.waiting", lambda: 4)
    machine.reporter.add("app.broken", lambda: 1 / 0)
    machine.reporter.add("app.gone", lambda: 1)
    machine.reporter.remove("app.gone")
    (metric,) = metrics_of(machine.push().metrics).values()
    assert (metric.name, metric.gauge.data_points[0].as_double) == ("org.apache.kafka.app.waiting", 4.0)
    assert "app.broken" in caplog.text


# -- clients


@pytest.fixture
def cluster() -> Any:
    """Return a cluster that wants all metrics ten times a second."""
    with Cluster(2, topics={"t": 3}) as running:
        with kwire.Admin(running.bootstrap) as admin:
            admin.client_metrics.set("all", metrics=["*"], interval_ms=100)
        yield running


def names_of(push: Push) -> set[str]:
    return set(metrics_of(bytes(decompress(push.compression, push.metrics))))


def resource_of(push: Push) -> dict[str, str]:
    (found,) = MetricsData.FromString(bytes(decompress(push.compression, push.metrics))).resource_metrics
    return {one.key: one.value.string_value for one in found.resource.attributes}


def pushes(cluster: Cluster, client_id: str) -> list[Push]:
    return [push for push in cluster.telemetry() if push.client_id == client_id]


def test_clients_push_their_metrics_and_a_last_time_when_they_close(cluster: Cluster) -> None:
    with (
        kwire.Producer(cluster.bootstrap, client_id="p") as producer,
        kwire.Consumer(cluster.bootstrap, client_id="c", group="g", rack="r1") as consumer,
        kwire.ShareConsumer(cluster.bootstrap, client_id="s", group="sg") as sharer,
    ):
        producer.add_metric("app.waiting", lambda: 4)
        producer.send("t", b"1").result(10)
        consumer.subscribe(["t"])
        sharer.subscribe(["t"])

        def all_pushed() -> bool:
            consumer.poll(timeout=0.05)
            sharer.poll(timeout=0.05)
            return all(len(pushes(cluster, client)) > 1 for client in "pcs")

        wait_until(all_pushed)
        id = producer.client_instance_id()
        member = consumer.member.id
    for client, name in [
        ("p", "producer.record.send.total"), ("p", "app.waiting"), ("p", "producer.connection.creation.total"),
        ("p", "producer.node.request.latency.avg"), ("c", "consumer.coordinator.assigned.partitions"),
        ("c", "consumer.fetch.manager.fetch.latency.avg"), ("s", "consumer.share.coordinator.heartbeat.total"),
    ]:  # fmt: skip
        seen = pushes(cluster, client)
        assert any("org.apache.kafka." + name in names_of(push) for push in seen), name
        assert [push.is_last for push in seen] == [False] * (len(seen) - 1) + [True]
    assert {push.client_instance_id for push in pushes(cluster, "p")} == {id}
    assert any(
        resource_of(push) == {"client_rack": "r1", "group_id": "g", "group_member_id": member}
        for push in pushes(cluster, "c")
    )


def test_clients_of_asyncio_push_too(cluster: Cluster) -> None:
    async def main() -> UUID:
        async with kwire.aio.Producer(cluster.bootstrap, transactional_id="x") as producer:
            id = await producer.client_instance_id(timeout=10)
            await asyncio.to_thread(wait_until, lambda: pushes(cluster, "kwire"))
            return id

    id = asyncio.run(main())
    seen = pushes(cluster, "kwire")
    assert {push.client_instance_id for push in seen} == {id}
    assert seen[-1].is_last
    assert resource_of(seen[0]) == {"transactional_id": "x"}


def admin_pushes(cluster: Cluster) -> list[Push]:
    return pushes(cluster, "a")


def check_admin_pushes(cluster: Cluster, id: UUID) -> None:
    """Check that an admin client has pushed its counts and the program's metric, and has said that it is closed."""
    seen = admin_pushes(cluster)
    assert {push.client_instance_id for push in seen} == {id}
    assert [push.is_last for push in seen] == [False] * (len(seen) - 1) + [True]
    names = {name.removeprefix("org.apache.kafka.") for push in seen for name in names_of(push)}
    assert {"admin.client.connection.creation.total", "admin.client.node.request.latency.avg", "app.jobs"} <= names
    assert not [name for name in names if not name.startswith(("admin.client.", "app."))]


def test_an_admin_pushes_too(cluster: Cluster) -> None:
    with kwire.Admin(cluster.bootstrap, client_id="a", telemetry=True) as admin:
        admin.add_metric("app.jobs", lambda: 2)
        admin.add_metric("app.gone", lambda: 1)
        admin.remove_metric("app.gone")
        id = admin.client_instance_id(timeout=10)
        wait_until(lambda: admin.offsets.list(["t"], "latest") and len(admin_pushes(cluster)) > 1)
        assert admin.client_instance_id() == id
    check_admin_pushes(cluster, id)


def test_an_admin_of_asyncio_pushes_too(cluster: Cluster) -> None:
    async def main() -> UUID:
        async with kwire.aio.Admin(cluster.bootstrap, client_id="a", telemetry=True) as admin:
            admin.add_metric("app.jobs", lambda: 2)
            while len(admin_pushes(cluster)) < 2:
                await admin.offsets.list(["t"], "latest")
            assert (await admin.metrics()).brokers
            return await admin.client_instance_id()

    check_admin_pushes(cluster, asyncio.run(main()))


def test_an_admin_begins_with_its_first_verb_and_pushes_nothing_without_a_subscription() -> None:
    with Cluster(1, topics={"t": 1}) as running:
        with kwire.Admin(running.bootstrap, client_id="a", telemetry=True) as admin:
            assert admin.metrics().brokers == {}
            assert not running.requests()
            threads = [threading.Thread(target=admin.topics.list) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            wait_until(lambda: running.requests()[ApiKey.GET_TELEMETRY_SUBSCRIPTIONS])
            assert running.requests()[ApiKey.GET_TELEMETRY_SUBSCRIPTIONS] == 1
            assert sum(one.connects for one in admin.metrics().brokers.values()) >= 1
        assert list(running.telemetry()) == []


def test_the_telemetry_of_an_admin_is_off_unless_it_is_asked_for_as_in_java(cluster: Cluster) -> None:
    with kwire.Admin(cluster.bootstrap, client_id="a") as admin:
        assert admin.topics.list() == ["t"]
        for call in (admin.client_instance_id, lambda: admin.add_metric("a", lambda: 1)):
            with pytest.raises(ConfigurationError, match="telemetry is off: make the client with telemetry=True"):
                call()
    assert admin_pushes(cluster) == []
    options = kwire.options(java={"bootstrap.servers": cluster.bootstrap, "enable.metrics.push": "true"})
    with kwire.Admin(**options) as admin:
        assert admin.client_instance_id(timeout=10)


def test_an_admin_on_a_shared_cluster_pushes_and_leaves_the_others_alone(cluster: Cluster) -> None:
    with (
        kwire.Cluster(cluster.bootstrap, client_id="a") as shared,
        kwire.Admin(shared, telemetry=True) as admin,
        kwire.Admin(shared) as silent,
    ):
        admin.add_metric("app.jobs", lambda: 2)
        wait_until(lambda: admin.offsets.list(["t"], "latest") and len(admin_pushes(cluster)) > 1)
        id = admin.client_instance_id()
        admin.close()
        assert silent.topics.list() == ["t"]
    check_admin_pushes(cluster, id)


def test_brokers_that_do_not_answer_do_not_hold_up_close(cluster: Cluster) -> None:
    producer = kwire.Producer(cluster.bootstrap)
    producer.send("t", b"1").result(10)
    wait_until(lambda: pushes(cluster, "kwire"))
    cluster.add_fault(Mute(), api=ApiKey.PUSH_TELEMETRY)
    producer.close(timeout=0.2)
    assert not pushes(cluster, "kwire")[-1].is_last


def test_telemetry_can_be_off(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, telemetry=False) as producer:
        producer.send("t", b"1").result(10)
        for call in (producer.client_instance_id, lambda: producer.add_metric("a", lambda: 1)):
            with pytest.raises(ConfigurationError, match="telemetry is off"):
                call()
    assert pushes(cluster, "kwire") == []


def test_the_id_of_a_client_without_brokers_times_out() -> None:
    with kwire.Producer("localhost:1") as producer, pytest.raises(RequestTimeoutError):
        producer.client_instance_id(timeout=0.05)


@pytest.mark.parametrize(("name", "read"), [(5, len), ("", len), ("a", 5)])
def test_wrong_metrics_are_refused(name: Any, read: Any) -> None:
    with kwire.Producer("localhost:1") as producer, pytest.raises(TypeError):
        producer.add_metric(name, read)


@pytest.mark.filterwarnings("ignore:.*without close:ResourceWarning")
def test_metrics_do_not_keep_a_consumer_alive_that_nobody_has_any_more(cluster: Cluster) -> None:
    consumers = [kwire.Consumer(cluster.bootstrap)]
    consumers[0].assign([("t", 0, "earliest")])
    wait_until(lambda: pushes(cluster, "kwire"))
    dropped = weakref.ref(consumers[0])
    consumers.clear()
    wait_until(lambda: gc.collect() >= 0 and dropped() is None)
