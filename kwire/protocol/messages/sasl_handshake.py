"""SaslHandshake (key 17): name the SASL mechanism.

v0   the mechanism's messages follow as bare frames without headers (KIP-43)
v1   the mechanism's messages follow in SaslAuthenticate requests (KIP-152)

It can have no flexible version: clients up to 2.4 would negotiate it wrongly.
"""

from kwire.protocol.fields import int16, string
from kwire.protocol.schema import Request, Response


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], key=17, versions=(0, 1), flexible=None):
    mechanism: string


class SaslHandshakeResponse(Response, key=17, versions=(0, 1), flexible=None):
    error_code: int16
    mechanisms: list[string]
