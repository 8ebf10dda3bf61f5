"""Offsets of partitions' logs: where they begin and end, and where the records of a time are (ListOffsets)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Literal

from kwire.admin.noun import Noun, TopicPartition, checked_items, checked_names
from kwire.admin.results import Results
from kwire.cluster.waiting import blocking
from kwire.consumer.arguments import checked_partitions
from kwire.consumer.offsets import (
    Ago,
    AtTimestamp,
    FoundOffset,
    LookupStart,
    OffsetFetcher,
    OffsetsQuery,
    is_start_offset,
    list_offsets_timestamp,
)
from kwire.errors import ConfigurationError, ErrorCode, KwireError, broker_error

Isolation = Literal["read_uncommitted", "read_committed"]

# How long a partition may be unknown to the brokers, as one that is being created: a consumer's default.
_UNKNOWN_TOPIC_TIMEOUT_MS = 5_000


class LogOffsets(Noun):
    """A noun that looks for offsets in logs."""

    async def _partitions_of(self, topics: Iterable[str], deadline: float) -> list[TopicPartition]:
        """Return the partitions of these topics, in order. Raises TopicError for a topic that does not exist."""
        names = sorted(topics)
        known = await self._snapshot(names, deadline)
        keys: list[TopicPartition] = []
        for topic in names:
            metadata = known.topics.get(topic)
            if metadata is None or metadata.error_code:
                code = metadata.error_code if metadata else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise broker_error(code, api="Metadata", topic=topic)
            keys += [(topic, partition) for partition in range(len(metadata.partitions))]
        return keys

    async def _offsets_at(
        self, timestamps: Mapping[TopicPartition, int], deadline: float, isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the first offset at or after each timestamp, or the place that a negative one stands for."""
        if not timestamps:
            return {}
        fetcher, query = self._query(timestamps, deadline, isolation)
        return await self._run(fetcher, query.future, deadline)

    async def _each_offset_at(
        self, timestamps: Mapping[TopicPartition, int], deadline: float, isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, FoundOffset | KwireError]:
        """Return what `_offsets_at` does, but an error for each partition that has one: it hides no other."""
        if not timestamps:
            return {}
        fetcher, query = self._query(timestamps, deadline, isolation)
        return await self._run(fetcher, query.results, deadline)

    def _query(
        self, timestamps: Mapping[TopicPartition, int], deadline: float, isolation: Isolation
    ) -> tuple[OffsetFetcher, OffsetsQuery]:
        fetcher = self._fetcher(deadline, isolation)
        return fetcher, OffsetsQuery(fetcher, timestamps, self._left(deadline))

    def _fetcher(self, deadline: float, isolation: Isolation) -> OffsetFetcher:
        return OffsetFetcher(
            is_committed_only=isolation == "read_committed",
            unknown_topic_timeout_ms=min(int(self._left(deadline) * 1000), _UNKNOWN_TOPIC_TIMEOUT_MS),
            backoff=self._backoff(),
            random=Random(),
        )


class OffsetAdmin(LogOffsets):
    """What both faces share."""

    async def _list(
        self,
        partitions: Iterable[str | TopicPartition],
        at: LookupStart | datetime | timedelta,
        *,
        isolation: Isolation = "read_uncommitted",
        timeout: float | None = None,
    ) -> Results[TopicPartition, FoundOffset]:
        """Return where something is in the logs of topics (by name), or of single partitions.

        at         "earliest", "latest", "max_timestamp" (Kafka 3.0), "local_earliest" (3.5), "latest_tiered" (3.9),
                   "earliest_pending_upload" (4.2); a datetime, a timedelta back from now, `Ago` or `AtTimestamp`
        isolation  with "read_committed", "latest" is the last stable offset

        The offset is -1 where a log has no record that young. Raises TopicError for a topic that does not exist.
        """
        if isinstance(partitions, str):
            checked_names("partitions", partitions)
        named = checked_items("partitions", partitions, str, tuple)
        topics = [one for one in named if isinstance(one, str)]
        keys: list[TopicPartition] = [one for one in named if not isinstance(one, str)]
        timestamp = _timestamp(at)
        checked_isolation(isolation)
        deadline = self._deadline(timeout)
        wanted = [*checked_partitions(keys), *await self._partitions_of(checked_names("partitions", topics), deadline)]
        return Results(await self._each_offset_at(dict.fromkeys(wanted, timestamp), deadline, isolation))


class Offsets(OffsetAdmin):
    """`Admin.offsets`, for threads."""

    list = blocking(OffsetAdmin._list)


def checked_isolation(isolation: Isolation) -> Isolation:
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ConfigurationError(f"isolation is {isolation!r}", remedy='give "read_uncommitted" or "read_committed"')
    return isolation


def _timestamp(at: LookupStart | datetime | timedelta) -> int:
    now_ms = int(datetime.now().timestamp() * 1000)
    match at:
        case datetime():
            return list_offsets_timestamp(AtTimestamp(int(at.timestamp() * 1000)), now_ms)
        case timedelta():
            return list_offsets_timestamp(Ago(abs(at)), now_ms)
        case str() | Ago() | AtTimestamp() if is_start_offset(at):
            return list_offsets_timestamp(at, now_ms)
    raise ConfigurationError(
        f"at is {at!r:.60}",
        remedy='give "earliest", "latest", another place by its name, a datetime, a timedelta, Ago or AtTimestamp',
    )
