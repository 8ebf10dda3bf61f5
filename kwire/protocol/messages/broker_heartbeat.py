"""BrokerHeartbeat (key 63): a broker reports that it is alive, and requests to be fenced, unfenced or shut down.

v0   flexible (KIP-631)
v1   log directories that failed (KIP-858)
v2   log directories that take no new replicas (KIP-1066)
"""

from kwire.protocol.fields import boolean, int16, int32, int64, uuid
from kwire.protocol.schema import Request, Response, tagged


class BrokerHeartbeatRequest(Request["BrokerHeartbeatResponse"], key=63, versions=(0, 2), flexible=0):
    broker_id: int32
    broker_epoch: int64 = -1
    current_metadata_offset: int64
    want_fence: boolean
    want_shut_down: boolean
    offline_log_dirs: list[uuid] = tagged(0, since=1, default=[])
    cordoned_log_dirs: list[uuid] | None = tagged(1, since=2, default=None)


class BrokerHeartbeatResponse(Response, key=63, versions=(0, 2), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
    is_caught_up: boolean = False
    is_fenced: boolean = True
    should_shut_down: boolean
