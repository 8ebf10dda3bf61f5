"""AddRaftVoter (key 80): raft: make a controller a voter.

v0   flexible (KIP-853)
v1   the response need not wait until the change is committed (KIP-1186)
"""

from kwire.protocol.fields import boolean, int16, int32, string, uint16, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class AddRaftVoterRequest(Request["AddRaftVoterResponse"], key=80, versions=(0, 1), flexible=0):
    class Listener(Struct):
        name: string
        host: string
        port: uint16

    cluster_id: string | None
    timeout_ms: int32
    voter_id: int32
    voter_directory_id: uuid
    listeners: list[Listener]
    ack_when_committed: boolean = since(1, default=True)


class AddRaftVoterResponse(Response, key=80, versions=(0, 1), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None
