"""The records of a capture by offset, as its Fetch responses had them: what a playback gives to a Fetch.

Clients fetch in other steps than the captured ones did, so a Fetch is not matched with a captured one. It gets what was
recorded from its offset on, without a fetch session. A captured error of a partition is given once.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from kwire.capture import Exchange
from kwire.errors import KwireError
from kwire.protocol.json import uuid_text
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.records import decode_batches


@dataclass(slots=True)
class _Piece:
    """The batches of one response; `starts` are where they begin: (offset, end of offsets, position)."""

    records: bytes
    starts: list[tuple[int, int, int]]
    partition: Any  # of the response, with its watermarks

    @property
    def end(self) -> int:
        return self.starts[-1][1]


class PlaybackLog:
    """What the Fetch responses of a capture had."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, int], list[_Piece]] = defaultdict(list)
        self._errors: dict[tuple[str, int], deque[Any]] = defaultdict(deque)
        self._newest: dict[tuple[str, int], Any] = {}
        self._aborted: dict[tuple[str, int], dict[tuple[int, int], Any]] = defaultdict(dict)  # by id and first offset
        self._markers: dict[tuple[str, int], set[tuple[int, int]]] = defaultdict(set)  # producer id, offset
        self._names: dict[str, str] = {}

    def add(self, exchange: Exchange) -> None:
        """Take what a captured Fetch response has."""
        self._names.update(exchange.topic_names)
        response: Any = exchange.response.body if exchange.response is not None else None
        for topic in response.responses if response is not None else ():
            for partition in topic.partitions:
                key = self._name(topic), partition.partition_index
                if partition.error_code:
                    self._errors[key].append(partition)
                    continue
                self._newest[key] = partition
                if partition.records:
                    self._add_records(key, partition)

    def _add_records(self, key: tuple[str, int], partition: Any) -> None:
        records = bytes(partition.records)
        starts, pos = [], 0
        try:
            for batch in decode_batches(records, check_crc=False):
                starts.append((batch.base_offset, batch.last_offset + 1, pos))
                pos += batch.size_bytes
                if batch.is_control:
                    self._markers[key].add((batch.producer_id, batch.base_offset))
        except KwireError:
            pass  # what is before the damage is of use
        if not starts:
            return
        for one in partition.aborted_transactions or ():
            self._aborted[key][one.producer_id, one.first_offset] = one
        self._pieces[key].append(_Piece(records, starts, partition))

    def _aborted_in(self, key: tuple[str, int], begin: int, end: int) -> list[Any]:
        """Return the aborted transactions with records between two offsets."""
        found = []
        for (id, first), one in self._aborted[key].items():
            marker = min((at for producer, at in self._markers[key] if producer == id and at > first), default=end)
            if first < end and marker >= begin:
                found.append(one)
        return found

    def fetch(self, request: FetchRequest) -> tuple[FetchResponse, bool]:
        """Return the response to a Fetch, and whether it has records or an error, so that it should not wait."""
        topics, has_news = [], False
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                found = self._partition((self._name(topic), wanted.partition), wanted.fetch_offset)
                has_news |= bool(found.records or found.error_code)
                partitions.append(found)
            topics.append(FetchResponse.Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        return FetchResponse(responses=topics), has_news

    def _partition(self, key: tuple[str, int], offset: int) -> FetchResponse.Topic.Partition:
        made = FetchResponse.Topic.Partition
        if self._errors[key]:
            error = self._errors[key].popleft()
            return made(partition_index=key[1], error_code=error.error_code, high_watermark=error.high_watermark,
                        records=None)  # fmt: skip
        later = [piece for piece in self._pieces[key] if piece.end > offset]
        if not later:
            newest = self._newest.get(key)
            watermark = offset if newest is None else max(offset, newest.high_watermark)
            return made(partition_index=key[1], error_code=0, high_watermark=watermark, last_stable_offset=watermark,
                        log_start_offset=0, records=b"")  # fmt: skip
        piece = min(later, key=lambda one: next(first for first, end, _ in one.starts if end > offset))
        at = next(pos for _, end, pos in piece.starts if end > offset)
        aborted = self._aborted_in(key, offset, piece.end)
        source = piece.partition
        return made(
            partition_index=key[1], error_code=0, high_watermark=source.high_watermark,
            last_stable_offset=source.last_stable_offset, log_start_offset=source.log_start_offset,
            aborted_transactions=aborted or None, records=piece.records[at:],
        )  # fmt: skip

    def _name(self, topic: Any) -> str:
        if topic.topic:
            return str(topic.topic)
        id = uuid_text(topic.topic_id)
        return self._names.get(id, id)
