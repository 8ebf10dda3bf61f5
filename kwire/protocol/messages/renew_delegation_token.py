"""RenewDelegationToken (key 39): let a delegation token live longer.

v0   (KIP-48)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import bytes_, int16, int32, int64
from kwire.protocol.schema import Request, Response


class RenewDelegationTokenRequest(Request["RenewDelegationTokenResponse"], key=39, versions=(0, 2), flexible=2):
    hmac: bytes_
    renew_period_ms: int64


class RenewDelegationTokenResponse(Response, key=39, versions=(0, 2), flexible=2):
    error_code: int16
    expiry_timestamp_ms: int64
    throttle_time_ms: int32 = 0
