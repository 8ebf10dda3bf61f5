"""ControlledShutdown (key 7): a broker requests the controller to move its leaders away. ZooKeeper mode only.

v0   (the original); the only request whose header has no client id
v1   an ordinary header
v2   the broker's epoch (KIP-380)
v3   flexible (KIP-482)

Kafka 4.0 dropped the API.
"""

from kwire.protocol.fields import int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since


class ControlledShutdownRequest(Request["ControlledShutdownResponse"], key=7, versions=(0, 3), flexible=3):
    broker_id: int32
    broker_epoch: int64 = since(2, default=-1, ignorable=True)


class ControlledShutdownResponse(Response, key=7, versions=(0, 3), flexible=3):
    class RemainingPartition(Struct):
        topic_name: string
        partition_index: int32

    error_code: int16
    remaining_partitions: list[RemainingPartition]
