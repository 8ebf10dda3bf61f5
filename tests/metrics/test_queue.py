"""The series of queues and of their tracker."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kwire.broker import Cluster
from kwire.metrics import prometheus_text
from kwire.metrics.table import QUEUE_SERIES, TRACKER_SERIES
from kwire.queue import Service
from kwire.queue.metrics import OTHER_QUEUES, ConsumerCounters, ProducerCounters, ServiceMetrics


def test_q77_to_q81_series_of_a_service_and_a_tracker() -> None:
    with (
        Cluster(brokers=1, group_initial_rebalance_delay_ms=0) as cluster,
        Service(cluster.bootstrap, partitions=1) as service,
        service.tracker() as tracker,
    ):
        queue = service.queue("jobs")
        with queue.producer() as producer:
            producer.send_many([b"1", b"2", b"3"])
        with queue.consumer() as consumer:
            for number in range(3):
                message = consumer.receive(10)
                assert message is not None
                if number < 2:
                    message.ack()
            text = prometheus_text(service, tracker)
        after = service.metrics().queues["jobs"]
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {
        sample.name: sample.value for family in families.values() for sample in family.samples
        if sample.labels.get("queue", "jobs") == "jobs" and not {"type", "count", "le"} & set(sample.labels)
    }  # fmt: skip
    assert samples["kwire_queue_sent_total"] == 3
    assert samples["kwire_queue_received_total"] == 3
    assert samples["kwire_queue_acked_total"] == 2
    assert samples["kwire_queue_in_progress"] == 1
    assert samples["kwire_queue_send_seconds_count"] == 3
    assert samples["kwire_queue_total_seconds_count"] == 2
    assert samples["kwire_queue_commit_seconds_count"] >= 1
    assert samples["kwire_queue_wait_seconds_count"] == 3
    assert samples["kwire_queue_processing_seconds_count"] == 2
    assert samples["kwire_queue_tracker_partitions"] <= 1
    for role, table in (("queue", QUEUE_SERIES), ("queue_tracker", TRACKER_SERIES)):
        assert {f"kwire_{role}_{series.name}" for series in table} <= set(families)
    # What a closed consumer has counted is kept, and what it had is not in progress any more.
    assert (after.producers.sent, after.consumers.acked, after.consumers.released) == (3, 2, 1)
    assert after.consumers.in_progress == 0


def test_the_label_queue_is_bounded() -> None:
    metrics = ServiceMetrics()
    for number in range(250):
        metrics.add(f"queue-{number}", ProducerCounters(sent=1))
        metrics.add(f"queue-{number}", ConsumerCounters(markers_sent={"start": 1}))
    assert len(metrics.queues) == 101
    assert metrics.queues[OTHER_QUEUES].producers.sent == 150
    assert metrics.copy().queues[OTHER_QUEUES].consumers.markers_sent == {"start": 150}
