"""Test records on a broker that testcontainers starts from the image of tools/image.

CI must run it: tools/test starts the engine and builds the image. Elsewhere it is skipped without an engine.
"""

from __future__ import annotations

import os
from collections import Counter

from brokers.cluster import NEWEST

from kwire import Admin, Consumer, NewTopic, Producer
from tests.conftest import missing
from tests.live.backends import Backend, has_image
from tests.live.container import kafka_container


def test_records_go_to_a_broker_in_a_container_and_back() -> None:
    if not has_image():
        missing("no Docker engine with the image of tools/image: see `tools/image engine` and `tools/image build`")
    with kafka_container() as bootstrap:
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic("shipped", partitions=3, replication_factor=1)])
        responses = []
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):  # the image must have the library of each
            with Producer(bootstrap, compression=codec) as producer:
                responses += [producer.send("shipped", b"%d" % n, key=b"%d" % n) for n in range(200)]
        assert {response.result(timeout=0).partition for response in responses} == {0, 1, 2}
        with Consumer(bootstrap) as consumer:
            consumer.assign([("shipped", partition, "earliest") for partition in range(3)])
            values = Counter(next(consumer).value for _ in range(1_000))
        assert values == Counter({b"%d" % n: 5 for n in range(200)})


def test_the_newest_kafka_of_the_live_tests_runs_as_requested(backend: Backend) -> None:
    """The order is KWIRE_BOOTSTRAP, a container if an engine has the image, Maven's jars."""
    if backend.name != f"kafka-{NEWEST}":
        return
    if os.environ.get("KWIRE_BOOTSTRAP"):
        assert backend.source == "KWIRE_BOOTSTRAP"
    else:
        assert backend.source == ("container" if has_image() else "jars")
