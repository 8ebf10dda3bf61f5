"""Check what happened to a share group: each record is done once, and none is forgotten.

done twice       a record was accepted or rejected, with the broker's confirmation, by two deliveries
delivered again  a record was delivered although the broker had confirmed that it is done; a response that a frozen
                 member reads late is none, if the broker had locked its records before
undelivered      a record was never delivered, or not again after it was released
wrong record     a member got something else than the log has at this offset
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kwire.simulation.checker import Anomaly
from kwire.simulation.group_history import CommittedEvent, GroupHistory, TopicPartition

_DONE = ("accepted", "rejected")


def anomalies_of_share_group(
    history: GroupHistory, logs: Mapping[TopicPartition, Mapping[int, bytes | None]]
) -> Iterator[Anomaly]:
    done: dict[tuple[TopicPartition, int], str] = {}
    early: set[tuple[str, TopicPartition, int]] = set()  # locked for a member before it was done, and not handed out
    for event in history.events:
        if isinstance(event, CommittedEvent) or event.offset < 0:
            continue
        key = event.partition, event.offset
        where = f"{event.partition[0]}-{event.partition[1]} {event.offset}, {event.member} at {event.at:.3f} s"
        if event.kind == "acquired" and key not in done:
            early.add((event.member, *key))
        elif event.kind == "acquired":
            early.discard((event.member, *key))
        elif event.kind == "handed":
            if logs[event.partition].get(event.offset, event) != event.value:
                yield Anomaly("wrong record", f"{where}: {event.value!r}")
            if key in done and (event.member, *key) not in early:
                yield Anomaly("delivered again", f"{where}: {done[key]}")
            early.discard((event.member, *key))
        elif event.kind in _DONE:
            if key in done:
                yield Anomaly("done twice", f"{where}: {done[key]}")
            done[key] = f"{event.kind} by {event.member} at {event.at:.3f} s"
    for partition, log in logs.items():
        missing = [offset for offset in log if not history.is_delivered(partition, offset)]
        if missing:
            yield Anomaly("undelivered", f"{partition[0]}-{partition[1]}: {missing[:10]}")
