"""Check what happened to a share group: each record is done once, and none is forgotten.

two holders      a record was locked for a member although another one's lock had not ended, in a run without faults
                 that end locks early
done twice       a record was accepted or rejected, with the broker's confirmation, by two deliveries; a member that had
                 both before it was done is told so for the second, too: Kafka ignores what comes late. So is one whose
                 lock had ended, so that another member got the record and was done with it
delivered again  a record was delivered although the broker had confirmed that it is done; a response that a frozen
                 member reads late is none, if the broker had locked its records before
undelivered      a record was never delivered, or not again after it was released
wrong record     a member got something else than the log has at this offset
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from kwire.simulation.checker import Anomaly
from kwire.simulation.group_history import CommittedEvent, GroupHistory, TopicPartition

_DONE = ("accepted", "rejected")


def anomalies_of_share_group(
    history: GroupHistory,
    logs: Mapping[TopicPartition, Mapping[int, bytes | None]],
    lock_seconds: float | None = None,
) -> Iterator[Anomaly]:
    """Yield what was wrong. `lock_seconds` is how long a lock lasts, if only the member itself ends it before."""
    if lock_seconds is not None:
        yield from _two_holders(history, lock_seconds)
    done: dict[tuple[TopicPartition, int], str] = {}
    # How often a member has a record in its hands, and of these, how often still when it was done.
    in_hand: Counter[tuple[str, TopicPartition, int]] = Counter()
    late: Counter[tuple[str, TopicPartition, int]] = Counter()
    locked: defaultdict[tuple[TopicPartition, int], Counter[str]] = defaultdict(Counter)  # for whom, and not settled
    early: set[tuple[str, TopicPartition, int]] = set()  # locked for a member before it was done, and not handed out
    for event in history.events:
        if isinstance(event, CommittedEvent) or event.offset < 0:
            continue
        key = event.partition, event.offset
        where = f"{event.partition[0]}-{event.partition[1]} {event.offset}, {event.member} at {event.at:.3f} s"
        if event.kind == "acquired" and key not in done:
            early.add((event.member, *key))
            locked[key][event.member] += 1
        elif event.kind == "acquired":
            early.discard((event.member, *key))
        elif event.kind == "handed":
            if logs[event.partition].get(event.offset, event) != event.value:
                yield Anomaly("wrong record", f"{where}: {event.value!r}")
            if key in done and (event.member, *key) not in early:
                yield Anomaly("delivered again", f"{where}: {done[key]}")
            early.discard((event.member, *key))
            in_hand[event.member, *key] += 1
        elif event.kind in ("released", "unsure"):
            in_hand[event.member, *key] -= 1
            locked[key][event.member] -= 1
        elif event.kind in _DONE:
            in_hand[event.member, *key] -= 1
            if key not in done:
                late[event.member, *key] = in_hand[event.member, *key]
                for member, count in locked[key].items():
                    if member != event.member:
                        late[member, *key] = count
            elif late[event.member, *key] > 0:
                late[event.member, *key] -= 1
            else:
                yield Anomaly("done twice", f"{where}: {done[key]}")
            done[key] = f"{event.kind} by {event.member} at {event.at:.3f} s"
    for partition, log in logs.items():
        missing = [offset for offset in log if not history.is_delivered(partition, offset)]
        if missing:
            yield Anomaly("undelivered", f"{partition[0]}-{partition[1]}: {missing[:10]}")


def _two_holders(history: GroupHistory, lock_seconds: float) -> Iterator[Anomaly]:
    held: dict[tuple[TopicPartition, int], tuple[str, float]] = {}  # by whom, and until when
    gone: set[str] = set()  # what they had still asked for, the broker locks and gives up with their connections
    for event in history.events:
        if isinstance(event, CommittedEvent):
            continue
        key = event.partition, event.offset
        if event.kind in ("closing", "ended"):
            gone.add(event.member)
            for one in [one for one, (member, _) in held.items() if member == event.member]:
                del held[one]
        elif event.kind == "acquired":
            holder, until = held.get(key, ("", 0.0))
            if holder not in ("", event.member) and event.at < until:
                yield Anomaly(
                    "two holders",
                    f"{event.partition[0]}-{event.partition[1]} {event.offset}: {event.member} at {event.at:.3f} s, "
                    f"and {holder} has it until {until:.3f} s",
                )
            if event.member not in gone:
                held[key] = event.member, event.at + lock_seconds
        elif event.kind in ("chosen", "unsure", "released"):
            held.pop(key, None)
