"""Fetch (key 1): read records from partitions. Consumers and followers use the same request.

v0   messages of magic 0
v1   throttle time in the response (KIP-13)
v2   messages of magic 1, with timestamps (KIP-32)
v3   a limit of bytes for the whole response (KIP-74); the order of the partitions matters from here on
v4   record batches (magic 2), isolation level, aborted transactions (KIP-98)
v5   log start offset (KIP-107)
v6   KAFKA_STORAGE_ERROR may be returned (KIP-112)
v7   fetch sessions: later requests name only what changes (KIP-227)
v8   throttling is the client's to carry out (KIP-219)
v9   current leader epoch, which fences stale readers (KIP-320)
v10  batches in zstd (KIP-110)
v11  fetching from the nearest replica, by rack (KIP-392)
v12  flexible (KIP-482); the last fetched epoch, diverging epoch and snapshots of raft (KIP-595, KIP-630)
v13  topics by id instead of name (KIP-516)
v14  OFFSET_MOVED_TO_TIERED_STORAGE may be returned (KIP-405)
v15  replica id and epoch in a tagged struct (KIP-903)
v16  the new leaders' addresses, when the broker is not the leader (KIP-951)
v17  the replica's directory (KIP-853)
v18  the follower's high watermark (KIP-1166)

Kafka 4.0 dropped versions 0 to 3.
"""

from kwire.protocol.fields import NO_ID, int8, int16, int32, int64, records_, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since, tagged


class FetchRequest(Request["FetchResponse"], key=1, versions=(0, 18), flexible=12):
    class ReplicaState(Struct):
        replica_id: int32 = -1
        replica_epoch: int64 = -1

    class Topic(Struct):
        class Partition(Struct):
            partition: int32
            current_leader_epoch: int32 = since(9, default=-1, ignorable=True)
            fetch_offset: int64
            last_fetched_epoch: int32 = since(12, default=-1)
            log_start_offset: int64 = since(5, default=-1, ignorable=True)
            partition_max_bytes: int32
            replica_directory_id: uuid = tagged(0, since=17, default=NO_ID, ignorable=True)
            high_watermark: int64 = tagged(1, since=18, default=2**63 - 1, ignorable=True)

        topic: string = since(0, until=12, default="", ignorable=True)
        topic_id: uuid = since(13, default=NO_ID, ignorable=True)
        partitions: list[Partition]

    class ForgottenTopic(Struct):
        topic: string = since(7, until=12, default="", ignorable=True)
        topic_id: uuid = since(13, default=NO_ID, ignorable=True)
        partitions: list[int32]

    cluster_id: string | None = tagged(0, since=12, default=None, ignorable=True)
    replica_id: int32 = since(0, until=14, default=-1)
    replica_state: ReplicaState = tagged(1, since=15, default=ReplicaState())
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = since(3, default=2**31 - 1, ignorable=True)
    isolation_level: int8 = since(4, default=0, ignorable=True)
    session_id: int32 = since(7, default=0, ignorable=True)
    session_epoch: int32 = since(7, default=-1, ignorable=True)
    topics: list[Topic]
    forgotten_topics_data: list[ForgottenTopic] = since(7, default=[])
    rack_id: string = since(11, default="", ignorable=True)


class FetchResponse(Response, key=1, versions=(0, 18), flexible=12):
    class Topic(Struct):
        class Partition(Struct):
            class EpochEndOffset(Struct):
                epoch: int32 = -1
                end_offset: int64 = -1

            class Leader(Struct):
                leader_id: int32 = -1
                leader_epoch: int32 = -1

            class SnapshotId(Struct):
                end_offset: int64 = -1
                epoch: int32 = -1

            class AbortedTransaction(Struct):
                producer_id: int64
                first_offset: int64

            partition_index: int32
            error_code: int16
            high_watermark: int64
            last_stable_offset: int64 = since(4, default=-1, ignorable=True)
            log_start_offset: int64 = since(5, default=-1, ignorable=True)
            diverging_epoch: EpochEndOffset = tagged(0, since=12, default=EpochEndOffset())
            current_leader: Leader = tagged(1, since=12, default=Leader())
            snapshot_id: SnapshotId = tagged(2, since=12, default=SnapshotId())
            aborted_transactions: list[AbortedTransaction] | None = since(4, default=[], ignorable=True)
            preferred_read_replica: int32 = since(11, default=-1)
            records: records_ | None

        topic: string = since(0, until=12, default="", ignorable=True)
        topic_id: uuid = since(13, default=NO_ID, ignorable=True)
        partitions: list[Partition]

    class NodeEndpoint(Struct):
        node_id: int32
        host: string
        port: int32
        rack: string | None = None

    throttle_time_ms: int32 = since(1, default=0, ignorable=True)
    error_code: int16 = since(7, default=0, ignorable=True)
    session_id: int32 = since(7, default=0)
    responses: list[Topic]
    node_endpoints: list[NodeEndpoint] = tagged(0, since=16, default=[])
