"""Looking into queues without taking messages: dead letters and their redrive, peek, stats, explain.

All of it reads topics from their beginning, or from the group's position, up to where they end now. For people and
tools, not for the path of messages.

A dead letter is sent back to its queue in a transaction with a note in the dead letter topic that it was. Notes are
records with the header kwire-mq-redriven, in the partition of the dead letter. One redrive runs at a time: a second one
fences the first. So a dead letter goes back once, whatever fails.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kwire.admin.groups import GroupAdmin
from kwire.arguments import is_int, wrong_type
from kwire.cluster.waiting import Waiter
from kwire.consumer import ConsumerRecord, TopicPartition
from kwire.errors import BrokerError, DecodeError, ErrorCode, KwireError, RequestTimeoutError
from kwire.producer import Message as ProducedMessage
from kwire.queue.envelope import FROM, REASON, REDRIVEN, Envelope, read_number
from kwire.queue.markers import Headers, Identity, Marker, MarkerType, decode_marker

if TYPE_CHECKING:
    from kwire.queue.service import ServiceClient

_POLL_MAX = 10_000
_BATCH_MAX = 500  # dead letters in a transaction
_READ_SECONDS = 120.0  # without a record
_BROKERS_HEADERS = "__dlq."

State = Literal["waiting", "in progress", "delayed", "released", "dead letter", "processed", "unknown"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was given up.

    `deliveries` is how often it was delivered, `source` the topic, partition and offset of its last delivery, where
    known.
    """

    queue: str
    payload: bytes | None
    headers: Headers
    id: str
    reason: str
    deliveries: int
    first_sent_at_ms: int
    dead_since_ms: int
    source: str
    partition: int
    offset: int
    envelope: Envelope = field(repr=False)


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that is in its topic and that no consumer has taken."""

    id: str
    payload: bytes | None
    headers: Headers
    deliveries: int
    sent_at_ms: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Numbers of a queue, read from its topics and its group.

    waiting         messages that no consumer has taken
    in_progress     messages that a consumer has, or that wait for their time; None with share groups
    dead_letters    dead letters that were not sent back
    depth           offsets from the group's position to the end: with a tracker those of all queues
    oldest_waiting_ms  when the first waiting message was stored; None without one
    """

    queue: str
    waiting: int
    in_progress: int | None
    dead_letters: int
    depth: int
    oldest_waiting_ms: int | None


@dataclass(frozen=True, slots=True)
class MessageState:
    """Where a message is. Times are the brokers': milliseconds since 1970.

    since_ms     since when it is there
    until_ms     when it is delivered again unless its consumer shows life; None where that is not known
    deliveries   how often it was delivered before
    places       (topic, partition, offset) of its records, the oldest first
    """

    id: str
    state: State
    queue: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    deliveries: int = 0
    reason: str = ""
    places: tuple[tuple[str, int, int], ...] = ()


@dataclass(slots=True)
class _Progress:
    """A message that the markers say is in progress."""

    start: Marker
    since_ms: int
    until_ms: int
    state: State


class Browser:
    """Reads the topics of a service. Only `redrive` creates topics, those of the queues that get messages."""

    def __init__(self, service: ServiceClient[Any, Any]) -> None:
        self._service = service
        self._waiter: Waiter = service.waiter

    async def _read(
        self, topic: str, starts: dict[int, int] | None = None, logs: dict[TopicPartition, range] | None = None
    ) -> AsyncGenerator[ConsumerRecord, None]:
        """Iterate over the records of a topic, from these offsets or its beginning, up to where it ends now.

        `logs` gets the offsets of each partition.
        """
        if not topic or not await self._service.setup().exists(topic):
            return
        clock = self._service.clock
        consumer = self._service.new_consumer(isolation="read_committed")
        try:
            keys = [(topic, index) for index in await consumer._partitions(topic)]
            first, ends = await consumer._beginning_offsets(keys), await consumer._end_offsets(keys)
            if logs is not None:
                logs.update({key: range(first[key], ends[key]) for key in keys})
            begins = {key: max(first[key], (starts or {}).get(key[1], 0)) for key in keys}
            left = {key for key in keys if begins[key] < ends[key]}
            consumer.assign([(*key, begins[key]) for key in left], ends={key: ends[key] for key in left})
            deadline = clock.now() + _READ_SECONDS
            while left:
                records = await consumer._poll(_POLL_MAX, 1.0)
                for record in records:
                    if record.offset < ends[record.topic, record.partition]:
                        yield record
                left = {key for key in left if (consumer._position_of(key) or 0) < ends[key]}
                if records:
                    deadline = clock.now() + _READ_SECONDS
                elif clock.now() > deadline:
                    raise RequestTimeoutError(
                        f"no records for {_READ_SECONDS:.0f} s", remedy="look whether its leaders run", topic=topic
                    )
        finally:
            with suppress(KwireError):
                await consumer._close(5.0)

    async def _position(self, queue: str) -> dict[int, int]:
        """Return where the group of a queue begins to read, by partition; {} for a group that does not exist."""
        topic, options = await self._service.topic_of(queue), self._service.options
        is_share = self._service.options.backend == "share"
        group = options.share_group(queue) if is_share else options.queue_group(queue)
        try:
            found = await GroupAdmin(self._service.runtime, self._waiter)._offsets(group)
        except BrokerError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return {}
        return {index: one.offset for (name, index), one in found.items() if name == topic}

    # -- dead letters

    async def dead_letters(self, queue: str | None, limit: int | None) -> list[DeadLetter]:
        """Return the dead letters that were not sent back, the oldest of each partition first."""
        found: dict[tuple[int, int], DeadLetter] = {}
        await self._service.resolve()
        async with aclosing(self._read(self._service.options.dead_letters)) as records:
            async for record in records:
                redriven = read_number(dict(record.headers).get(REDRIVEN))
                if redriven is not None:
                    found.pop((record.partition, redriven), None)
                else:
                    found[record.partition, record.offset] = read_dead_letter(record)
        letters = [one for one in found.values() if queue is None or one.queue == queue]
        return letters[:limit]

    async def redrive(self, queue: str | None, ids: Collection[str] | None, limit: int | None) -> int:
        """Send dead letters back to their queues; return how many."""
        service = self._service
        await service.resolve()
        topic = service.options.dead_letters
        if not topic or not await service.setup().exists(topic):
            return 0
        producer = service.new_producer(transactional_id=f"kwire-mq-redrive-{topic}", partitioner_ignore_keys=True)
        try:
            await producer._init_transactions()  # from here on no other redrive can commit
            letters = [
                one for one in await self.dead_letters(queue, None) if one.queue and (ids is None or one.id in ids)
            ][:limit]
            for start in range(0, len(letters), _BATCH_MAX):
                some = letters[start : start + _BATCH_MAX]
                messages = [await self._sent_back(one) for one in some]
                notes = [
                    ProducedMessage(topic, None, one.queue.encode(), ((REDRIVEN, b"%d" % one.offset),), one.partition)
                    for one in some
                ]
                await producer._begin()
                try:
                    await producer._send_all([*messages, *notes])
                    await producer._commit()
                except BaseException as error:
                    with suppress(KwireError):
                        await producer._abort_after(error, 5.0)
                    raise
        finally:
            await producer._close(5.0)
        return len(letters)

    async def _sent_back(self, letter: DeadLetter) -> ProducedMessage:
        """Return the message of a dead letter, as one that was never delivered and that does not expire."""
        place = await self._service.place(letter.queue)
        envelope = Envelope(letter.id, first_at=letter.first_sent_at_ms, timeout=letter.envelope.timeout)
        envelope.user = letter.headers
        return ProducedMessage(place.topic, letter.payload, letter.queue.encode(), envelope.headers())

    # -- waiting messages

    async def peek(self, queue: str, count: int) -> list[WaitingMessage]:
        """Return the first messages of a queue that no consumer has taken."""
        found: list[WaitingMessage] = []
        async with aclosing(self._waiting(queue, await self._position(queue))) as waiting:
            async for message in waiting:
                found.append(message)
                if len(found) == count:
                    break
        return found

    async def _waiting(
        self, queue: str, position: dict[int, int], logs: dict[TopicPartition, range] | None = None
    ) -> AsyncGenerator[WaitingMessage, None]:
        key = queue.encode()
        async with aclosing(self._read(await self._service.topic_of(queue), position, logs)) as records:
            async for record in records:
                if record.key == key:
                    envelope = Envelope.read(record.headers)
                    yield WaitingMessage(
                        envelope.id, record.value, envelope.user, envelope.deliveries, record.timestamp_ms,
                        record.partition, record.offset,
                    )  # fmt: skip

    async def stats(self, queue: str) -> QueueStats:
        """Return the numbers of a queue; zeros if nobody has sent it a message yet."""
        position = await self._position(queue)
        waiting, oldest = 0, None
        logs: dict[TopicPartition, range] = {}
        async with aclosing(self._waiting(queue, position, logs)) as messages:
            async for message in messages:
                waiting += 1
                oldest = message.sent_at_ms if oldest is None else min(oldest, message.sent_at_ms)
        in_progress: int | None = None
        if self._service.options.backend != "share":
            key = queue.encode()
            in_progress = sum(one.start.key == key for one in (await self._in_progress()).values())
        depth = sum(log.stop - max(log.start, position.get(index, 0)) for (_, index), log in logs.items())
        letters = await self.dead_letters(queue, None)
        return QueueStats(queue, waiting, in_progress, len(letters), depth, oldest)

    # -- one message

    async def _in_progress(self) -> dict[Identity, _Progress]:
        """Return what the markers say is in progress."""
        found: dict[Identity, _Progress] = {}
        async with aclosing(self._read(self._service.options.marker_topic)) as records:
            async for record in records:
                try:
                    _apply(found, decode_marker(record.value or b""), record.timestamp_ms)
                except DecodeError:
                    continue
        return found

    async def explain(self, id: str) -> MessageState:
        """Return where a message is, by the last record or marker of it in the topics."""
        if not isinstance(id, str) or not id:
            raise wrong_type("id", id, "the id of a message")
        await self._service.resolve()
        for letter in await self.dead_letters(None, None):
            if letter.id == id:
                return MessageState(
                    id, "dead letter", letter.queue, letter.dead_since_ms, None, letter.deliveries, letter.reason,
                    ((self._service.options.dead_letters, letter.partition, letter.offset),),
                )  # fmt: skip
        if self._service.options.backend == "share":
            return MessageState(id, "unknown", reason="only the brokers know what is in progress in share groups")
        records = await self._records_of(id)
        if not records:
            return MessageState(id, "unknown", reason="no record in the topics has this id")
        places = tuple((one.topic, one.partition, one.offset) for one in records)
        last = max(records, key=lambda one: one.timestamp_ms)
        queue, deliveries = (last.key or b"").decode(errors="replace"), Envelope.read(last.headers).deliveries
        for identity, one in (await self._in_progress()).items():
            if (identity.partition, identity.offset) in {(place[1], place[2]) for place in places}:
                return MessageState(
                    id, one.state, queue, one.since_ms, one.until_ms, Envelope.read(one.start.headers).deliveries, "",
                    places,
                )  # fmt: skip
        position = await self._position(queue)
        state: State = "waiting" if last.offset >= position.get(last.partition, 0) else "processed"
        return MessageState(id, state, queue, last.timestamp_ms, None, deliveries, "", places)

    async def _records_of(self, id: str) -> list[ConsumerRecord]:
        found = []
        async with aclosing(self._read(self._service.options.message_topic)) as records:
            async for record in records:
                if Envelope.read(record.headers).id == id:
                    found.append(record)
        return found


def _apply(found: dict[Identity, _Progress], marker: Marker, appended_ms: int) -> None:
    """Apply a marker to what is in progress, as a tracker does."""
    until_ms = marker.not_before_ms or appended_ms + marker.redeliver_after_ms
    if marker.type == MarkerType.START:
        found[marker.identity] = _Progress(
            marker, appended_ms, until_ms, "delayed" if marker.not_before_ms else "in progress"
        )
    elif marker.type == MarkerType.END:
        found.pop(marker.identity, None)
    elif marker.identity in found:
        one = found[marker.identity]
        one.until_ms = until_ms
        if marker.type == MarkerType.RELEASE:
            one.state, one.since_ms = "released", appended_ms


def read_dead_letter(record: ConsumerRecord) -> DeadLetter:
    """Return the dead letter that a record of the dead letter topic is."""
    headers = dict(record.headers)
    envelope = Envelope.read(record.headers)
    reason = headers.get(REASON) or headers.get(f"{_BROKERS_HEADERS}errors.message") or b""
    place = headers.get(FROM)
    if place is None:
        names = ("topic", "partition", "offset")
        place = b":".join(headers.get(f"{_BROKERS_HEADERS}errors.{name}") or b"" for name in names)
    return DeadLetter(
        (record.key or b"").decode(errors="replace"),
        record.value,
        tuple(pair for pair in envelope.user if not pair[0].startswith(_BROKERS_HEADERS)),
        envelope.id or f"{record.topic}-{record.partition}-{record.offset}",
        reason.decode(errors="replace"),
        envelope.deliveries,
        envelope.first_at or record.timestamp_ms,
        record.timestamp_ms,
        place.decode(errors="replace").strip(":"),
        record.partition,
        record.offset,
        envelope,
    )


def check_limit(name: str, limit: object) -> None:
    """Raise TypeError unless `limit` is a number from 1 up, or None."""
    if limit is not None and (not is_int(limit) or limit < 1):  # type: ignore[operator]
        raise wrong_type(name, limit, "a number from 1 up, or None for all")


__all__ = ["Browser", "DeadLetter", "MessageState", "QueueStats", "WaitingMessage", "check_limit", "read_dead_letter"]
