"""Consume, transform, produce: results and offsets become visible together, or not at all.

Each transaction contains the results of some input and, by `send_offsets`, the offset after that input. After a crash,
neither is visible: consumers with `isolation="read_committed"` see only committed transactions. A new instance
with the same transactional id fences the previous one.

kwire's consumer has no groups yet and does not read committed offsets. Pass the start offset as the second argument.
Other clients and tools see the committed offsets as those of the group "doubler".

    python examples/transform.py localhost:9092 [OFFSET]
"""

import sys

import kwire
from kwire.errors import FatalError


def main(bootstrap: str, start: str = "0") -> None:
    with (
        kwire.Producer(bootstrap, transactional_id="doubler-0") as producer,
        kwire.Consumer(bootstrap, isolation="read_committed") as consumer,
    ):
        producer.init_transactions()  # ends what an earlier run left open, so that ends below are final
        (end,) = consumer.end_offsets([("numbers", 0)]).values()
        consumer.assign([("numbers", 0, int(start))], ends={("numbers", 0): end})
        position, transactions = int(start), 0
        while position < end:
            records = consumer.poll(max_records=25, timeout=1.0)
            if not records:
                continue
            behind = records[-1].offset + 1
            try:
                with producer.transaction():
                    for record in records:
                        producer.send("doubled", str(2 * int(record.value or b"0")), key=record.key)
                    producer.send_offsets({("numbers", 0): behind}, "doubler")
            except FatalError:
                raise  # fenced, or not authorized: another run has taken over, or somebody must look
            position, transactions = behind, transactions + 1
    print(f"{transactions} transactions, the next offset to read is {position}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
