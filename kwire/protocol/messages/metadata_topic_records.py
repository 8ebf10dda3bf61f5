"""Topics, their partitions and configurations in the metadata log (__cluster_metadata).

`metadata_broker_records` says how a record stands in the log.

v0   flexible (KIP-631); in tags the recovery of a leader that was elected uncleanly (KIP-704)
v1   of PartitionRecord and PartitionChangeRecord: the replicas' directories (KIP-858)
v2   of the same: the replicas that may become leaders (KIP-966)
"""

from kwire.protocol.fields import int8, int32, string, uuid
from kwire.protocol.schema import Message, since, tagged


class TopicRecord(Message, key=2, versions=(0, 0), flexible=0):
    name: string
    topic_id: uuid


class PartitionRecord(Message, key=3, versions=(0, 2), flexible=0):
    partition_id: int32 = -1
    topic_id: uuid
    replicas: list[int32]
    isr: list[int32]
    removing_replicas: list[int32]
    adding_replicas: list[int32]
    leader: int32 = -1
    leader_recovery_state: int8 = tagged(0, since=0, default=0)
    leader_epoch: int32 = -1
    partition_epoch: int32 = -1
    directories: list[uuid] = since(1, default=[])
    eligible_leader_replicas: list[int32] | None = tagged(1, since=2, default=None)
    last_known_elr: list[int32] | None = tagged(2, since=2, default=None)


class ConfigRecord(Message, key=4, versions=(0, 0), flexible=0):
    resource_type: int8
    resource_name: string
    name: string
    value: string | None


class PartitionChangeRecord(Message, key=5, versions=(0, 2), flexible=0):
    """None stands for what did not change, of `leader` -2 (-1 is no leader), of `leader_recovery_state` -1."""

    partition_id: int32 = -1
    topic_id: uuid
    isr: list[int32] | None = tagged(0, since=0, default=None)
    leader: int32 = tagged(1, since=0, default=-2)
    replicas: list[int32] | None = tagged(2, since=0, default=None)
    removing_replicas: list[int32] | None = tagged(3, since=0, default=None)
    adding_replicas: list[int32] | None = tagged(4, since=0, default=None)
    leader_recovery_state: int8 = tagged(5, since=0, default=-1)
    directories: list[uuid] | None = tagged(8, since=1, default=None)
    eligible_leader_replicas: list[int32] | None = tagged(6, since=2, default=None)
    last_known_elr: list[int32] | None = tagged(7, since=2, default=None)


class RemoveTopicRecord(Message, key=9, versions=(0, 0), flexible=0):
    topic_id: uuid


class ClearElrRecord(Message, key=28, versions=(0, 0), flexible=0):
    """Of one topic, or with an empty name of all."""

    topic_name: string
