"""Check what a group has copied in transactions: each record of the input once in the committed output.

not copied       a record of the input is not in the committed output
copied twice     it is there twice
copy order       the copies of a partition are in another order than its records
foreign copy     the output has something else
left open        a transaction is open in the output long after its producer and its timeout ended
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from kwire.simulation.checker import Anomaly
from kwire.simulation.copiers import OUTPUT, copy_of
from kwire.simulation.group_history import TopicPartition


def anomalies_of_copies(
    logs: Mapping[TopicPartition, Mapping[int, bytes | None]],
    copies: Iterable[tuple[int, int, bytes | None]],
    open_partitions: Collection[int],
) -> Iterator[Anomaly]:
    """`logs` are the input: value by offset. `copies` are committed: partition, offset and value, in log order."""
    sources = {
        copy_of(topic, index, offset): (topic, index, offset) for (topic, index), log in logs.items() for offset in log
    }
    times: Counter[bytes | None] = Counter()
    last: dict[TopicPartition, int] = {}
    for partition, at, value in copies:
        where = f"{OUTPUT}-{partition} {at}: {value!r}"
        if value is None or value not in sources:
            yield Anomaly("foreign copy", where)
            continue
        times[value] += 1
        if times[value] > 1:
            yield Anomaly("copied twice", where)
            continue
        topic, index, offset = sources[value]
        if offset < last.get((topic, index), -1):
            yield Anomaly("copy order", f"{where} is behind {last[topic, index]}")
        last[topic, index] = offset
    for value, (topic, index, offset) in sources.items():
        if not times[value]:
            yield Anomaly("not copied", f"{topic}-{index} {offset}")
    for partition in open_partitions:
        yield Anomaly("left open", f"{OUTPUT}-{partition}")
