"""Share groups, as __consumer_offsets keeps them: keys by type, values by version.

Only who is in the group and reads what; how far a partition has been read stands in __share_group_state, see
`share_state_records`. `classic_group_records` says how keys and values stand in the topic.

v0   keys of the old kind, values flexible (KIP-932); the metadata's hash came with 4.1, no earlier value has it
"""

from kwire.protocol.fields import int8, int32, int64, string, uuid
from kwire.protocol.schema import Message, Struct, tagged


class TopicPartitionsInfo(Struct):
    topic_id: uuid
    topic_name: string
    partitions: list[int32]


class TopicInfo(Struct):
    topic_id: uuid
    topic_name: string


class ShareGroupPartitionMetadataKey(Message, key=9, versions=(0, 0), flexible=None):
    group_id: string


class ShareGroupPartitionMetadataValue(Message, key=9, versions=(0, 0), flexible=0):
    """Of the early access until 4.0; ShareGroupStatePartitionMetadata took its place."""

    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]


class ShareGroupMemberMetadataKey(Message, key=10, versions=(0, 0), flexible=None):
    group_id: string
    member_id: string


class ShareGroupMemberMetadataValue(Message, key=10, versions=(0, 0), flexible=0):
    rack_id: string | None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]


class ShareGroupMetadataKey(Message, key=11, versions=(0, 0), flexible=None):
    group_id: string


class ShareGroupMetadataValue(Message, key=11, versions=(0, 0), flexible=0):
    epoch: int32
    metadata_hash: int64


class ShareGroupTargetAssignmentMetadataKey(Message, key=12, versions=(0, 0), flexible=None):
    group_id: string


class ShareGroupTargetAssignmentMetadataValue(Message, key=12, versions=(0, 0), flexible=0):
    assignment_epoch: int32
    assignment_timestamp: int64 = tagged(0, since=0, default=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Message, key=13, versions=(0, 0), flexible=None):
    group_id: string
    member_id: string


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions=(0, 0), flexible=0):
    class TopicPartition(Struct):
        topic_id: uuid
        partitions: list[int32]

    topic_partitions: list[TopicPartition]


class ShareGroupCurrentMemberAssignmentKey(Message, key=14, versions=(0, 0), flexible=None):
    group_id: string
    member_id: string


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions=(0, 0), flexible=0):
    class TopicPartitions(Struct):
        topic_id: uuid
        partitions: list[int32]

    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(Message, key=15, versions=(0, 0), flexible=None):
    group_id: string


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions=(0, 0), flexible=0):
    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
