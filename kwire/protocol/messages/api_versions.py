"""ApiVersions (key 18): which APIs and versions a broker speaks. The first request of a connection.

A broker that does not know the request's version returns UNSUPPORTED_VERSION in version 0, with its own range of
ApiVersions. So that it can be read before anything is agreed, the response has the header of version 0 always.

v0   (KIP-35)
v1   throttle time (KIP-124)
v2   throttling is the client's to carry out (KIP-219)
v3   flexible (KIP-482), the client's software (KIP-511), the cluster's features (KIP-584)
v4   features whose lowest version is 0 are listed (KAFKA-17011)
v5   the cluster and node that the client means to talk to (KIP-1242)
"""

from kwire.protocol.fields import boolean, int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since, tagged


class ApiVersionsRequest(Request["ApiVersionsResponse"], key=18, versions=(0, 5), flexible=3):
    client_software_name: string = since(3, default="", ignorable=True)
    client_software_version: string = since(3, default="", ignorable=True)
    cluster_id: string | None = since(5, default=None, ignorable=True)
    node_id: int32 = since(5, default=-1, ignorable=True)


class ApiVersionsResponse(Response, key=18, versions=(0, 5), flexible=3):
    class ApiVersion(Struct):
        api_key: int16
        min_version: int16
        max_version: int16

    class SupportedFeature(Struct):
        name: string
        min_version: int16
        max_version: int16

    class FinalizedFeature(Struct):
        name: string
        max_version_level: int16
        min_version_level: int16

    error_code: int16
    api_keys: list[ApiVersion]
    throttle_time_ms: int32 = since(1, default=0, ignorable=True)
    supported_features: list[SupportedFeature] = tagged(0, since=3, default=[], ignorable=True)
    finalized_features_epoch: int64 = tagged(1, since=3, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeature] = tagged(2, since=3, default=[], ignorable=True)
    zk_migration_ready: boolean = tagged(3, since=3, default=False, ignorable=True)
