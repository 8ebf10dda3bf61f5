"""StreamsGroupDescribe (key 89): topology, state and members of groups of Kafka Streams.

v0   flexible (KIP-1071)
v1   a description of the topology on request (KIP-1331); the assignor (KIP-1357)
"""

from kwire.protocol.fields import boolean, int8, int16, int32, int64, string
from kwire.protocol.messages.streams_group_heartbeat import StreamsEndpoint, StreamsTaskIds
from kwire.protocol.messages.streams_group_topology_description_update import StreamsTopologyDescription
from kwire.protocol.schema import Request, Response, Struct, since

NOT_REQUESTED = -(2**31)  # authorised operations that were not requested


class StreamsGroupDescribeRequest(Request["StreamsGroupDescribeResponse"], key=89, versions=(0, 1), flexible=0):
    group_ids: list[string]
    include_authorized_operations: boolean
    include_topology_description: boolean = since(1, default=False)


class StreamsGroupDescribeResponse(Response, key=89, versions=(0, 1), flexible=0):
    class Group(Struct):
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

                subtopology_id: string
                source_topics: list[string]
                repartition_sink_topics: list[string]
                state_changelog_topics: list[TopicInfo]
                repartition_source_topics: list[TopicInfo]

            epoch: int32
            subtopologies: list[Subtopology] | None = None

        class Member(Struct):
            class KeyValue(Struct):
                key: string
                value: string

            class TaskOffset(Struct):
                subtopology_id: string
                partition: int32
                offset: int64

            class Assignment(Struct):
                active_tasks: list[StreamsTaskIds]
                standby_tasks: list[StreamsTaskIds]
                warmup_tasks: list[StreamsTaskIds]

            member_id: string
            member_epoch: int32
            instance_id: string | None = None
            rack_id: string | None = None
            client_id: string
            client_host: string
            topology_epoch: int32
            process_id: string
            user_endpoint: StreamsEndpoint | None = None
            client_tags: list[KeyValue]
            task_offsets: list[TaskOffset]
            task_end_offsets: list[TaskOffset]
            assignment: Assignment
            target_assignment: Assignment
            is_classic: boolean

        error_code: int16
        error_message: string | None = None
        group_id: string
        group_state: string
        group_epoch: int32
        assignment_epoch: int32
        topology: Topology | None = None
        members: list[Member]
        authorized_operations: int32 = NOT_REQUESTED
        topology_description: StreamsTopologyDescription | None = since(1, default=None)
        topology_description_status: int8 = since(1, default=0)
        assignor_name: string | None = since(1, default=None, ignorable=True)

    throttle_time_ms: int32 = 0
    groups: list[Group]
