"""ShareAcknowledge (key 79): accept, release or reject acquired records of a share group.

v0   flexible; early access in 4.0, removed in 4.1 (KIP-932)
v1   the first stable one (KIP-932)
v2   acknowledgements that renew the lock (KIP-1222)
"""

from kwire.protocol.fields import boolean, int8, int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class ShareAcknowledgeRequest(Request["ShareAcknowledgeResponse"], key=79, versions=(0, 2), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            class AcknowledgementBatch(Struct):
                first_offset: int64
                last_offset: int64
                acknowledge_types: list[int8]

            partition_index: int32
            acknowledgement_batches: list[AcknowledgementBatch]

        topic_id: uuid
        partitions: list[Partition]

    group_id: string | None = None
    member_id: string | None
    share_session_epoch: int32
    is_renew_ack: boolean = since(2, default=False)
    topics: list[Topic]


class ShareAcknowledgeResponse(Response, key=79, versions=(0, 2), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            class Leader(Struct):
                leader_id: int32
                leader_epoch: int32

            partition_index: int32
            error_code: int16
            error_message: string | None = None
            current_leader: Leader

        topic_id: uuid
        partitions: list[Partition]

    class NodeEndpoint(Struct):
        node_id: int32
        host: string
        port: int32
        rack: string | None = None

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None = None
    acquisition_lock_timeout_ms: int32 = since(2, default=0, ignorable=True)
    responses: list[Topic]
    node_endpoints: list[NodeEndpoint]
