"""TxnOffsetCommit (key 28): store a group's positions as a part of a transaction.

v0   (KIP-98)
v1   throttling is the client's to carry out (KIP-219)
v2   leader epochs (KIP-320)
v3   flexible (KIP-482); the member and its generation, to fence zombies (KIP-447)
v4   TRANSACTION_ABORTABLE may be returned (KIP-890)
v5   the group joins the transaction by this request; no AddOffsetsToTxn is needed before (KIP-890)
v6   topics by id instead of name (KIP-1319)
"""

from kwire.protocol.fields import NO_ID, int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"], key=28, versions=(0, 6), flexible=3):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32 = since(2, default=-1, ignorable=True)
            committed_metadata: string | None

        name: string = since(0, until=5, default="", ignorable=True)
        topic_id: uuid = since(6, default=NO_ID, ignorable=True)
        partitions: list[Partition]

    transactional_id: string
    group_id: string
    producer_id: int64
    producer_epoch: int16
    generation_id_or_member_epoch: int32 = since(3, default=-1)
    member_id: string = since(3, default="")
    group_instance_id: string | None = since(3, default=None)
    topics: list[Topic]


class TxnOffsetCommitResponse(Response, key=28, versions=(0, 6), flexible=3):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16

        name: string = since(0, until=5, default="", ignorable=True)
        topic_id: uuid = since(6, default=NO_ID, ignorable=True)
        partitions: list[Partition]

    throttle_time_ms: int32 = 0
    topics: list[Topic]
