"""`kwire.doctor` on three real brokers where nothing is wrong."""

from __future__ import annotations

from brokers.cluster import KafkaCluster

from kwire import Admin
from kwire.doctor import Status, Target, diagnose

_SECONDS = 3.0


def test_three_real_brokers_are_green(three_brokers: KafkaCluster) -> None:
    with Admin(three_brokers.bootstrap) as admin:
        admin.topics.create("examined", partitions=3, replication_factor=3, timeout=60)
    target = Target(three_brokers.bootstrap, topic="examined", probe=True)
    report = min((diagnose(target) for _ in range(3)), key=lambda one: one.seconds)
    worse = [(one.check.id, one.worst[0].text) for one in report.results if one.status > Status.OK]
    assert worse == []
    assert report["D30"].status is Status.OK  # the controller says what time it is
    assert report["D29"].status is Status.OK
    assert report.seconds < _SECONDS
