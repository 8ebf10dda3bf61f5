"""CreateDelegationToken (key 38): a secret to authenticate with in another's place.

v0   (KIP-48)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)
v3   tokens for other owners (KIP-373)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import bytes_, int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since


class CreateDelegationTokenRequest(Request["CreateDelegationTokenResponse"], key=38, versions=(0, 3), flexible=2):
    class Renewer(Struct):
        principal_type: string
        principal_name: string

    owner_principal_type: string | None = since(3, default="")
    owner_principal_name: string | None = since(3, default="")
    renewers: list[Renewer]
    max_lifetime_ms: int64


class CreateDelegationTokenResponse(Response, key=38, versions=(0, 3), flexible=2):
    error_code: int16
    principal_type: string
    principal_name: string
    token_requester_principal_type: string = since(3, default="")
    token_requester_principal_name: string = since(3, default="")
    issue_timestamp_ms: int64
    expiry_timestamp_ms: int64
    max_timestamp_ms: int64
    token_id: string
    hmac: bytes_
    throttle_time_ms: int32 = 0
