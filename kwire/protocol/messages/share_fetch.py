"""ShareFetch (key 78): acquire records of a share group, and acknowledge earlier ones on the way.

v0   flexible; early access in 4.0, removed in 4.1 (KIP-932)
v1   the first stable one: limits by records and batches (KIP-932)
v2   how to acquire (KIP-1206); acknowledgements that renew the lock (KIP-1222)
"""

from kwire.protocol.fields import boolean, int8, int16, int32, int64, records_, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class ShareFetchRequest(Request["ShareFetchResponse"], key=78, versions=(0, 2), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            class AcknowledgementBatch(Struct):
                first_offset: int64
                last_offset: int64
                acknowledge_types: list[int8]

            partition_index: int32
            partition_max_bytes: int32 = since(0, until=0, default=0)
            acknowledgement_batches: list[AcknowledgementBatch]

        topic_id: uuid
        partitions: list[Partition]

    class ForgottenTopic(Struct):
        topic_id: uuid
        partitions: list[int32]

    group_id: string | None = None
    member_id: string | None
    share_session_epoch: int32
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = 2**31 - 1
    max_records: int32 = since(1, default=0)
    batch_size: int32 = since(1, default=0)
    share_acquire_mode: int8 = since(2, default=0, ignorable=True)
    is_renew_ack: boolean = since(2, default=False)
    topics: list[Topic]
    forgotten_topics_data: list[ForgottenTopic]


class ShareFetchResponse(Response, key=78, versions=(0, 2), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            class Leader(Struct):
                leader_id: int32
                leader_epoch: int32

            class AcquiredRecords(Struct):
                first_offset: int64
                last_offset: int64
                delivery_count: int16

            partition_index: int32
            error_code: int16
            error_message: string | None = None
            acknowledge_error_code: int16
            acknowledge_error_message: string | None = None
            current_leader: Leader
            records: records_ | None = since(0, nullable_until=0)
            acquired_records: list[AcquiredRecords]

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
    acquisition_lock_timeout_ms: int32 = since(1, default=0)
    responses: list[Topic]
    node_endpoints: list[NodeEndpoint]
