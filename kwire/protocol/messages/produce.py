"""Produce (key 0): append batches of records to partitions. With acks=0 the broker sends no response.

v0   messages of magic 0
v1   throttle time in the response (KIP-13)
v2   messages of magic 1, with timestamps (KIP-32); the response has the log append time
v3   record batches (magic 2), idempotence and transactions (KIP-98)
v4   KAFKA_STORAGE_ERROR may be returned (KIP-112)
v5   log start offset in the response (KIP-107)
v6   throttling is the client's to carry out (KIP-219)
v7   batches in zstd (KIP-110)
v8   the records at fault and a message, in the response (KIP-467)
v9   flexible (KIP-482)
v10  the new leader, when the broker is not it (KIP-951)
v11  TRANSACTION_ABORTABLE may be returned (KIP-890)
v12  a partition joins its transaction with its first batch (KIP-890)
v13  topics by id instead of name (KIP-516)

Kafka 4.0 dropped versions 0 to 2.
"""

from kwire.protocol.fields import NO_ID, int16, int32, int64, records_, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since, tagged


class ProduceRequest(Request["ProduceResponse"], key=0, versions=(0, 13), flexible=9):
    class Topic(Struct):
        class Partition(Struct):
            index: int32
            records: records_ | None

        name: string = since(0, until=12, default="", ignorable=True)
        topic_id: uuid = since(13, default=NO_ID, ignorable=True)
        partition_data: list[Partition]

    transactional_id: string | None = since(3, default=None)
    acks: int16
    timeout_ms: int32
    topic_data: list[Topic]


class ProduceResponse(Response, key=0, versions=(0, 13), flexible=9):
    class Topic(Struct):
        class Partition(Struct):
            class RecordError(Struct):
                batch_index: int32
                batch_index_error_message: string | None = None

            class Leader(Struct):
                leader_id: int32 = -1
                leader_epoch: int32 = -1

            index: int32
            error_code: int16
            base_offset: int64
            log_append_time_ms: int64 = since(2, default=-1, ignorable=True)
            log_start_offset: int64 = since(5, default=-1, ignorable=True)
            record_errors: list[RecordError] = since(8, default=[], ignorable=True)
            error_message: string | None = since(8, default=None, ignorable=True)
            current_leader: Leader = tagged(0, since=10, default=Leader())

        name: string = since(0, until=12, default="", ignorable=True)
        topic_id: uuid = since(13, default=NO_ID, ignorable=True)
        partition_responses: list[Partition]

    class NodeEndpoint(Struct):
        node_id: int32
        host: string
        port: int32
        rack: string | None = None

    responses: list[Topic]
    throttle_time_ms: int32 = since(1, default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = tagged(0, since=10, default=[])
