"""Read the last hours again, whatever the group has committed; then move the group itself, first as a dry run.

In on_assigned `seek_to` wins over the committed offsets. `admin.groups.reset` needs a group without members.

    python examples/seek_by_time.py localhost:9092 [HOURS]
"""

import sys
from datetime import UTC, datetime, timedelta

import kwire


def main(bootstrap: str, hours: str = "2") -> None:
    ago = timedelta(hours=float(hours))
    with kwire.Consumer(bootstrap, group="report", commit="manual") as consumer:
        consumer.subscribe(["orders"], on_assigned=lambda partitions: consumer.seek_to(-ago, partitions))
        count = len(consumer.poll(timeout=10))
        while any(lag.records for lag in consumer.lag(fresh=True).values()):
            count += len(consumer.poll(timeout=1.0))
    print(f"{count} records of the last {hours} hours")

    with kwire.Admin(bootstrap) as admin:
        for move in admin.groups.reset("report", to=datetime.now(UTC) - ago, topics=["orders"], dry_run=True):
            print(f"{move.topic}-{move.partition}: {move.before} -> {move.after}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
