"""Read all topics whose names match a pattern, also those that are created later.

A compiled pattern is matched here, from the beginning of each name, so it can be any of Python's. `kwire.Regex` is
matched by the broker against the whole name, in the syntax RE2, which needs a group of the new protocol (Kafka 4.0).

    python examples/subscribe_pattern.py localhost:9092 [broker]
"""

import re
import sys

import kwire


def main(bootstrap: str, matched_by: str = "client") -> None:
    pattern = r"orders-[a-z]+"
    topics = kwire.Regex(pattern) if matched_by == "broker" else re.compile(pattern)
    # New topics are found when metadata is refreshed: after 5 minutes by default.
    with (
        kwire.stop_on_signals(),
        kwire.Consumer(bootstrap, group=f"audit-{matched_by}", metadata_max_age_ms=1_000) as consumer,
    ):
        consumer.subscribe(topics)
        for record in consumer:
            print(record.topic, record.value, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
