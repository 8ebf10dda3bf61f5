"""ExpireDelegationToken (key 40): end a delegation token at once or earlier than it would.

v0   (KIP-48)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import bytes_, int16, int32, int64
from kwire.protocol.schema import Request, Response


class ExpireDelegationTokenRequest(Request["ExpireDelegationTokenResponse"], key=40, versions=(0, 2), flexible=2):
    hmac: bytes_
    expiry_time_period_ms: int64


class ExpireDelegationTokenResponse(Response, key=40, versions=(0, 2), flexible=2):
    error_code: int16
    expiry_timestamp_ms: int64
    throttle_time_ms: int32 = 0
