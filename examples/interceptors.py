"""Audit what a service sends and reads, without touching the code that does it: interceptors.

python examples/interceptors.py localhost:9092
"""

import sys
from collections import Counter
from collections.abc import Mapping

import kwire

counts: Counter[str] = Counter()


class SentBy(kwire.ProducerInterceptor):
    """Marks each record with who sent it, and counts what became of it."""

    def on_send(self, message: kwire.Message) -> kwire.Message:
        return message._replace(headers={"sent-by": "billing"})

    def on_acknowledgement(self, metadata: kwire.RecordMetadata, error: kwire.KwireError | None) -> None:
        counts["failed" if error else "acknowledged"] += 1


class OnlyOurs(kwire.ConsumerInterceptor):
    """Leaves out what others sent."""

    def on_consume(self, records: list[kwire.ConsumerRecord]) -> list[kwire.ConsumerRecord]:
        ours = [record for record in records if ("sent-by", b"billing") in record.headers]
        counts["left out"] += len(records) - len(ours)
        return ours

    def on_commit(self, offsets: Mapping[tuple[str, int], kwire.Offset]) -> None:
        counts["committed"] = sum(offset.offset for offset in offsets.values())


def main(bootstrap: str) -> None:
    with kwire.Producer(bootstrap) as foreign:
        foreign.send("numbers", "not ours")
    with kwire.Producer(bootstrap, interceptors=[SentBy()]) as producer:
        for number in range(10):
            producer.send("numbers", str(number))
    consumer = kwire.Consumer(bootstrap, group="audited", commit="manual", interceptors=[OnlyOurs()])
    with consumer:
        consumer.subscribe(["numbers"])
        found = 0
        while found < 10:
            found += len(consumer.poll(timeout=1))
        consumer.commit()
    print(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
