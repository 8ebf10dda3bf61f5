"""FetchSnapshot (key 59): raft: a piece of a snapshot of the metadata log.

v0   flexible (KIP-630)
v1   directory ids, the leaders' addresses (KIP-853)
"""

from kwire.protocol.fields import NO_ID, int16, int32, int64, records_, string, uint16, uuid
from kwire.protocol.schema import Request, Response, Struct, tagged


class SnapshotId(Struct):
    end_offset: int64
    epoch: int32


class FetchSnapshotRequest(Request["FetchSnapshotResponse"], key=59, versions=(0, 1), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition: int32
            current_leader_epoch: int32
            snapshot_id: SnapshotId
            position: int64
            replica_directory_id: uuid = tagged(0, since=1, default=NO_ID, ignorable=True)

        name: string
        partitions: list[Partition]

    cluster_id: string | None = tagged(0, since=0, default=None)
    replica_id: int32 = -1
    max_bytes: int32 = 2**31 - 1
    topics: list[Topic]


class FetchSnapshotResponse(Response, key=59, versions=(0, 1), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            class Leader(Struct):
                leader_id: int32 = 0
                leader_epoch: int32 = 0

            index: int32
            error_code: int16
            snapshot_id: SnapshotId
            current_leader: Leader = tagged(0, since=0, default=Leader())
            size: int64
            position: int64
            unaligned_records: records_

        name: string
        partitions: list[Partition]

    class NodeEndpoint(Struct):
        node_id: int32
        host: string
        port: uint16

    throttle_time_ms: int32 = 0
    error_code: int16
    topics: list[Topic]
    node_endpoints: list[NodeEndpoint] = tagged(0, since=1, default=[])
