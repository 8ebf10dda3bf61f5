"""UpdateRaftVoter (key 82): raft: a voter's new addresses and versions.

v0   flexible (KIP-853)
"""

from kwire.protocol.fields import int16, int32, string, uint16, uuid
from kwire.protocol.schema import Request, Response, Struct, tagged


class UpdateRaftVoterRequest(Request["UpdateRaftVoterResponse"], key=82, versions=(0, 0), flexible=0):
    class Listener(Struct):
        name: string
        host: string
        port: uint16

    class KRaftVersionFeature(Struct):
        min_supported_version: int16
        max_supported_version: int16

    cluster_id: string | None
    current_leader_epoch: int32
    voter_id: int32
    voter_directory_id: uuid
    listeners: list[Listener]
    k_raft_version_feature: KRaftVersionFeature


class UpdateRaftVoterResponse(Response, key=82, versions=(0, 0), flexible=0):
    class Leader(Struct):
        leader_id: int32 = -1
        leader_epoch: int32 = -1
        host: string = ""
        port: int32 = 0

    throttle_time_ms: int32 = 0
    error_code: int16
    current_leader: Leader = tagged(0, since=0, default=Leader())
