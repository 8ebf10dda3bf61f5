"""UpdateFeatures (key 57): raise or lower the levels of the cluster's features.

v0   flexible (KIP-584)
v1   distinguishes safe and unsafe downgrades; a dry run (KIP-778)
v2   all or nothing: no results per feature (KIP-1022)
"""

from kwire.protocol.fields import boolean, int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since

# upgrade_type
UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"], key=57, versions=(0, 2), flexible=0):
    class FeatureUpdate(Struct):
        feature: string
        max_version_level: int16
        allow_downgrade: boolean = since(0, until=0, default=False)
        upgrade_type: int8 = since(1, default=UPGRADE)

    timeout_ms: int32 = 60_000
    feature_updates: list[FeatureUpdate]
    validate_only: boolean = since(1, default=False)


class UpdateFeaturesResponse(Response, key=57, versions=(0, 2), flexible=0):
    class Result(Struct):
        feature: string
        error_code: int16
        error_message: string | None

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None
    results: list[Result] = since(0, until=1, default=[], ignorable=True)
