"""ControllerRegistration (key 70): a controller announces itself to the active one.

v0   flexible (KIP-919)
"""

from kwire.protocol.fields import boolean, int16, int32, string, uint16, uuid
from kwire.protocol.schema import Request, Response, Struct


class ControllerRegistrationRequest(Request["ControllerRegistrationResponse"], key=70, versions=(0, 0), flexible=0):
    class Listener(Struct):
        name: string
        host: string
        port: uint16
        security_protocol: int16

    class Feature(Struct):
        name: string
        min_supported_version: int16
        max_supported_version: int16

    controller_id: int32
    incarnation_id: uuid
    zk_migration_ready: boolean
    listeners: list[Listener]
    features: list[Feature]


class ControllerRegistrationResponse(Response, key=70, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None
