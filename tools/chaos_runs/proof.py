"""Compare the logs with what was sent, and a copy with its source.

This module reads no topic. Its input are lists of `Seen`, in the order of each partition's log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos_runs.sequence import Label, Number, Seen

# The number of findings of each kind that are shown.
_SHOWN = 3


class Failure(NamedTuple):
    """Describe a failed record: the producer's reason, and whether the log may have the record all the same."""

    why: str
    possibly_persisted: bool


@dataclass
class Proof:
    """Count anomalies by kind and keep the first few of each. Kinds in `tolerated` are counted but are no anomaly."""

    records: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    tolerated: frozenset[str] = frozenset()

    def find(self, kind: str, texts: Iterable[str]) -> None:
        """Count the findings in `texts` to its end, and keep the first few."""
        for text in texts:
            self.counts[kind] += 1
            if self.counts[kind] <= _SHOWN:
                self.findings.append(f"{kind}: {text}")

    @property
    def anomalies(self) -> int:
        return sum(count for kind, count in self.counts.items() if kind not in self.tolerated)


def judge_log(
    sent: Mapping[int, int],
    acknowledged: Mapping[Number, tuple[int, int]],
    failed: Mapping[Number, Failure],
    log: Sequence[Seen],
    *,
    may_repeat: bool = False,
    may_fail: bool = False,
) -> Proof:
    """Check the log of a topic to which each sender sent its numbers from 0 to `sent[sender]` - 1.

    `acknowledged` has the (partition, offset) of each response, with offset -1 if the response had none. `failed`
    records are anomalies; with `may_fail`, only those that are in the log although the error excludes it. With
    `may_repeat` (at least once) a record may be in the log again; its first position counts for the order.
    """
    tolerated = {kind for kind, is_allowed in (("duplicated", may_repeat), ("failed", may_fail)) if is_allowed}
    proof = Proof(len(log), tolerated=frozenset(tolerated))
    places = _places(proof, log)
    proof.find("failed", (f"{_name(number)}: {failure.why}" for number, failure in failed.items()))
    denied = (number for number, failure in failed.items() if number in places and not failure.possibly_persisted)
    proof.find("denied", (f"{_name(number)} was said to be in no log" for number in denied))
    wanted = (Number(sender, serial) for sender, count in sent.items() for serial in range(count))
    proof.find("lost", (f"{_name(one)} is nowhere" for one in wanted if one not in places and one not in failed))
    proof.find("foreign", (f"{_name(one)} was not sent" for one in places if one.serial >= sent.get(one.sender, 0)))
    _find_repeated(proof, places)
    _find_disordered(proof, log, lambda seen, number: (seen.partition, number.sender))
    _find_strayed(proof, places)
    proof.find(
        "misplaced",
        (
            f"{_name(number)} was acknowledged at {_place(place)}, which does not hold it"
            for number, place in acknowledged.items()
            if place[1] >= 0 and number in places and place not in places[number]
        ),
    )
    return proof


def judge_copy(source: Sequence[Seen], copy: Sequence[Seen]) -> Proof:
    """Check a copy, read with read_committed: each record of the source once, keys in order, transactions complete."""
    proof = Proof(len(copy))
    places = _places(proof, copy)
    originals = {seen.number for seen in source if seen.number is not None}
    proof.find("lost", (f"{_name(one)} was not copied" for one in sorted(originals - places.keys())))
    proof.find("foreign", (f"{_name(one)} is in the copy only" for one in sorted(places.keys() - originals)))
    _find_repeated(proof, places)
    _find_disordered(proof, copy, lambda seen, number: number.key)
    _find_strayed(proof, places)
    unlabelled = (f"{_place((seen.partition, seen.offset))} is of no transaction" for seen in copy if not seen.label)
    proof.find("torn", unlabelled)
    parts: Counter[Label] = Counter(seen.label for seen in copy if seen.label)
    torn = (f"{part.name}: {count} of {part.size} records" for part, count in parts.items() if count != part.size)
    proof.find("torn", torn)
    return proof


def judge_readers(proof: Proof, first: Sequence[Seen], second: Sequence[Seen], names: tuple[str, str]) -> None:
    """Check that two readings of one topic are equal in each partition, offsets included."""
    one, other = _by_partition(first), _by_partition(second)
    for partition in sorted(one.keys() | other.keys()):
        left, right = one.get(partition, []), other.get(partition, [])
        if left == right:
            continue
        at = next((n for n, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
        if at is None:
            text = f"{names[0]} reads {len(left)} records and {names[1]} {len(right)}"
        else:
            text = f"{names[0]} reads {left[at]} where {names[1]} reads {right[at]}"
        proof.find("readers differ", [f"partition {partition}: {text}"])


def judge_offsets(proof: Proof, committed: Mapping[int, int], ends: Mapping[int, int]) -> None:
    """Check that the group's offsets, committed in the transactions, are at the end of the copied records."""
    proof.find(
        "offsets",
        (
            f"the group is at {committed.get(partition)} of {end} in partition {partition}"
            for partition, end in ends.items()
            if committed.get(partition, 0) != end
        ),
    )


def _places(proof: Proof, log: Iterable[Seen]) -> dict[Number, list[tuple[int, int]]]:
    places: dict[Number, list[tuple[int, int]]] = {}
    foreign = []
    for seen in log:
        if seen.number is None:
            foreign.append(f"{_place((seen.partition, seen.offset))} holds bytes that were never sent")
        else:
            places.setdefault(seen.number, []).append((seen.partition, seen.offset))
    proof.find("foreign", foreign)
    return places


def _find_repeated(proof: Proof, places: Mapping[Number, Sequence[tuple[int, int]]]) -> None:
    for number, found in places.items():
        if len(found) > 1:
            # A record that occurs three times is two duplicates.
            proof.find("duplicated", [f"{_name(number)} is at {' and '.join(map(_place, found))}"])
            proof.counts["duplicated"] += len(found) - 2


def _find_disordered(proof: Proof, log: Iterable[Seen], sender_of: Callable[[Seen, Number], Hashable]) -> None:
    """Find first occurrences whose numbers do not rise within one value of `sender_of`."""
    last: dict[Hashable, int] = {}
    met: set[Number] = set()
    for seen in log:
        number = seen.number
        if number is None or number in met:
            continue
        met.add(number)
        sender = sender_of(seen, number)
        before = last.get(sender, -1)
        if number.serial < before:
            place = _place((seen.partition, seen.offset))
            proof.find("disordered", [f"{place} holds {_name(number)} after number {before}"])
        last[sender] = max(before, number.serial)


def _find_strayed(proof: Proof, places: Mapping[Number, Sequence[tuple[int, int]]]) -> None:
    """Find keys whose records are in more than one partition."""
    homes: dict[tuple[int, int], int] = {}
    for number, found in places.items():
        for partition, _ in found:
            if homes.setdefault(number.key, partition) != partition:
                proof.find("disordered", [f"{_name(number)} strayed from partition {homes[number.key]} to {partition}"])


def _by_partition(log: Iterable[Seen]) -> dict[int, list[Seen]]:
    parts: dict[int, list[Seen]] = {}
    for seen in log:
        parts.setdefault(seen.partition, []).append(seen)
    return parts


def _name(number: Number) -> str:
    return f"number {number.serial} of sender {number.sender}"


def _place(place: tuple[int, int]) -> str:
    return f"partition {place[0]} offset {place[1]}"
