"""Committed offsets and classic groups, as __consumer_offsets keeps them.

A record's key is one of the ...Key classes behind two bytes of its type (API_KEY here), its value the class of the same
name behind two bytes of its version; no value means that the offset or group was deleted. See `internal_topics`.

v0   (the original offsets topic)
v1   of OffsetCommitValue: a time to expire at, its only version with one;
     of GroupMetadataValue: each member's rebalance timeout (KIP-62)
v2   of GroupMetadataValue: when the group last changed its state (KIP-211)
v3   of OffsetCommitValue: the leader's epoch (KIP-320); of GroupMetadataValue: static members (KIP-345)
v4   flexible (KIP-915); in a tag of OffsetCommitValue the topic's id
"""

from kwire.protocol.fields import NO_ID, bytes_, int32, int64, string, uuid
from kwire.protocol.schema import Message, Struct, since, tagged


class LegacyOffsetCommitKey(Message, key=0, versions=(0, 0), flexible=None):
    """What 0.8.2 wrote at first. Brokers read it still, and write it no more."""

    group: string
    topic: string
    partition: int32


class LegacyOffsetCommitValue(Message, key=0, versions=(0, 0), flexible=None):
    offset: int64
    metadata: string
    commit_timestamp: int64


class OffsetCommitKey(Message, key=1, versions=(0, 0), flexible=None):
    group: string
    topic: string
    partition: int32


class OffsetCommitValue(Message, key=1, versions=(0, 4), flexible=4):
    offset: int64
    leader_epoch: int32 = since(3, default=-1, ignorable=True)
    metadata: string
    commit_timestamp: int64
    expire_timestamp: int64 = since(1, until=1, default=-1, ignorable=True)
    topic_id: uuid = tagged(0, since=4, default=NO_ID, ignorable=True)


class GroupMetadataKey(Message, key=2, versions=(0, 0), flexible=None):
    group: string


class GroupMetadataValue(Message, key=2, versions=(0, 4), flexible=4):
    class Member(Struct):
        member_id: string
        group_instance_id: string | None = since(3, default=None, ignorable=True)
        client_id: string
        client_host: string
        rebalance_timeout: int32 = since(1, default=-1, ignorable=True)
        session_timeout: int32
        subscription: bytes_
        assignment: bytes_

    protocol_type: string
    generation: int32
    protocol: string | None
    leader: string | None
    current_state_timestamp: int64 = since(2, default=-1, ignorable=True)
    members: list[Member]
