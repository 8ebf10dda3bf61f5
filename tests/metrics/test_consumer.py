"""The series of a consumer, beside those of a producer with the same client_id."""

from __future__ import annotations

import kwire
from kwire.broker import Cluster
from kwire.metrics import prometheus_text
from tests.consumer.embedded import fill


def test_series_of_a_consumer_and_a_producer() -> None:
    with (
        Cluster(brokers=1, topics={"t": 1}) as cluster,
        kwire.Consumer(cluster.bootstrap, client_id="shop", max_poll_records=30) as consumer,
        kwire.Producer(cluster.bootstrap, client_id="shop") as producer,
    ):
        fill(cluster, "t", 0, range(100))
        consumer.assign([("t", 0, 0)])
        assert len(consumer.poll(timeout=10)) == 30
        consumer.poll(10, timeout=10)
        lines = prometheus_text(consumer, producer).splitlines()
        assert 'kwire_consumer_records_consumed_total{client="shop"} 30.0' in lines
        assert 'kwire_consumer_lag_records{client="shop",partition="0",topic="t"} 60.0' in lines
        assert 'kwire_producer_records_sent_total{client="shop"} 0.0' in lines
        assert any(line.startswith('kwire_consumer_broker_requests_total{broker="') for line in lines)
        assert not any(line.startswith("kwire_consumer_") for line in prometheus_text(producer).splitlines())


def test_series_of_a_share_consumer() -> None:
    with (
        Cluster(brokers=1, topics={"t": 1}) as cluster,
        kwire.ShareConsumer(cluster.bootstrap, client_id="mails", group="g") as consumer,
    ):
        consumer.subscribe(["t"])
        while not consumer.metrics().fetches:
            consumer.poll(timeout=0.05)
        consumer.poll(timeout=0.2)
        lines = prometheus_text(consumer).splitlines()
        assert 'kwire_share_consumer_assigned_partitions{client="mails"} 1.0' in lines
        assert 'kwire_share_consumer_records_accepted_total{client="mails"} 0.0' in lines
