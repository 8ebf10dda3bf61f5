"""A real broker with a plug-in for metrics of clients (KIP-714): what kwire's clients push, and what Java's do."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from brokers.cluster import NEWEST, KafkaCluster
from brokers.jars import fetch_jars
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

import kwire
from kwire.errors import BrokerError, ErrorCode
from tests.waiting import wait_until

_SOURCE = Path(__file__).with_name("PushedMetrics.java")
_PREFIX = "org.apache.kafka."


@dataclass(frozen=True)
class Pushes:
    """A broker that wants all metrics ten times a second, and the file with what has arrived."""

    kafka: KafkaCluster
    file: Path

    def of(self, client_id: str) -> list[tuple[UUID, bool, MetricsData]]:
        """Return the pushes of a client: its instance id, whether it was the last, the metrics."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        found: list[tuple[UUID, bool, MetricsData]] = []
        for line in lines:
            client, id, is_last, kind, data = (line + " ").split(" ", 4)
            if client == client_id:
                assert kind == "OTLP"
                metrics = MetricsData.FromString(base64.b64decode(data))
                found.append((UUID(bytes=base64.urlsafe_b64decode(id + "==")), is_last == "true", metrics))
        return found

    def names(self, client_id: str) -> set[str]:
        return {
            metric.name
            for _, _, pushed in self.of(client_id)
            for resource in pushed.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def labels(self, client_id: str) -> set[str]:
        """Return the names of the labels of the resource, which the broker adds to."""
        return {
            one.key
            for _, _, pushed in self.of(client_id)
            for resource in pushed.resource_metrics
            for one in resource.resource.attributes
        }


@pytest.fixture(scope="module")
def pushes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pushes]:
    folder = tmp_path_factory.mktemp("plug-in")
    jars = fetch_jars("kafka", NEWEST)
    subprocess.run(
        ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), str(_SOURCE)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    settings = {"metric.reporters": "PushedMetrics", "pushed.metrics.file": str(folder / "pushes")}
    with KafkaCluster(NEWEST, settings=settings, classes=folder) as cluster:
        with kwire.Admin(cluster.bootstrap) as admin:
            admin.topics.create("t", partitions=1, replication_factor=1, timeout=60)
            admin.client_metrics.set("all", metrics=["*"], interval_ms=100)
            wait_until(lambda: admin.client_metrics.get("all").interval_ms == 100)
        yield Pushes(cluster, folder / "pushes")


def test_each_client_pushes_and_says_when_it_ends(pushes: Pushes) -> None:
    """Its names are Java's, for all that Java's clients push in two seconds with records."""
    bootstrap = pushes.kafka.bootstrap
    with (
        kwire.Admin(bootstrap, client_id="admin", telemetry=True) as admin,
        kwire.Producer(bootstrap, client_id="producer") as producer,
        kwire.Consumer(bootstrap, client_id="consumer", group="g", rack="r") as consumer,
        kwire.ShareConsumer(bootstrap, client_id="share", group="sg") as share,
    ):
        for client in (admin, producer, consumer, share):
            client.add_metric("app.jobs", lambda: 7)
        consumer.subscribe(["t"])
        share.subscribe(["t"])

        def all_pushed() -> bool:
            admin.offsets.list(["t"], "latest")
            producer.send("t", b"x").result(30)
            consumer.poll(timeout=0.1)
            share.poll(timeout=0.1)
            return all(len(pushes.of(client)) > 3 for client in ("admin", "producer", "consumer", "share"))

        wait_until(all_pushed)
        ids = {
            "admin": admin.client_instance_id(), "producer": producer.client_instance_id(),
            "consumer": consumer.client_instance_id(), "share": share.client_instance_id(),
        }  # fmt: skip
    pushes.kafka.run("PushedMetrics", [bootstrap, "t"])
    for name, id in ids.items():
        found = pushes.of(name)
        assert {one for one, _, _ in found} == {id}
        assert [is_last for _, is_last, _ in found] == [False] * (len(found) - 1) + [True]
        names = pushes.names(name)
        assert f"{_PREFIX}app.jobs" in names
        javas = pushes.names(f"java-{name}")
        assert names - {f"{_PREFIX}app.jobs"} <= javas, names - javas
        assert pushes.labels(name) <= pushes.labels(f"java-{name}") | {"client_rack"}


def test_asyncio(pushes: Pushes) -> None:
    async def main() -> UUID:
        async with kwire.aio.Admin(pushes.kafka.bootstrap, client_id="aio", telemetry=True) as admin:
            admin.add_metric("app.jobs", lambda: 7)
            while len(pushes.of("aio")) < 2:
                await admin.topics.list()
            return await admin.client_instance_id()

    id = asyncio.run(main())
    assert {(one, is_last) for one, is_last, _ in pushes.of("aio")} == {(id, False), (id, True)}


def test_subscriptions_as_kafkas_tool_prints_them(pushes: Pushes) -> None:
    with kwire.Admin(pushes.kafka.bootstrap) as admin:
        admin.client_metrics.set(
            "etl", ["org.apache.kafka.consumer.", "org.apache.kafka.app."], interval_ms=10_000,
            match={"client_id": "etl-.*", "client_software_name": "kwire"},
        )  # fmt: skip
        wait_until(lambda: admin.client_metrics.list() == ["all", "etl"])
        where = ["--bootstrap-server", pushes.kafka.bootstrap]
        printed = pushes.kafka.run("org.apache.kafka.tools.ClientMetricsCommand", [*where, "--describe"]).decode()
        assert "Client metrics configs for etl are:" in printed
        assert "metrics=org.apache.kafka.consumer.,org.apache.kafka.app." in printed
        assert "interval.ms=10000" in printed
        assert "client_id=etl-.*" in printed
        admin.client_metrics.delete("etl")
        wait_until(lambda: admin.client_metrics.list() == ["all"])
        with pytest.raises(BrokerError) as refused:
            admin.client_metrics.set("etl", ["*"], interval_ms=1)
        assert refused.value.code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
