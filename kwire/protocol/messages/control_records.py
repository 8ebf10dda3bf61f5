"""What control records hold: the records that brokers and controllers write into logs for themselves.

The key of a control record is a ControlRecordTypeSchema, behind two bytes of its version; newer types only add numbers.
The value is one of the others, by the type. Those of KRaft begin with their version once more.

v0   type, end of a transaction (KIP-98), raft's change of leader (KIP-595), snapshots (KIP-630), voters (KIP-853)
v1   of LeaderChangeMessage: the voters' directory ids (KIP-853)
"""

from kwire.protocol.fields import NO_ID, int16, int32, int64, string, uint16, uuid
from kwire.protocol.schema import Message, Struct, since

# type
ABORT = 0
COMMIT = 1
LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
KRAFT_VOTERS = 6


class ControlRecordTypeSchema(Message, versions=(0, 0), flexible=None):
    type: int16


class EndTxnMarker(Message, versions=(0, 0), flexible=None):
    coordinator_epoch: int32


class LeaderChangeMessage(Message, versions=(0, 1), flexible=0):
    class Voter(Struct):
        voter_id: int32
        voter_directory_id: uuid = since(1, default=NO_ID)

    version: int16
    leader_id: int32
    voters: list[Voter]
    granting_voters: list[Voter]


class SnapshotHeaderRecord(Message, versions=(0, 0), flexible=0):
    version: int16
    last_contained_log_timestamp: int64


class SnapshotFooterRecord(Message, versions=(0, 0), flexible=0):
    version: int16


class KRaftVersionRecord(Message, versions=(0, 0), flexible=0):
    version: int16
    k_raft_version: int16


class VotersRecord(Message, versions=(0, 0), flexible=0):
    class Voter(Struct):
        class Endpoint(Struct):
            name: string
            host: string
            port: uint16

        class KRaftVersionFeature(Struct):
            min_supported_version: int16
            max_supported_version: int16

        voter_id: int32
        voter_directory_id: uuid
        endpoints: list[Endpoint]
        k_raft_version_feature: KRaftVersionFeature

    version: int16
    voters: list[Voter]
