"""UnregisterController (key 94): have the cluster forget a controller that is down for good.

v0   flexible (KAFKA-20395)
"""

from kwire.protocol.fields import int16, int32, string
from kwire.protocol.schema import Request, Response


class UnregisterControllerRequest(Request["UnregisterControllerResponse"], key=94, versions=(0, 0), flexible=0):
    controller_id: int32


class UnregisterControllerResponse(Response, key=94, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None
