"""AlterPartition (key 56): a leader reports which replicas are in sync. Until 2.8 it was called AlterIsr (`alter_isr`).

v0   flexible (KIP-497)
v1   recovery after an unclean election (KIP-704)
v2   topics by id instead of name; INELIGIBLE_REPLICA and NEW_LEADER_ELECTED may be returned (KIP-841)
v3   the replicas' broker epochs (KIP-903)

Kafka 4.0 dropped versions 0 and 1.
"""

from kwire.protocol.fields import NO_ID, int8, int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class AlterPartitionRequest(Request["AlterPartitionResponse"], key=56, versions=(0, 3), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            class Broker(Struct):
                broker_id: int32
                broker_epoch: int64 = -1

            partition_index: int32
            leader_epoch: int32
            new_isr: list[int32] = since(0, until=2, default=[])
            new_isr_with_epochs: list[Broker] = since(3, default=[])
            leader_recovery_state: int8 = since(1, default=0)
            partition_epoch: int32

        topic_name: string = since(0, until=1, default="", ignorable=True)
        topic_id: uuid = since(2, default=NO_ID, ignorable=True)
        partitions: list[Partition]

    broker_id: int32
    broker_epoch: int64 = -1
    topics: list[Topic]


class AlterPartitionResponse(Response, key=56, versions=(0, 3), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16
            leader_id: int32
            leader_epoch: int32
            isr: list[int32]
            leader_recovery_state: int8 = since(1, default=0, ignorable=True)
            partition_epoch: int32

        topic_name: string = since(0, until=1, default="", ignorable=True)
        topic_id: uuid = since(2, default=NO_ID, ignorable=True)
        partitions: list[Partition]

    throttle_time_ms: int32 = 0
    error_code: int16
    topics: list[Topic]
