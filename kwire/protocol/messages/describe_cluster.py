"""DescribeCluster (key 60): brokers, controller and id of the cluster, without its topics.

v0   flexible (KIP-700)
v1   requests may go to the controllers of KRaft too, and return them (KIP-919)
v2   fenced brokers on request (KIP-1073)
"""

from kwire.protocol.fields import boolean, int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since

# endpoint_type
BROKERS = 1
CONTROLLERS = 2
NOT_REQUESTED = -(2**31)  # authorised operations that were not requested


class DescribeClusterRequest(Request["DescribeClusterResponse"], key=60, versions=(0, 2), flexible=0):
    include_cluster_authorized_operations: boolean = False
    endpoint_type: int8 = since(1, default=BROKERS)
    include_fenced_brokers: boolean = since(2, default=False)


class DescribeClusterResponse(Response, key=60, versions=(0, 2), flexible=0):
    class Broker(Struct):
        broker_id: int32
        host: string
        port: int32
        rack: string | None = None
        is_fenced: boolean = since(2, default=False)

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None = None
    endpoint_type: int8 = since(1, default=BROKERS)
    cluster_id: string
    controller_id: int32 = -1
    brokers: list[Broker]
    cluster_authorized_operations: int32 = NOT_REQUESTED
