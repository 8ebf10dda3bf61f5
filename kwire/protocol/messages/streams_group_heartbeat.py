"""StreamsGroupHeartbeat (key 88): join, live in and leave a group of Kafka Streams; the broker assigns the tasks.

Null means "as before" in the request and "nothing new" in the response.

v0   flexible (KIP-1071)
v1   the broker may request a description of the topology (KIP-1331); the acceptable recovery lag in 64 bits
"""

from kwire.protocol.fields import boolean, int8, int16, int32, int64, string, uint16
from kwire.protocol.schema import Request, Response, Struct, since


class StreamsTaskIds(Struct):
    subtopology_id: string
    partitions: list[int32]


class StreamsEndpoint(Struct):
    host: string
    port: uint16


class StreamsGroupHeartbeatRequest(Request["StreamsGroupHeartbeatResponse"], key=88, versions=(0, 1), flexible=0):
    class KeyValue(Struct):
        key: string
        value: string

    class TaskOffset(Struct):
        subtopology_id: string
        partition: int32
        offset: int64

    class Topology(Struct):
        class Subtopology(Struct):
            class TopicInfo(Struct):
                class Config(Struct):
                    key: string
                    value: string

                name: string
                partitions: int32
                replication_factor: int16
                topic_configs: list[Config]

            class CopartitionGroup(Struct):
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

    group_id: string
    member_id: string
    member_epoch: int32
    endpoint_information_epoch: int32
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: int32 = -1
    topology: Topology | None = None
    active_tasks: list[StreamsTaskIds] | None = None
    standby_tasks: list[StreamsTaskIds] | None = None
    warmup_tasks: list[StreamsTaskIds] | None = None
    process_id: string | None = None
    user_endpoint: StreamsEndpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: boolean = False


class StreamsGroupHeartbeatResponse(Response, key=88, versions=(0, 1), flexible=0):
    class Status(Struct):
        status_code: int8
        status_detail: string

    class EndpointToPartitions(Struct):
        class TopicPartition(Struct):
            topic: string
            partitions: list[int32]

        user_endpoint: StreamsEndpoint
        active_partitions: list[TopicPartition]
        standby_partitions: list[TopicPartition]

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None = None
    member_id: string
    member_epoch: int32
    heartbeat_interval_ms: int32
    acceptable_recovery_lag_legacy: int32 = since(0, until=0, default=0)
    task_offset_interval_ms: int32
    acceptable_recovery_lag: int64 = since(1, default=-1, ignorable=True)
    status: list[Status] | None
    active_tasks: list[StreamsTaskIds] | None = None
    standby_tasks: list[StreamsTaskIds] | None = None
    warmup_tasks: list[StreamsTaskIds] | None = None
    topology_description_required: boolean = since(1, default=False)
    endpoint_information_epoch: int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
