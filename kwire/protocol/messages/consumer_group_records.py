"""Groups of the new consumer protocol, as __consumer_offsets keeps them: keys by type, values by version.

Where a tagged field may be null its default is empty all the same: the schemas say `null` without quotes, which Kafka's
generator takes for no default at all. That is what its classes read and write.

A group's state is spread over records: the group's epoch, one record for each member, the target assignment and what
each member has of it by now. `classic_group_records` says how keys and values stand in the topic.

v0   keys of the old kind, values flexible (KIP-848); in tags the hash of the subscribed topics (KIP-1101) and when the
     assignment was made and its parts were given out
"""

from kwire.protocol.fields import bytes_, int8, int32, int64, string, uuid
from kwire.protocol.schema import Message, Struct, tagged


class ConsumerGroupMetadataKey(Message, key=3, versions=(0, 0), flexible=None):
    group_id: string


class ConsumerGroupMetadataValue(Message, key=3, versions=(0, 0), flexible=0):
    epoch: int32
    metadata_hash: int64 = tagged(0, since=0, default=0)


class ConsumerGroupPartitionMetadataKey(Message, key=4, versions=(0, 0), flexible=None):
    group_id: string


class ConsumerGroupPartitionMetadataValue(Message, key=4, versions=(0, 0), flexible=0):
    """What the group knew of its topics. Brokers before 4.1 wrote it; a hash in the group's record took its place."""

    class Topic(Struct):
        class Partition(Struct):
            partition: int32
            racks: list[string]

        topic_id: uuid
        topic_name: string
        num_partitions: int32
        partition_metadata: list[Partition]

    topics: list[Topic]


class ConsumerGroupMemberMetadataKey(Message, key=5, versions=(0, 0), flexible=None):
    group_id: string
    member_id: string


class ConsumerGroupMemberMetadataValue(Message, key=5, versions=(0, 0), flexible=0):
    class ClassicMember(Struct):
        """Of a member that still speaks the classic protocol, in a group that is being upgraded."""

        class Protocol(Struct):
            name: string
            metadata: bytes_

        session_timeout_ms: int32 = 0
        supported_protocols: list[Protocol] = []  # noqa: RUF012  a declaration: each message has its own

    instance_id: string | None
    rack_id: string | None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None
    rebalance_timeout_ms: int32 = -1
    server_assignor: string | None
    classic_member_metadata: ClassicMember | None = tagged(0, since=0, default=ClassicMember())


class ConsumerGroupTargetAssignmentMetadataKey(Message, key=6, versions=(0, 0), flexible=None):
    group_id: string


class ConsumerGroupTargetAssignmentMetadataValue(Message, key=6, versions=(0, 0), flexible=0):
    assignment_epoch: int32
    assignment_timestamp: int64 = tagged(0, since=0, default=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, key=7, versions=(0, 0), flexible=None):
    group_id: string
    member_id: string


class ConsumerGroupTargetAssignmentMemberValue(Message, key=7, versions=(0, 0), flexible=0):
    class TopicPartition(Struct):
        topic_id: uuid
        partitions: list[int32]

    topic_partitions: list[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8, versions=(0, 0), flexible=None):
    group_id: string
    member_id: string


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions=(0, 0), flexible=0):
    class TopicPartitions(Struct):
        topic_id: uuid
        partitions: list[int32]
        assignment_epochs: list[int32] | None = tagged(0, since=0, default=[])

    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class ConsumerGroupRegularExpressionKey(Message, key=16, versions=(0, 0), flexible=None):
    group_id: string
    regular_expression: string


class ConsumerGroupRegularExpressionValue(Message, key=16, versions=(0, 0), flexible=0):
    """The topics that a subscription by regular expression stood for when the broker last looked."""

    topics: list[string]
    version: int64
    timestamp: int64
