"""How far a share group has read a partition, as __share_group_state keeps it: a snapshot and what changed since.

The key stands behind two bytes of its type, the value behind two bytes of its version; see `internal_topics`.

v0   keys of the old kind, values flexible (KIP-932); in a tag the count of records that are done with (KIP-1226)
"""

from kwire.protocol.fields import int8, int16, int32, int64, string, uuid
from kwire.protocol.schema import Message, Struct, tagged

# delivery_state
AVAILABLE = 0
ACKNOWLEDGED = 2
ARCHIVED = 4


class StateBatch(Struct):
    first_offset: int64
    last_offset: int64
    delivery_state: int8
    delivery_count: int16


class ShareSnapshotKey(Message, key=0, versions=(0, 0), flexible=None):
    group_id: string
    topic_id: uuid
    partition: int32


class ShareSnapshotValue(Message, key=0, versions=(0, 0), flexible=0):
    snapshot_epoch: int32
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = tagged(0, since=0, default=-1)
    create_timestamp: int64
    write_timestamp: int64
    state_batches: list[StateBatch]


class ShareUpdateKey(Message, key=1, versions=(0, 0), flexible=None):
    group_id: string
    topic_id: uuid
    partition: int32


class ShareUpdateValue(Message, key=1, versions=(0, 0), flexible=0):
    snapshot_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = tagged(0, since=0, default=-1)
    state_batches: list[StateBatch]
