"""Handle UpdateFeatures (KIP-584): change levels of features, all or none."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

_LAST_VERSION_WITH_RESULTS = 1
_Result = UpdateFeaturesResponse.Result


def handle(
    broker: Broker, request: UpdateFeaturesRequest, context: RequestContext, now: float
) -> UpdateFeaturesResponse:
    changes = {update.feature: update.max_version_level for update in request.feature_updates}
    try:
        broker.cluster.features.update(changes, validate_only=request.validate_only)
    except BrokerError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.broker_message)
    results = []
    if context.version <= _LAST_VERSION_WITH_RESULTS:
        results = [_Result(feature=name, error_code=ErrorCode.NONE, error_message="") for name in changes]
    return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=results)


def error_response(request: UpdateFeaturesRequest, code: int, version: int) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=None)


UPDATE_FEATURES = Handler(UpdateFeaturesRequest, handle, error_response, authorize=needs_cluster(Operation.ALTER))
