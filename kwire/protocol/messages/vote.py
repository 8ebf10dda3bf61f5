"""Vote (key 52): raft: request a vote, or whether one would be granted.

v0   flexible (KIP-595)
v1   directory ids of replica and voter, the leader's address (KIP-853)
v2   pre-vote, which does not increase the epoch (KIP-996); candidate renamed to replica
"""

from kwire.protocol.fields import NO_ID, boolean, int16, int32, int64, string, uint16, uuid
from kwire.protocol.schema import Request, Response, Struct, since, tagged


class VoteRequest(Request["VoteResponse"], key=52, versions=(0, 2), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            replica_epoch: int32
            replica_id: int32
            replica_directory_id: uuid = since(1, default=NO_ID, ignorable=True)
            voter_directory_id: uuid = since(1, default=NO_ID, ignorable=True)
            last_offset_epoch: int32
            last_offset: int64
            pre_vote: boolean = since(2, default=False)

        topic_name: string
        partitions: list[Partition]

    cluster_id: string | None = None
    voter_id: int32 = since(1, default=-1, ignorable=True)
    topics: list[Topic]


class VoteResponse(Response, key=52, versions=(0, 2), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16
            leader_id: int32
            leader_epoch: int32
            vote_granted: boolean

        topic_name: string
        partitions: list[Partition]

    class NodeEndpoint(Struct):
        node_id: int32
        host: string
        port: uint16

    error_code: int16
    topics: list[Topic]
    node_endpoints: list[NodeEndpoint] = tagged(0, since=1, default=[])
