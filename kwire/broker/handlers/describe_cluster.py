"""Handle DescribeCluster (KIP-700): return the brokers and the controller."""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import NOT_REQUESTED, Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.describe_cluster import (
    BROKERS,
    CONTROLLERS,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def handle(
    broker: Broker, request: DescribeClusterRequest, context: RequestContext, now: float
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return error_response(request, code, context.version)
    cluster = broker.cluster
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=cluster.options.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterResponse.Broker(
                broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=not node.is_up
            )
            for node in cluster.nodes_seen_by(context.listener)
            if node.is_up or request.include_fenced_brokers
        ],
        cluster_authorized_operations=(
            context.access.cluster_operations() if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def error_response(request: DescribeClusterRequest, code: int, version: int) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, cluster_id="", brokers=[])


DESCRIBE_CLUSTER = Handler(DescribeClusterRequest, handle, error_response)
