"""Records: delete them from the beginning of partitions (DeleteRecords, Kafka 0.11, by the leaders)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from kwire.admin.noun import TopicPartition, check_code, checked_mapping, checked_name
from kwire.admin.offsets import LogOffsets
from kwire.admin.results import Results
from kwire.cluster import ToLeader
from kwire.cluster.waiting import blocking
from kwire.consumer.arguments import checked_partitions
from kwire.consumer.offsets import NO_OFFSET
from kwire.errors import ConfigurationError, ErrorCode, broker_error
from kwire.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kwire.protocol.messages.list_offsets import LATEST

_TO_HIGH_WATERMARK = -1


class RecordAdmin(LogOffsets):
    """What both faces share."""

    async def _delete(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records below an offset in each partition; -1 means all. The results are the new log starts."""
        checked_mapping("offsets", offsets, '{("orders", 0): 1000}')
        wanted: dict[TopicPartition, int] = {}
        for key, offset in zip(checked_partitions(offsets), offsets.values(), strict=True):
            if isinstance(offset, bool) or not isinstance(offset, int) or not _TO_HIGH_WATERMARK <= offset < 2**63:
                raise ConfigurationError(
                    f"the offset of {key[0]}-{key[1]} is {offset!r}", remedy="give an offset, or -1 for all records"
                )
            wanted[key] = offset
        return await self._delete_below(wanted, self._deadline(timeout))

    async def _delete_before(
        self, topic: str, time: datetime, *, timeout: float | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records of a topic that are older than `time`, as far as they come first in their partition."""
        checked_name("topic", topic)
        if not isinstance(time, datetime):
            raise ConfigurationError(f"time is {time!r:.60}", remedy="give a datetime")
        deadline = self._deadline(timeout)
        keys = await self._partitions_of([topic], deadline)
        found = await self._offsets_at(dict.fromkeys(keys, int(time.timestamp() * 1000)), deadline)
        newest = [key for key in keys if found[key].offset == NO_OFFSET]  # all records are older
        ends = await self._offsets_at(dict.fromkeys(newest, LATEST), deadline)
        return await self._delete_below({key: (ends.get(key) or found[key]).offset for key in keys}, deadline)

    async def _delete_below(
        self, offsets: Mapping[TopicPartition, int], deadline: float
    ) -> Results[TopicPartition, int]:
        def build(key: TopicPartition, version: int) -> DeleteRecordsRequest:
            partition = DeleteRecordsRequest.Topic.Partition(partition_index=key[1], offset=offsets[key])
            topic = DeleteRecordsRequest.Topic(name=key[0], partitions=[partition])
            return DeleteRecordsRequest(topics=[topic], timeout_ms=self._broker_timeout_ms(deadline))

        routes = {key: ToLeader(*key) for key in offsets}
        return Results(await self._routed(routes, DeleteRecordsRequest, build, _deleted, deadline))


class Records(RecordAdmin):
    """`Admin.records`, for threads."""

    delete = blocking(RecordAdmin._delete)
    delete_before = blocking(RecordAdmin._delete_before)


def _deleted(key: TopicPartition, response: DeleteRecordsResponse, in_doubt: bool) -> int:
    partition = response.topics[0].partitions[0]
    if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise broker_error(
            partition.error_code, "the offset is beyond the end of the partition",
            remedy="give at most its latest offset, or delete all records", api="DeleteRecords", topic=key[0],
            partition=key[1],
        )  # fmt: skip
    check_code(partition.error_code, "DeleteRecords", topic=key[0], partition=key[1])
    return partition.low_watermark
