"""Groups of Kafka Streams, as __consumer_offsets keeps them: keys by type, values by version.

Tasks stand where other groups have partitions, and the topology beside them. There is no type 18.
`classic_group_records` says how keys and values stand in the topic, `consumer_group_records` why what may be null is
empty by default.

v0   keys of the old kind, values flexible (KIP-1071); in tags which topology was found good, described and refused, and
     when tasks were given out
"""

from kwire.protocol.fields import int8, int16, int32, int64, string, uint16
from kwire.protocol.schema import Message, Struct, tagged


class StreamsGroupMetadataKey(Message, key=17, versions=(0, 0), flexible=None):
    group_id: string


class StreamsGroupMetadataValue(Message, key=17, versions=(0, 0), flexible=0):
    class LastAssignmentConfig(Struct):
        key: string
        value: string

    epoch: int32
    metadata_hash: int64
    validated_topology_epoch: int32 = tagged(0, since=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = tagged(1, since=0, default=[])
    stored_description_topology_epoch: int32 = tagged(2, since=0, default=-1)
    failed_description_topology_epoch: int32 = tagged(3, since=0, default=-1)


class StreamsGroupMemberMetadataKey(Message, key=19, versions=(0, 0), flexible=None):
    group_id: string
    member_id: string


class StreamsGroupMemberMetadataValue(Message, key=19, versions=(0, 0), flexible=0):
    class Endpoint(Struct):
        host: string
        port: uint16

    class KeyValue(Struct):
        key: string
        value: string

    instance_id: string | None
    rack_id: string | None
    client_id: string
    client_host: string
    rebalance_timeout_ms: int32 = -1
    topology_epoch: int32
    process_id: string
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]


class StreamsGroupTargetAssignmentMetadataKey(Message, key=20, versions=(0, 0), flexible=None):
    group_id: string


class StreamsGroupTargetAssignmentMetadataValue(Message, key=20, versions=(0, 0), flexible=0):
    assignment_epoch: int32
    assignment_timestamp: int64 = tagged(0, since=0, default=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Message, key=21, versions=(0, 0), flexible=None):
    group_id: string
    member_id: string


class StreamsGroupTargetAssignmentMemberValue(Message, key=21, versions=(0, 0), flexible=0):
    class TaskIds(Struct):
        subtopology_id: string
        partitions: list[int32]

    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class StreamsGroupCurrentMemberAssignmentKey(Message, key=22, versions=(0, 0), flexible=None):
    group_id: string
    member_id: string


class StreamsGroupCurrentMemberAssignmentValue(Message, key=22, versions=(0, 0), flexible=0):
    class TaskIds(Struct):
        subtopology_id: string
        partitions: list[int32]
        assignment_epochs: list[int32] | None = tagged(0, since=0, default=[])

    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]
    active_tasks_pending_revocation: list[TaskIds]
    standby_tasks_pending_revocation: list[TaskIds]
    warmup_tasks_pending_revocation: list[TaskIds]


class StreamsGroupTopologyKey(Message, key=23, versions=(0, 0), flexible=None):
    group_id: string


class StreamsGroupTopologyValue(Message, key=23, versions=(0, 0), flexible=0):
    class Subtopology(Struct):
        class TopicInfo(Struct):
            class TopicConfig(Struct):
                key: string
                value: string

            name: string
            partitions: int32
            replication_factor: int16
            topic_configs: list[TopicConfig]

        class CopartitionGroup(Struct):
            """Indexes into the lists of topics of the subtopology."""

            source_topics: list[int16]
            source_topic_regex: list[int16]
            repartition_source_topics: list[int16]

        subtopology_id: string
        source_topics: list[string]
        source_topic_regex: list[string]
        state_changelog_topics: list[TopicInfo]
        repartition_sink_topics: list[string]
        repartition_source_topics: list[TopicInfo]
        copartition_groups: list[CopartitionGroup]

    epoch: int32
    subtopologies: list[Subtopology]
