"""DescribeQuorum (key 55): raft: leader, voters and observers of the metadata log, and how far each is.

v0   flexible (KIP-595)
v1   when a replica last fetched and last had everything (KIP-836)
v2   directory ids, the nodes' addresses, error messages (KIP-853)
"""

from kwire.protocol.fields import NO_ID, int16, int32, int64, string, uint16, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class DescribeQuorumRequest(Request["DescribeQuorumResponse"], key=55, versions=(0, 2), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32

        topic_name: string
        partitions: list[Partition]

    topics: list[Topic]


class DescribeQuorumResponse(Response, key=55, versions=(0, 2), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            class Replica(Struct):
                replica_id: int32
                replica_directory_id: uuid = since(2, default=NO_ID)
                log_end_offset: int64
                last_fetch_timestamp: int64 = since(1, default=-1, ignorable=True)
                last_caught_up_timestamp: int64 = since(1, default=-1, ignorable=True)

            partition_index: int32
            error_code: int16
            error_message: string | None = since(2, default="", ignorable=True)
            leader_id: int32
            leader_epoch: int32
            high_watermark: int64
            current_voters: list[Replica]
            observers: list[Replica]

        topic_name: string
        partitions: list[Partition]

    class Node(Struct):
        class Listener(Struct):
            name: string
            host: string
            port: uint16

        node_id: int32
        listeners: list[Listener]

    error_code: int16
    error_message: string | None = since(2, default="", ignorable=True)
    topics: list[Topic]
    nodes: list[Node] = since(2, default=[])
