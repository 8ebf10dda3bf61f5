"""List the settings of every contestant with reasons: the best by its documentation, with equal guarantees.

All producers have acks=all, idempotence, five requests in flight, linger 5 ms and a delivery report for each record.
All consumers have assigned partitions and do not commit. Every other setting is the client's default.
"""

from __future__ import annotations

from typing import Any, NamedTuple

LINGER_MS = 5
BATCH_BYTES = 262_144  # where a larger batch than its default helps a client; kwire and confluent-kafka have 1 MB
QUEUE_BYTES = 33_554_432  # kwire's default, and Kafka's


class Setting(NamedTuple):
    client: str
    setting: str
    reason: str


KWIRE_PRODUCER: dict[str, Any] = {"linger_ms": LINGER_MS}
CONFLUENT_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": LINGER_MS,
    "queue.buffering.max.messages": 1_000_000,
}
KAFKA_PYTHON_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "linger_ms": LINGER_MS,
    "batch_size": BATCH_BYTES,
    "metrics_enabled": False,
}
AIOKAFKA_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "linger_ms": LINGER_MS,
    "max_batch_size": BATCH_BYTES,
}
JAVA_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": "true",
    "linger.ms": LINGER_MS,
    "batch.size": BATCH_BYTES,
}
CONFLUENT_CONSUMER: dict[str, Any] = {"enable.auto.commit": False, "group.id": "bench"}
_CONFLUENT_MEMBER: dict[str, Any] = {"auto.offset.reset": "earliest"}
CONFLUENT_MEMBER: dict[str, dict[str, Any]] = {
    "classic": _CONFLUENT_MEMBER | {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": _CONFLUENT_MEMBER | {"group.protocol": "consumer"},
}
KAFKA_PYTHON_CONSUMER: dict[str, Any] = {"enable_auto_commit": False, "metrics_enabled": False}
AIOKAFKA_CONSUMER: dict[str, Any] = {"enable_auto_commit": False}
# As bin/kafka-producer-perf-test.sh and bin/kafka-run-class.sh start them.
JAVA_OPTIONS = [
    "-server", "-Xmx512M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]  # fmt: skip

SETTINGS = [
    Setting("kwire", f"linger_ms={LINGER_MS}; else the defaults", "CRCs are made and checked, metrics are on"),
    Setting("kwire, in Python", "crc32c installed", "as for kafka-python"),
    Setting("confluent-kafka", "queue.buffering.max.messages=1000000", "its 100,000 make produce() wait at this rate"),
    Setting("confluent-kafka", "poll(0) after every 1,000 records", "its documentation asks for it regularly"),
    Setting("confluent-kafka, produce", "a call and a report for each record", "kwire's response tells of each, too"),
    Setting("confluent-kafka, produce without reports", "delivery.report.only.error=true", "the least it can do"),
    Setting("confluent-kafka, produce_batch", "10,000 dicts a call, made beforehand", "it has no reports"),
    Setting("confluent-kafka", "batch.size and batch.num.messages", "the defaults, 1 MB and 10,000"),
    Setting("confluent-kafka", "check.crcs=false", "its default, which spares it what the others do"),
    Setting("kafka-python", f"batch_size={BATCH_BYTES}", "its 16 kB cost it more"),
    Setting("kafka-python", "metrics_enabled=False; crc32c installed", "its documentation advises the latter"),
    Setting("aiokafka", f"max_batch_size={BATCH_BYTES}; its C extension", "as above"),
    Setting("Java", f"batch.size={BATCH_BYTES}; JVM options of Kafka's own scripts", "as above"),
    Setting("Java", "the tools ProducerPerformance and ConsumerPerformance", "a long run's CPU less a short one's"),
    Setting("Spark's connector", f"kafka.batch.size={BATCH_BYTES}", "as above; both connectors: linger 5 ms"),
    Setting("all, groups", "automatic commits, from the earliest offset", "kwire's defaults; what most programs have"),
    Setting("confluent-kafka, classic", "cooperative-sticky", "kwire's default; partitions that stay are not stopped"),
    Setting("all, rebalances", "no commits; one thread for each member", "each new owner reads from the beginning"),
    Setting("all, latency", "linger 0, one record at a time", "waited for in the way each client documents"),
    Setting("all, memory", "queues large enough for every record", "the broker is stopped meanwhile"),
]
