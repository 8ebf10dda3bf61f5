"""Judge a run of queue-storm: what is lost, and the cause of each message that was processed twice.

What consumers noted is compared with the logs of both topics. Two causes excuse a message that is processed again:

deadline passed        a tracker redelivered it after its deadline, since its consumer was killed or lost the lease
START without commit   a consumer was killed between START and commit, at least once only: the message was redelivered,
                       and then read and marked again, since its position had not been stored

Each excuses one time. Everything else is a failure: a message that is processed again without a cause, one that comes
twice at one place, a record in the queue topic that no deadline explains.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import kwire
from kwire.consumer import ConsumerRecord
from kwire.queue.markers import MarkerType, decode_marker

Place = tuple[int, int]

PASSED = "deadline passed"
UNCOMMITTED = "START without commit"
_ROUNDING_MS = 2  # timestamps are whole milliseconds
_CLOCK_MS = 50  # of a kill, noted by the process that sees it end


class Note(NamedTuple):
    """What a consumer noted: "p" processes, "a" acknowledged, "l" lost the lease."""

    what: str
    number: int
    pid: int
    place: Place


class _Tracked(NamedTuple):
    """From a START to its END by the markers. `redelivered_ms`: the END came after the deadline, from a tracker."""

    started_ms: int
    redelivered_ms: int | None


@dataclass
class Verdict:
    lost: int = 0
    twice: Counter[str] = field(default_factory=Counter)  # by cause
    complaints: list[str] = field(default_factory=list)


def read_notes(path: Path) -> list[Note]:
    """Return what consumers noted, in order."""
    if not path.exists():
        return []
    rows = (line.split() for line in path.read_text().splitlines())
    return [Note(what, int(number), int(pid), (int(index), int(offset))) for what, number, pid, index, offset in rows]


def read_topic(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """Return the records of a topic that are committed."""
    with kwire.Consumer(bootstrap, isolation="read_committed") as consumer:
        keys = [(topic, index) for index in consumer.partitions(topic)]
        ends = consumer.end_offsets(keys)
        consumer.assign([(*key, "earliest") for key in keys], ends=ends)
        found: list[ConsumerRecord] = []
        while any((consumer.position(*key) or 0) < ends[key] for key in keys):
            found += consumer.poll(10_000, 1.0)
        return found


def judge(
    notes: Sequence[Note], messages: Iterable[ConsumerRecord], markers: Iterable[ConsumerRecord],
    killed: Mapping[int, int], count: int, *, is_transactional: bool,
) -> Verdict:  # fmt: skip
    """Return what became of `count` messages. `killed`: when consumers were, in milliseconds since 1970, by pid."""
    verdict = Verdict(lost=count - len({note.number for note in notes if note.what == "a"}))
    tracked = _follow(markers)
    places: defaultdict[int, list[Place]] = defaultdict(list)
    for record in messages:
        name = dict(record.headers).get("n")
        if name is not None:
            places[int(name)].append((record.partition, record.offset))
    lost_leases = {(note.pid, note.place) for note in notes if note.what == "l"}
    handed: defaultdict[int, list[Note]] = defaultdict(list)
    for note in notes:
        if note.what == "p":
            handed[note.number].append(note)
    for number, own in places.items():
        redeliveries = sum(one.redelivered_ms is not None for place in own for one in tracked[place])
        if len(own) > 1 + redeliveries:
            verdict.complaints.append(
                f"message {number} has {len(own)} records, and {redeliveries} redeliveries after a deadline"
            )
    for number, times in handed.items():
        if len(times) == 1:
            continue
        passed = sum(
            any(one.redelivered_ms is not None for one in tracked[note.place])
            for note in times
            if note.pid in killed or (note.pid, note.place) in lost_leases
        )
        again = 0 if is_transactional else sum(_unstored(tracked[place], killed) for place in places[number])
        for index, note in enumerate(times[1:], 1):
            if note.place in (one.place for one in times[:index]):
                verdict.complaints.append(f"message {number} was handed out twice at {note.place}")
            elif passed:
                passed -= 1
                verdict.twice[PASSED] += 1
            elif again:
                again -= 1
                verdict.twice[UNCOMMITTED] += 1
            else:
                verdict.complaints.append(f"message {number} was processed again at {note.place} without a cause")
    return verdict


def _follow(markers: Iterable[ConsumerRecord]) -> defaultdict[Place, list[_Tracked]]:
    """Follow the markers of each message from START to END; return its ends, by place."""
    found: defaultdict[Place, list[_Tracked]] = defaultdict(list)
    running: dict[Place, tuple[int, int]] = {}  # started, deadline
    for record in sorted(markers, key=lambda one: (one.partition, one.offset)):
        marker, ms = decode_marker(record.value or b""), record.timestamp_ms
        place = (marker.identity.partition, marker.identity.offset)
        deadline_ms = marker.not_before_ms or ms + marker.redeliver_after_ms
        started_ms, until_ms = running.get(place, (ms, 0))
        if marker.type == MarkerType.START or (place in running and marker.type != MarkerType.END):
            running[place] = started_ms, deadline_ms
        elif running.pop(place, None) is not None:
            found[place].append(_Tracked(started_ms, ms if ms + _ROUNDING_MS >= until_ms else None))
    for place, (started_ms, _) in running.items():
        found[place].append(_Tracked(started_ms, None))
    return found


def _unstored(lives: Sequence[_Tracked], killed: Mapping[int, int]) -> int:
    """Return how often a message was marked again after its redelivery, since a kill had left it uncommitted."""
    return sum(
        before.redelivered_ms is not None
        and any(before.started_ms - _CLOCK_MS <= ms <= after.started_ms + _CLOCK_MS for ms in killed.values())
        for before, after in pairwise(lives)
    )
