"""RemoveRaftVoter (key 81): raft: a controller is to vote no more.

v0   flexible (KIP-853)
"""

from kwire.protocol.fields import int16, int32, string, uuid
from kwire.protocol.schema import Request, Response


class RemoveRaftVoterRequest(Request["RemoveRaftVoterResponse"], key=81, versions=(0, 0), flexible=0):
    cluster_id: string | None
    voter_id: int32
    voter_directory_id: uuid


class RemoveRaftVoterResponse(Response, key=81, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None
