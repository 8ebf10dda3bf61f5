"""DescribeClientQuotas (key 48): the quotas of users, client ids and addresses.

v0   (KIP-546)
v1   flexible (KIP-482)
"""

from kwire.protocol.fields import boolean, float64, int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct

# match_type
EXACT = 0
DEFAULT = 1
SPECIFIED = 2


class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"], key=48, versions=(0, 1), flexible=1):
    class Component(Struct):
        entity_type: string
        match_type: int8
        match: string | None

    components: list[Component]
    strict: boolean


class DescribeClientQuotasResponse(Response, key=48, versions=(0, 1), flexible=1):
    class Entry(Struct):
        class Entity(Struct):
            entity_type: string
            entity_name: string | None

        class Value(Struct):
            key: string
            value: float64

        entity: list[Entity]
        values: list[Value]

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None
    entries: list[Entry] | None
