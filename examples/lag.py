"""How far a group is behind: as one of its members sees it, and as an administrator does.

python examples/lag.py localhost:9092
"""

import sys

import kwire


def main(bootstrap: str) -> None:
    with kwire.Consumer(bootstrap, group="billing") as consumer:
        consumer.subscribe(["orders"])
        consumer.poll(max_records=10, timeout=10)
        consumer.commit()
        for (topic, partition), lag in sorted(consumer.lag().items()):
            print(f"{topic}-{partition}: {lag.records} records, {lag.seconds or 0:.0f} s behind")
        print(consumer.explain())  # why there are no records, when there are none

    with kwire.Admin(bootstrap) as admin:
        print(f"total: {admin.groups.lag('billing').total}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
