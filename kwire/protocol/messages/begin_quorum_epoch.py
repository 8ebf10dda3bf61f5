"""BeginQuorumEpoch (key 53): raft: the new leader says so to the voters.

v0   (KIP-595)
v1   flexible; directory ids, the leader's addresses (KIP-853)
"""

from kwire.protocol.fields import NO_ID, int16, int32, string, uint16, uuid
from kwire.protocol.schema import Request, Response, Struct, since, tagged


class BeginQuorumEpochRequest(Request["BeginQuorumEpochResponse"], key=53, versions=(0, 1), flexible=1):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            voter_directory_id: uuid = since(1, default=NO_ID, ignorable=True)
            leader_id: int32
            leader_epoch: int32

        topic_name: string
        partitions: list[Partition]

    class LeaderEndpoint(Struct):
        name: string
        host: string
        port: uint16

    cluster_id: string | None = None
    voter_id: int32 = since(1, default=-1, ignorable=True)
    topics: list[Topic]
    leader_endpoints: list[LeaderEndpoint] = since(1, default=[], ignorable=True)


class BeginQuorumEpochResponse(Response, key=53, versions=(0, 1), flexible=1):
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
