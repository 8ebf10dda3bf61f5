"""ProducerSnapshot: what a log remembers of its producers, in the files *.snapshot, behind two bytes of its version.

The checksum is CRC-32C of all that follows it.

v1   (KIP-98)
"""

from kwire.protocol.fields import int16, int32, int64, uint32
from kwire.protocol.schema import Message, Struct


class ProducerSnapshot(Message, versions=(1, 1), flexible=None):
    class ProducerEntry(Struct):
        producer_id: int64
        epoch: int16
        last_sequence: int32
        last_offset: int64
        offset_delta: int32
        timestamp: int64
        coordinator_epoch: int32
        current_txn_first_offset: int64

    crc: uint32
    producer_entries: list[ProducerEntry]
