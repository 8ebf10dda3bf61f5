"""DescribeTopicPartitions (key 75): topics page by page, with the replicas that are eligible to lead.

v0   flexible (KIP-966)
"""

from kwire.protocol.fields import boolean, int16, int32, string, uuid
from kwire.protocol.schema import Request, Response, Struct

NOT_REQUESTED = -(2**31)  # authorised operations that were not requested


class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"], key=75, versions=(0, 0), flexible=0):
    class Topic(Struct):
        name: string

    class Cursor(Struct):
        topic_name: string
        partition_index: int32

    topics: list[Topic]
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponse(Response, key=75, versions=(0, 0), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            error_code: int16
            partition_index: int32
            leader_id: int32
            leader_epoch: int32 = -1
            replica_nodes: list[int32]
            isr_nodes: list[int32]
            eligible_leader_replicas: list[int32] | None = None
            last_known_elr: list[int32] | None = None
            offline_replicas: list[int32]

        error_code: int16
        name: string | None
        topic_id: uuid
        is_internal: boolean = False
        partitions: list[Partition]
        topic_authorized_operations: int32 = NOT_REQUESTED

    class Cursor(Struct):
        topic_name: string
        partition_index: int32

    throttle_time_ms: int32 = 0
    topics: list[Topic]
    next_cursor: Cursor | None = None
