"""The cluster as a whole in the metadata log (__cluster_metadata): features, producer ids, and the log's own
transactions, which hold records together that do not fit into one batch.

`metadata_broker_records` says how a record stands in the log.

v0   flexible; features (KIP-778), producer ids (KIP-730), no-ops that move the log on (KIP-835), the migration from
     ZooKeeper (KIP-866), transactions (KIP-868)
"""

from kwire.protocol.fields import int8, int16, int32, int64, string
from kwire.protocol.schema import Message, tagged


class FeatureLevelRecord(Message, key=12, versions=(0, 0), flexible=0):
    name: string
    feature_level: int16


class ProducerIdsRecord(Message, key=15, versions=(0, 0), flexible=0):
    broker_id: int32
    broker_epoch: int64 = -1
    next_producer_id: int64


class NoOpRecord(Message, key=20, versions=(0, 0), flexible=0):
    pass


class ZkMigrationStateRecord(Message, key=21, versions=(0, 0), flexible=0):
    zk_migration_state: int8


class BeginTransactionRecord(Message, key=23, versions=(0, 0), flexible=0):
    name: string | None = tagged(0, since=0, default=None)


class EndTransactionRecord(Message, key=24, versions=(0, 0), flexible=0):
    pass


class AbortTransactionRecord(Message, key=25, versions=(0, 0), flexible=0):
    reason: string | None = tagged(0, since=0, default=None)
