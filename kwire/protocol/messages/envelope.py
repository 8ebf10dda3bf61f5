"""Envelope (key 58): a broker forwards a client's request, header and all, to the controller in the client's name.

v0   flexible (KIP-590)
"""

from kwire.protocol.fields import bytes_, int16
from kwire.protocol.schema import Request, Response


class EnvelopeRequest(Request["EnvelopeResponse"], key=58, versions=(0, 0), flexible=0):
    request_data: bytes_
    request_principal: bytes_ | None
    client_host_address: bytes_


class EnvelopeResponse(Response, key=58, versions=(0, 0), flexible=0):
    response_data: bytes_ | None = None
    error_code: int16
