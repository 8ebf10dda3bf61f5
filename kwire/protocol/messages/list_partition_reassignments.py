"""ListPartitionReassignments (key 46): the partitions that are on their way to other replicas.

v0   flexible (KIP-455)
"""

from kwire.protocol.fields import int16, int32, string
from kwire.protocol.schema import Request, Response, Struct


class ListPartitionReassignmentsRequest(
    Request["ListPartitionReassignmentsResponse"], key=46, versions=(0, 0), flexible=0
):
    class Topic(Struct):
        name: string
        partition_indexes: list[int32]

    timeout_ms: int32 = 60_000
    topics: list[Topic] | None = None


class ListPartitionReassignmentsResponse(Response, key=46, versions=(0, 0), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            replicas: list[int32]
            adding_replicas: list[int32]
            removing_replicas: list[int32]

        name: string
        partitions: list[Partition]

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None
    topics: list[Topic]
