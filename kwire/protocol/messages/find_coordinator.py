"""FindCoordinator (key 10): which broker looks after a group, a transactional id or a share-partition.

v0   groups only (the request was called GroupCoordinator)
v1   transactional ids too (KIP-98); throttle time, error messages
v2   throttling is the client's to carry out (KIP-219)
v3   flexible (KIP-482)
v4   several keys in one request (KIP-699)
v5   TRANSACTION_ABORTABLE may be returned (KIP-890)
v6   share-partitions, with keys "group:topic id:partition" (KIP-932)
"""

from kwire.protocol.fields import int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since

# key_type
GROUP = 0
TRANSACTION = 1
SHARE = 2


class FindCoordinatorRequest(Request["FindCoordinatorResponse"], key=10, versions=(0, 6), flexible=3):
    key: string = since(0, until=3, default="")
    key_type: int8 = since(1, default=GROUP)
    coordinator_keys: list[string] = since(4, default=[])


class FindCoordinatorResponse(Response, key=10, versions=(0, 6), flexible=3):
    class Coordinator(Struct):
        key: string
        node_id: int32
        host: string
        port: int32
        error_code: int16
        error_message: string | None

    throttle_time_ms: int32 = since(1, default=0, ignorable=True)
    error_code: int16 = since(0, until=3, default=0)
    error_message: string | None = since(1, until=3, default="", ignorable=True)
    node_id: int32 = since(0, until=3, default=0)
    host: string = since(0, until=3, default="")
    port: int32 = since(0, until=3, default=0)
    coordinators: list[Coordinator] = since(4, default=[])
