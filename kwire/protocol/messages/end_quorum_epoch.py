"""EndQuorumEpoch (key 54): raft: the leader resigns, and names who had better follow.

v0   (KIP-595)
v1   flexible; successors with directory ids, the leader's addresses (KIP-853)
"""

from kwire.protocol.fields import int16, int32, string, uint16, uuid
from kwire.protocol.schema import Request, Response, Struct, since, tagged


class EndQuorumEpochRequest(Request["EndQuorumEpochResponse"], key=54, versions=(0, 1), flexible=1):
    class Topic(Struct):
        class Partition(Struct):
            class Candidate(Struct):
                candidate_id: int32
                candidate_directory_id: uuid

            partition_index: int32
            leader_id: int32
            leader_epoch: int32
            preferred_successors: list[int32] = since(0, until=0, default=[], ignorable=True)
            preferred_candidates: list[Candidate] = since(1, default=[], ignorable=True)

        topic_name: string
        partitions: list[Partition]

    class LeaderEndpoint(Struct):
        name: string
        host: string
        port: uint16

    cluster_id: string | None = None
    topics: list[Topic]
    leader_endpoints: list[LeaderEndpoint] = since(1, default=[], ignorable=True)


class EndQuorumEpochResponse(Response, key=54, versions=(0, 1), flexible=1):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16
            leader_id: int32
            leader_epoch: int32

        topic_name: string
        partitions: list[Partition]

    class NodeEndpoint(Struct):
        node_id: int32
        host: string
        port: uint16

    error_code: int16
    topics: list[Topic]
    node_endpoints: list[NodeEndpoint] = tagged(0, since=1, default=[])
