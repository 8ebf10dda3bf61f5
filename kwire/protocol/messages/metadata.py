"""Metadata (key 3): the cluster's brokers, topics and partition leaders.

v0   an empty list means every topic
v1   null means every topic, and empty none; racks, the controller, internal topics (KIP-4)
v2   cluster id (KIP-78)
v3   throttle time (KIP-124)
v4   the client may forbid the creation of topics (KAFKA-5291)
v5   offline replicas (KIP-112)
v6   throttling is the client's to carry out (KIP-219)
v7   leader epochs (KIP-320)
v8   what the caller may do to the topics and the cluster (KIP-430)
v9   flexible (KIP-482)
v10  topic ids (KIP-516)
v11  the cluster's authorised operations moved to DescribeCluster (KIP-700)
v12  topics by id in the request, with a null name (KIP-516)
v13  a top-level error makes the client bootstrap again (KIP-1102)
"""

from kwire.protocol.fields import NO_ID, boolean, int16, int32, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since

NOT_REQUESTED = -(2**31)  # authorised operations that were not requested


class MetadataRequest(Request["MetadataResponse"], key=3, versions=(0, 13), flexible=9):
    class Topic(Struct):
        topic_id: uuid = since(10, default=NO_ID, ignorable=True)
        name: string | None = since(0, nullable_since=10)

    topics: list[Topic] | None = since(0, nullable_since=1)
    allow_auto_topic_creation: boolean = since(4, default=True)
    include_cluster_authorized_operations: boolean = since(8, until=10, default=False)
    include_topic_authorized_operations: boolean = since(8, default=False)


class MetadataResponse(Response, key=3, versions=(0, 13), flexible=9):
    class Broker(Struct):
        node_id: int32
        host: string
        port: int32
        rack: string | None = since(1, default=None, ignorable=True)

    class Topic(Struct):
        class Partition(Struct):
            error_code: int16
            partition_index: int32
            leader_id: int32
            leader_epoch: int32 = since(7, default=-1, ignorable=True)
            replica_nodes: list[int32]
            isr_nodes: list[int32]
            offline_replicas: list[int32] = since(5, default=[], ignorable=True)

        error_code: int16
        name: string | None = since(0, nullable_since=12)
        topic_id: uuid = since(10, default=NO_ID, ignorable=True)
        is_internal: boolean = since(1, default=False, ignorable=True)
        partitions: list[Partition]
        topic_authorized_operations: int32 = since(8, default=NOT_REQUESTED)

    throttle_time_ms: int32 = since(3, default=0, ignorable=True)
    brokers: list[Broker]
    cluster_id: string | None = since(2, default=None, ignorable=True)
    controller_id: int32 = since(1, default=-1, ignorable=True)
    topics: list[Topic]
    cluster_authorized_operations: int32 = since(8, until=10, default=NOT_REQUESTED)
    error_code: int16 = since(13, default=0, ignorable=True)
