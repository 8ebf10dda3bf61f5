"""AlterClientQuotas (key 49): set or remove quotas of users, client ids and addresses.

v0   (KIP-546)
v1   flexible (KIP-482)
"""

from kwire.protocol.fields import boolean, float64, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct


class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"], key=49, versions=(0, 1), flexible=1):
    class Entry(Struct):
        class Entity(Struct):
            entity_type: string
            entity_name: string | None

        class Op(Struct):
            key: string
            value: float64
            remove: boolean

        entity: list[Entity]
        ops: list[Op]

    entries: list[Entry]
    validate_only: boolean


class AlterClientQuotasResponse(Response, key=49, versions=(0, 1), flexible=1):
    class Entry(Struct):
        class Entity(Struct):
            entity_type: string
            entity_name: string | None

        error_code: int16
        error_message: string | None
        entity: list[Entity]

    throttle_time_ms: int32 = 0
    entries: list[Entry]
