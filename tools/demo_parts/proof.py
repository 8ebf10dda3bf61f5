"""Check that each acknowledged record is in the topic once, at its acknowledged offset, and in order.

Records have numbers, 0 to count - 1 in the order of sending. Within a partition, the records with a key are in the
order of sending, and so are the records without a key; there is no order between the two, because a record without a
key gets its partition only when it is sent. This module reads no topic, so tests can give it a loss, a duplicate or a
swap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    partition: int
    offset: int


class Read(NamedTuple):
    """Hold a record as read back. `number` is -1 if its bytes are not those of any record that was sent."""

    place: Place
    number: int
    has_key: bool = True


# The number of findings of each kind that are shown.
_SHOWN = 3


@dataclass
class Proof:
    """Hold the result: `findings` has the first few anomalies of each kind; the counts include all."""

    sent: int
    read: int
    lost: int
    foreign: int
    duplicated: int
    disordered: int
    misplaced: int
    findings: list[str]

    @property
    def holds(self) -> bool:
        return not (self.lost or self.foreign or self.duplicated or self.disordered or self.misplaced)


def judge(sent: int, acknowledged: Mapping[int, Place], read: Iterable[Read]) -> Proof:
    """Check records read in the order of each partition's log.

    `acknowledged` has the position of each number from the responses; an offset of -1 means that they had none.
    """
    places: dict[int, list[Place]] = {}
    last: dict[tuple[int, bool], Read] = {}
    proof = Proof(sent, 0, 0, 0, 0, 0, 0, [])
    disordered: list[str] = []
    foreign: list[str] = []
    for record in read:
        proof.read += 1
        if not 0 <= record.number < sent:
            foreign.append(f"{_name(record.place)} holds a record that was never sent")
            continue
        sender = record.place.partition, record.has_key
        before = last.get(sender)
        if before is not None and record.number < before.number:
            disordered.append(f"{_name(record.place)} holds number {record.number} after number {before.number}")
        last[sender] = record
        places.setdefault(record.number, []).append(record.place)
    lost = [f"number {number} is nowhere" for number in range(sent) if number not in places]
    duplicated = [
        f"number {number} is at {' and '.join(map(_name, found))}" for number, found in places.items() if len(found) > 1
    ]
    misplaced = _misplaced(acknowledged, places)
    proof.lost, proof.foreign, proof.duplicated = len(lost), len(foreign), len(duplicated)
    proof.disordered, proof.misplaced = len(disordered), len(misplaced)
    proof.findings = [text for kind in (lost, foreign, duplicated, disordered, misplaced) for text in kind[:_SHOWN]]
    return proof


def _misplaced(acknowledged: Mapping[int, Place], places: Mapping[int, Sequence[Place]]) -> list[str]:
    return [
        f"number {number} was acknowledged at {_name(place)}, which holds something else"
        for number, place in acknowledged.items()
        if place.offset >= 0 and number in places and place not in places[number]
    ]


def _name(place: Place) -> str:
    return f"partition {place.partition} offset {place.offset}"
