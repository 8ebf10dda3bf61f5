"""An address that another cluster takes over, on real brokers of Kafka 4.4, which check what clients say (KIP-1242)."""

from __future__ import annotations

from contextlib import closing

import pytest
from brokers.cluster import KafkaCluster
from brokers.configuration import HOST

from kwire import Admin, Producer
from tests.relay import Relay
from tests.waiting import wait_until


def test_an_address_that_another_cluster_took(caplog: pytest.LogCaptureFixture) -> None:
    """The broker refuses, the client begins again at its bootstrap addresses, and the record waits for its cluster."""
    ours = KafkaCluster("4.4.0", relayed=True)
    with ours, KafkaCluster("4.4.0", relayed=True, cluster_id="YW5vdGhlci1jbHVzdGVyIQ") as others:
        for cluster in (ours, others):
            with Admin(cluster.bootstrap) as admin:
                admin.topics.create("t", partitions=1, replication_factor=1)
        # The bootstrap address is never taken over; the one that it advertises is.
        direct = HOST, ours.port(1, "relayed")
        foreign = HOST, others.port(1, "relayed")
        with (
            closing(Relay(direct, ours.port(1, "relay"))) as relay,
            closing(Relay(foreign, others.port(1, "relay"))),
            Producer(f"{HOST}:{direct[1]}", metadata_cluster_check=True, reconnect_backoff_ms=50) as producer,
        ):
            producer.send("t", b"before").result(30)
            relay.turn_to(foreign)
            after = producer.send("t", b"after")
            wait_until(lambda: "forgetting the known brokers" in caplog.text, 60)
            relay.turn_to(direct)
            after.result(60)
        assert (ends(ours), ends(others)) == (2, 0)


def ends(cluster: KafkaCluster) -> int:
    with Admin(cluster.bootstrap) as admin:
        return sum(one.offset for one in admin.offsets.list([("t", 0)], "latest").values())
