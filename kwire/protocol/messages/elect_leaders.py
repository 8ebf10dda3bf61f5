"""ElectLeaders (key 43): elect the preferred leaders, or any replica where none in sync is left.

v0   preferred leaders only (KIP-183)
v1   unclean elections too; a top-level error (KIP-460)
v2   flexible (KIP-482)
"""

from kwire.protocol.fields import int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since

# election_type
PREFERRED = 0
UNCLEAN = 1


class ElectLeadersRequest(Request["ElectLeadersResponse"], key=43, versions=(0, 2), flexible=2):
    class Topic(Struct):
        topic: string
        partitions: list[int32]

    election_type: int8 = since(1, default=PREFERRED)
    topic_partitions: list[Topic] | None
    timeout_ms: int32 = 60_000


class ElectLeadersResponse(Response, key=43, versions=(0, 2), flexible=2):
    class Topic(Struct):
        class Partition(Struct):
            partition_id: int32
            error_code: int16
            error_message: string | None

        topic: string
        partition_result: list[Partition]

    throttle_time_ms: int32 = 0
    error_code: int16 = since(1, default=0)
    replica_election_results: list[Topic]
