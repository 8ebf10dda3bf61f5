"""DescribeDelegationToken (key 41): the delegation tokens of owners, all that the caller may see for null.

v0   (KIP-48)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)
v3   the principal that requested the token (KIP-373)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import bytes_, int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since


class DescribeDelegationTokenRequest(Request["DescribeDelegationTokenResponse"], key=41, versions=(0, 3), flexible=2):
    class Owner(Struct):
        principal_type: string
        principal_name: string

    owners: list[Owner] | None


class DescribeDelegationTokenResponse(Response, key=41, versions=(0, 3), flexible=2):
    class Token(Struct):
        class Renewer(Struct):
            principal_type: string
            principal_name: string

        principal_type: string
        principal_name: string
        token_requester_principal_type: string = since(3, default="")
        token_requester_principal_name: string = since(3, default="")
        issue_timestamp: int64
        expiry_timestamp: int64
        max_timestamp: int64
        token_id: string
        hmac: bytes_
        renewers: list[Renewer]

    error_code: int16
    tokens: list[Token]
    throttle_time_ms: int32 = 0
