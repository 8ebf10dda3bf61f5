"""WriteTxnMarkers (key 27): a transaction's coordinator has the partitions' leaders write commit or abort markers.

v0   (KIP-98)
v1   flexible (KIP-482)
v2   the transaction version, from which the leader knows how to check the epoch (KIP-1228)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import boolean, int8, int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since


class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"], key=27, versions=(0, 2), flexible=1):
    class Marker(Struct):
        class Topic(Struct):
            name: string
            partition_indexes: list[int32]

        producer_id: int64
        producer_epoch: int16
        transaction_result: boolean
        topics: list[Topic]
        coordinator_epoch: int32
        transaction_version: int8 = since(2, default=0, ignorable=True)

    markers: list[Marker]


class WriteTxnMarkersResponse(Response, key=27, versions=(0, 2), flexible=1):
    class Marker(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int32
                error_code: int16

            name: string
            partitions: list[Partition]

        producer_id: int64
        topics: list[Topic]

    markers: list[Marker]
