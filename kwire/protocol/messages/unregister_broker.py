"""UnregisterBroker (key 64): have the controller forget a broker that is down for good.

v0   flexible (KIP-631)
"""

from kwire.protocol.fields import int16, int32, string
from kwire.protocol.schema import Request, Response


class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"], key=64, versions=(0, 0), flexible=0):
    broker_id: int32


class UnregisterBrokerResponse(Response, key=64, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None
