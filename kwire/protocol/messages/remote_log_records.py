"""What __remote_log_metadata says of log segments that were copied to remote storage.

The records have no key; the value stands behind its type (API_KEY here) and version, see `internal_topics`. The
snapshot record is of files on disk, in the same frame.

v0   flexible (KIP-405); custom metadata (KIP-917); in a tag whether the segment has no aborted transactions (KIP-1058)
"""

from kwire.protocol.fields import boolean, bytes_, int8, int32, int64, string, uuid
from kwire.protocol.schema import Message, Struct, tagged


class TopicIdPartition(Struct):
    name: string
    id: uuid
    partition: int32


class RemoteLogSegmentId(Struct):
    topic_id_partition: TopicIdPartition
    id: uuid


class SegmentLeaderEpoch(Struct):
    leader_epoch: int32
    offset: int64


class RemoteLogSegmentMetadataRecord(Message, key=0, versions=(0, 0), flexible=0):
    remote_log_segment_id: RemoteLogSegmentId
    start_offset: int64
    end_offset: int64
    broker_id: int32
    max_timestamp_ms: int64
    event_timestamp_ms: int64
    segment_leader_epochs: list[SegmentLeaderEpoch]
    segment_size_in_bytes: int32
    custom_metadata: bytes_ | None = None
    remote_log_segment_state: int8
    txn_index_empty: boolean = tagged(0, since=0, default=False)


class RemoteLogSegmentMetadataUpdateRecord(Message, key=1, versions=(0, 0), flexible=0):
    remote_log_segment_id: RemoteLogSegmentId
    broker_id: int32
    event_timestamp_ms: int64
    custom_metadata: bytes_ | None = None
    remote_log_segment_state: int8


class RemotePartitionDeleteMetadataRecord(Message, key=2, versions=(0, 0), flexible=0):
    topic_id_partition: TopicIdPartition
    broker_id: int32
    event_timestamp_ms: int64
    remote_partition_delete_state: int8


class RemoteLogSegmentMetadataSnapshotRecord(Message, key=3, versions=(0, 0), flexible=0):
    segment_id: uuid
    start_offset: int64
    end_offset: int64
    broker_id: int32
    max_timestamp_ms: int64
    event_timestamp_ms: int64
    segment_leader_epochs: list[SegmentLeaderEpoch]
    segment_size_in_bytes: int32
    custom_metadata: bytes_ | None = None
    remote_log_segment_state: int8
    txn_index_empty: boolean = tagged(0, since=0, default=False)
