"""AlterPartitionReassignments (key 45): move partitions to other replicas; null replicas cancel a move.

v0   flexible (KIP-455)
v1   a change of the number of replicas can be forbidden (KIP-860)
"""

from kwire.protocol.fields import boolean, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since


class AlterPartitionReassignmentsRequest(
    Request["AlterPartitionReassignmentsResponse"], key=45, versions=(0, 1), flexible=0
):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            replicas: list[int32] | None = None

        name: string
        partitions: list[Partition]

    timeout_ms: int32 = 60_000
    allow_replication_factor_change: boolean = since(1, default=True)
    topics: list[Topic]


class AlterPartitionReassignmentsResponse(Response, key=45, versions=(0, 1), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16
            error_message: string | None

        name: string
        partitions: list[Partition]

    throttle_time_ms: int32 = 0
    allow_replication_factor_change: boolean = since(1, default=True, ignorable=True)
    error_code: int16
    error_message: string | None
    responses: list[Topic]
