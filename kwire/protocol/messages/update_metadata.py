"""UpdateMetadata (key 6): the controller sends every broker all partitions and brokers. ZooKeeper mode only.

v0   (the original)
v1   several endpoints per broker, with their security protocols (KIP-2)
v2   racks (KIP-36)
v3   listener names (KIP-103)
v4   offline replicas (KIP-112)
v5   the broker's epoch; partitions by topic (KIP-380)
v6   flexible (KIP-482)
v7   topic ids (KIP-516)
v8   controllers of KRaft, for brokers that migrate (KIP-866)

Kafka 4.0 dropped the API.
"""

from kwire.protocol.fields import NO_ID, boolean, int8, int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since, tagged


class UpdateMetadataPartitionState(Struct):
    topic_name: string = since(0, until=4, default="", ignorable=True)
    partition_index: int32
    controller_epoch: int32
    leader: int32
    leader_epoch: int32
    isr: list[int32]
    zk_version: int32
    replicas: list[int32]
    offline_replicas: list[int32] = since(4, default=[], ignorable=True)


class UpdateMetadataRequest(Request["UpdateMetadataResponse"], key=6, versions=(0, 8), flexible=6):
    class TopicState(Struct):
        topic_name: string
        topic_id: uuid = since(7, default=NO_ID, ignorable=True)
        partition_states: list[UpdateMetadataPartitionState]

    class Broker(Struct):
        class Endpoint(Struct):
            port: int32
            host: string
            listener: string = since(3, default="", ignorable=True)
            security_protocol: int16

        id: int32
        v0_host: string = since(0, until=0, default="", ignorable=True)
        v0_port: int32 = since(0, until=0, default=0, ignorable=True)
        endpoints: list[Endpoint] = since(1, default=[], ignorable=True)
        rack: string | None = since(2, default="", ignorable=True)

    controller_id: int32
    is_k_raft_controller: boolean = since(8, default=False)
    type: int8 = tagged(0, since=8, default=0)
    controller_epoch: int32
    broker_epoch: int64 = since(5, default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = since(0, until=4, default=[])
    topic_states: list[TopicState] = since(5, default=[])
    live_brokers: list[Broker]


class UpdateMetadataResponse(Response, key=6, versions=(0, 8), flexible=6):
    error_code: int16
