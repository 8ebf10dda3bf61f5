"""QuorumStateData: whom a KRaft node voted for and follows. Its file `quorum-state` holds it as JSON, not as bytes.

v0   flexible (KIP-595)
v1   directory ids instead of cluster id and voters (KIP-853)
"""

from kwire.protocol.fields import NO_ID, int32, int64, string, uuid
from kwire.protocol.schema import Message, Struct, since


class QuorumStateData(Message, versions=(0, 1), flexible=0):
    class Voter(Struct):
        voter_id: int32

    cluster_id: string = since(0, until=0, default="")
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    voted_id: int32 = -1
    voted_directory_id: uuid = since(1, default=NO_ID)
    applied_offset: int64 = since(0, until=0, default=0)
    current_voters: list[Voter] | None = since(0, until=0, default=[])
