"""SaslAuthenticate (key 36): one message of the SASL mechanism, and the broker's response.

v0   (KIP-152)
v1   how long the session lasts before the client must authenticate again (KIP-368)
v2   flexible (KIP-482)
"""

from kwire.protocol.fields import bytes_, int16, int64, string
from kwire.protocol.schema import Request, Response, since


class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"], key=36, versions=(0, 2), flexible=2):
    auth_bytes: bytes_


class SaslAuthenticateResponse(Response, key=36, versions=(0, 2), flexible=2):
    error_code: int16
    error_message: string | None
    auth_bytes: bytes_
    session_lifetime_ms: int64 = since(1, default=0, ignorable=True)
