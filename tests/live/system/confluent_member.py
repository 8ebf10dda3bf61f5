"""A member by confluent-kafka (librdkafka) that prints the events of a verifiable consumer.

    python confluent_member.py TOPIC {"group.id": ..., ...}

confluent-kafka's own verifiable consumer takes each assignment for a whole one, so it cannot be in cooperative groups.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition


def write(name: str, **fields: object) -> None:
    print(json.dumps({"timestamp": int(time.time() * 1000), "name": name, **fields}), flush=True)


def listed(partitions: list[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": one.topic, "partition": one.partition} for one in partitions]


def main(topic: str, settings: dict[str, Any]) -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    write("startup_complete")
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: write("partitions_assigned", partitions=listed(partitions)),
        on_revoke=lambda _, partitions: write("partitions_revoked", partitions=listed(partitions)),
    )
    while not stopping:
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        messages = [message for message in consumer.consume(500, timeout=0.2) if message.error() is None]
        for message in messages:
            key, offset = (str(message.topic()), message.partition() or 0), message.offset() or 0
            spans[key] = spans.get(key, (offset, 0))[0], offset
        if not spans:
            continue
        summaries = [
            {"topic": name, "partition": number, "minOffset": low, "maxOffset": high}
            for (name, number), (low, high) in spans.items()
        ]
        write("records_consumed", count=len(messages), partitions=summaries)
        offsets = [TopicPartition(name, number, high + 1) for (name, number), (_, high) in spans.items()]
        done = [{"topic": one.topic, "partition": one.partition, "offset": one.offset} for one in offsets]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            write("offsets_committed", offsets=done, success=True)
        except KafkaException as error:
            write("offsets_committed", offsets=done, success=False, error=str(error))
    consumer.close()
    write("shutdown_complete")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
