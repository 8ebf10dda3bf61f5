"""The judge of transactions: what readers with read_committed may see, held against what writers were told.

    torn          a reader was given some records of a transaction and not others
    hidden        a transaction was committed, and a reader was not given its records
    seen          a transaction was aborted, or never to be committed, and a reader was given records of it
    read twice    a reader was given a record twice, or went backwards
    half acked    a transaction was committed although a record of it had failed, or had no outcome
    both          a transaction was told to be committed, and aborted
    gave way      a transaction was aborted, or its writer fenced, by what waiting or an abort would have cured
    left open     a transaction is still open in a log though its writer and its time are long gone

Readers have read to the end when this is asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from kwire.broker.simulation.checker import Anomaly
from kwire.broker.simulation.history import History, RecordId, Transacted


def anomalies_of_transactions(history: History) -> Iterator[Anomaly]:
    yield from _read_once(history)
    yield from (Anomaly("gave way", what) for what in history.gave_way)
    for log in history.logs:
        if log.open_from is not None and not log.is_deleted:
            yield Anomaly("left open", f"{log.topic}-{log.partition} from offset {log.open_from} on")
    given: dict[str, set[RecordId | None]] = {}
    for copy in history.reads:
        given.setdefault(copy.reader, set()).update(RecordId.of(value) for _, value in copy.records)
    for one in history.transactions:
        yield from _ended_as_told(history, one)
        for reader, records in given.items():
            yield from _seen_whole(one, reader, records)


def _read_once(history: History) -> Iterator[Anomaly]:
    for copy in history.reads:
        offsets = [offset for offset, _ in copy.records]
        values = [value for _, value in copy.records]
        if offsets != sorted(set(offsets)) or len(values) != len(set(values)):
            yield Anomaly("read twice", f"{copy.reader} in {copy.topic}-{copy.partition}: {copy.records}")


def _ended_as_told(history: History, one: Transacted) -> Iterator[Anomaly]:
    if one.is_committed and one.is_aborted:
        yield Anomaly("both", str(one))
    if one.is_committed:
        failed = [id.number for id in one.records if history.sent[id].acknowledged is None]
        if failed:
            yield Anomaly("half acked", f"{one}: records {failed}")


def _seen_whole(one: Transacted, reader: str, given: set[RecordId | None]) -> Iterator[Anomaly]:
    seen = [id for id in one.records if id in given]
    may_be_seen = one.is_commit_asked and not one.is_aborted
    if seen and not may_be_seen:
        yield Anomaly("seen", f"{one} by {reader}: {len(seen)} of {len(one.records)} records")
    elif seen and len(seen) < len(one.records):
        yield Anomaly("torn", f"{one} for {reader}: {len(seen)} of {len(one.records)} records")
    elif not seen and one.is_committed and one.records:
        yield Anomaly("hidden", f"{one} from {reader}")
