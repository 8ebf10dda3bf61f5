"""Which versions of each API the brokers of each Kafka release report, from 0.10.0 to 4.4.

The table is a history: "0.10.0 0-2, 0.11 0-3" means versions 0 to 2 since 0.10.0 and 0 to 3 since 0.11; a dash means
that the API was removed. Z: only brokers with ZooKeeper have it; K: only brokers with KRaft. The letters matter from
2.8, which had both, to 3.9.

Source: the message schemas in the last kafka-clients jar of each release (common/message/*.json: validVersions,
latestVersionUnstable, and the listeners zkBroker and broker); before 2.8 the class ApiKeys of that jar. Versions that
need unstable.api.versions.enable are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from kwire.protocol.api import ApiKey

RELEASES = (
    "0.10.0", "0.10.1", "0.11", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "3.0",
    "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2", "4.3", "4.4",
)  # fmt: skip

# Brokers of 4.x report Produce 0 to 2 but reject them: librdkafka would not compress otherwise (KAFKA-18659).
_HISTORY: Mapping[int, str] = {
    ApiKey.PRODUCE: (
        "0.10.0 0-2, 0.11 0-3, 1.0 0-5, 2.0 0-6, 2.1 0-7, 2.4 0-8, 2.8 0-9, 3.7 0-10, 3.8 0-11, 4.0 0-12, 4.1 0-13"
    ),
    ApiKey.FETCH: (
        "0.10.0 0-2, 0.10.1 0-3, 0.11 0-5, 1.0 0-6, 1.1 0-7, 2.0 0-8, 2.1 0-10, 2.3 0-11, 2.7 0-12, 3.1 0-13, "
        "3.5 0-15, 3.7 0-16, 3.9 0-17, 4.0 4-17, 4.1 4-18"
    ),
    ApiKey.LIST_OFFSETS: (
        "0.10.0 0, 0.10.1 0-1, 0.11 0-2, 2.0 0-3, 2.1 0-4, 2.2 0-5, 2.8 0-6, 3.0 0-7, 3.5 0-8, 3.9 0-9, 4.0 1-10, "
        "4.2 1-11"
    ),
    ApiKey.METADATA: (
        "0.10.0 0-1, 0.10.1 0-2, 0.11 0-4, 1.0 0-5, 2.0 0-6, 2.1 0-7, 2.3 0-8, 2.4 0-9, 2.8 0-11, 3.1 0-12, "
        "4.0 0-13"
    ),
    ApiKey.LEADER_AND_ISR: "0.10.0 0, 1.0 0-1, 2.2 0-2, 2.4 0-4, 2.8 0-5 Z, 3.2 0-6 Z, 3.4 0-7 Z, 4.0 -",
    ApiKey.STOP_REPLICA: "0.10.0 0, 2.2 0-1, 2.4 0-2, 2.6 0-3, 2.8 0-3 Z, 3.4 0-4 Z, 4.0 -",
    ApiKey.UPDATE_METADATA: "0.10.0 0-2, 0.11 0-3, 1.0 0-4, 2.2 0-5, 2.4 0-6, 2.8 0-7 Z, 3.4 0-8 Z, 4.0 -",
    ApiKey.CONTROLLED_SHUTDOWN: "0.10.0 1, 1.0 0-1, 2.2 0-2, 2.4 0-3, 2.8 0-3 Z, 4.0 -",
    ApiKey.OFFSET_COMMIT: "0.10.0 0-2, 0.11 0-3, 2.0 0-4, 2.1 0-6, 2.3 0-7, 2.4 0-8, 3.7 0-9, 4.0 2-9, 4.2 2-10",
    ApiKey.OFFSET_FETCH: (
        "0.10.0 0-1, 0.11 0-3, 2.0 0-4, 2.1 0-5, 2.4 0-6, 2.5 0-7, 3.0 0-8, 3.7 0-9, 4.0 1-9, 4.2 1-10"
    ),
    ApiKey.FIND_COORDINATOR: "0.10.0 0, 0.11 0-1, 2.0 0-2, 2.4 0-3, 3.0 0-4, 3.8 0-5, 3.9 0-6",
    ApiKey.JOIN_GROUP: (
        "0.10.0 0, 0.10.1 0-1, 0.11 0-2, 2.0 0-3, 2.2 0-4, 2.3 0-5, 2.4 0-6, 2.5 0-7, 3.2 0-9, 4.0 2-9, 4.1 0-9"
    ),
    ApiKey.HEARTBEAT: "0.10.0 0, 0.11 0-1, 2.0 0-2, 2.3 0-3, 2.4 0-4",
    ApiKey.LEAVE_GROUP: "0.10.0 0, 0.11 0-1, 2.0 0-2, 2.4 0-4, 3.2 0-5",
    ApiKey.SYNC_GROUP: "0.10.0 0, 0.11 0-1, 2.0 0-2, 2.3 0-3, 2.4 0-4, 2.5 0-5",
    ApiKey.DESCRIBE_GROUPS: "0.10.0 0, 0.11 0-1, 2.0 0-2, 2.3 0-3, 2.4 0-5, 4.0 0-6",
    ApiKey.LIST_GROUPS: "0.10.0 0, 0.11 0-1, 2.0 0-2, 2.4 0-3, 2.6 0-4, 3.8 0-5",
    ApiKey.SASL_HANDSHAKE: "0.10.0 0, 1.0 0-1",
    ApiKey.API_VERSIONS: "0.10.0 0, 0.11 0-1, 2.0 0-2, 2.4 0-3, 3.9 0-4, 4.4 0-5",
    ApiKey.CREATE_TOPICS: "0.10.1 0, 0.11 0-2, 2.0 0-3, 2.4 0-5, 2.7 0-6, 2.8 0-7, 4.0 2-7",
    ApiKey.DELETE_TOPICS: "0.10.1 0, 0.11 0-1, 2.0 0-2, 2.1 0-3, 2.4 0-4, 2.7 0-5, 2.8 0-6, 4.0 1-6",
    ApiKey.DELETE_RECORDS: "0.11 0, 2.0 0-1, 2.6 0-2",
    ApiKey.INIT_PRODUCER_ID: "0.11 0, 2.0 0-1, 2.4 0-2, 2.5 0-3, 2.7 0-4, 2.8 0-4 Z, 3.0 0-4, 3.8 0-5",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "0.11 0, 2.0 0-1, 2.1 0-2, 2.3 0-3, 2.8 0-4, 4.0 2-4",
    ApiKey.ADD_PARTITIONS_TO_TXN: "0.11 0, 2.0 0-1, 2.7 0-2, 2.8 0-3 Z, 3.0 0-3, 3.6 0-4, 3.8 0-5",
    ApiKey.ADD_OFFSETS_TO_TXN: "0.11 0, 2.0 0-1, 2.7 0-2, 2.8 0-3 Z, 3.0 0-3, 3.8 0-4",
    ApiKey.END_TXN: "0.11 0, 2.0 0-1, 2.7 0-2, 2.8 0-3 Z, 3.0 0-3, 3.8 0-4, 4.0 0-5",
    ApiKey.WRITE_TXN_MARKERS: "0.11 0, 2.8 0-1, 4.0 1, 4.2 1-2",
    ApiKey.TXN_OFFSET_COMMIT: "0.11 0, 2.0 0-1, 2.1 0-2, 2.5 0-3, 2.8 0-3 Z, 3.0 0-3, 3.8 0-4, 4.0 0-5, 4.4 0-6",
    ApiKey.DESCRIBE_ACLS: "0.11 0, 2.0 0-1, 2.5 0-2, 2.8 0-2 Z, 3.0 0-2, 3.3 0-3, 4.0 1-3",
    ApiKey.CREATE_ACLS: "0.11 0, 2.0 0-1, 2.5 0-2, 2.8 0-2 Z, 3.0 0-2, 3.3 0-3, 4.0 1-3",
    ApiKey.DELETE_ACLS: "0.11 0, 2.0 0-1, 2.5 0-2, 2.8 0-2 Z, 3.0 0-2, 3.3 0-3, 4.0 1-3",
    ApiKey.DESCRIBE_CONFIGS: "0.11 0, 1.1 0-1, 2.0 0-2, 2.6 0-3, 2.8 0-4, 4.0 1-4",
    ApiKey.ALTER_CONFIGS: "0.11 0, 2.0 0-1, 2.8 0-2 Z, 3.0 0-2",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "1.0 0, 2.0 0-1, 2.8 0-2, 4.0 1-2",
    ApiKey.DESCRIBE_LOG_DIRS: "1.0 0, 2.0 0-1, 2.6 0-2, 3.2 0-3, 3.3 0-4, 4.0 1-4, 4.3 1-5",
    ApiKey.SASL_AUTHENTICATE: "1.0 0, 2.2 0-1, 2.5 0-2",
    ApiKey.CREATE_PARTITIONS: "1.0 0, 2.0 0-1, 2.5 0-2, 2.7 0-3, 2.8 0-3 Z, 3.0 0-3",
    ApiKey.CREATE_DELEGATION_TOKEN: "1.1 0, 2.0 0-1, 2.4 0-2, 2.8 0-2 Z, 3.3 0-3 Z, 3.6 0-3, 4.0 1-3",
    ApiKey.RENEW_DELEGATION_TOKEN: "1.1 0, 2.0 0-1, 2.5 0-2, 2.8 0-2 Z, 3.6 0-2, 4.0 1-2",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "1.1 0, 2.0 0-1, 2.5 0-2, 2.8 0-2 Z, 3.6 0-2, 4.0 1-2",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "1.1 0, 2.0 0-1, 2.5 0-2, 2.8 0-2 Z, 3.3 0-3 Z, 3.6 0-3, 4.0 1-3",
    ApiKey.DELETE_GROUPS: "1.1 0, 2.0 0-1, 2.4 0-2, 4.4 0-3",
    ApiKey.ELECT_LEADERS: "2.2 0, 2.4 0-2, 2.8 0-2 Z, 3.0 0-2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3 0, 2.4 0-1",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4 0, 2.8 0 Z, 3.0 0, 4.1 0-1",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4 0, 2.8 0 Z, 3.0 0",
    ApiKey.OFFSET_DELETE: "2.4 0",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6 0, 2.8 0-1 Z, 3.0 0-1",
    ApiKey.ALTER_CLIENT_QUOTAS: "2.6 0, 2.8 0-1",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7 0, 2.8 0 Z, 3.5 0",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "2.7 0, 2.8 0 Z, 3.5 0",
    ApiKey.VOTE: "2.7 0, 2.8 -",
    ApiKey.BEGIN_QUORUM_EPOCH: "2.7 0, 2.8 -",
    ApiKey.END_QUORUM_EPOCH: "2.7 0, 2.8 -",
    ApiKey.DESCRIBE_QUORUM: "2.7 0, 2.8 0 K, 3.3 0-1 K, 3.9 0-2 K, 4.0 0-2",
    ApiKey.ALTER_PARTITION: "2.7 0, 2.8 0 Z, 3.2 0-1 Z, 3.3 0-2 Z, 3.5 0-3 Z, 4.0 -",
    ApiKey.UPDATE_FEATURES: "2.7 0, 2.8 0 Z, 3.0 0, 3.3 0-1, 4.0 0-2",
    ApiKey.ENVELOPE: "3.4 0 Z, 4.0 -",
    ApiKey.DESCRIBE_CLUSTER: "2.8 0, 3.7 0-1, 4.0 0-2",
    ApiKey.DESCRIBE_PRODUCERS: "2.8 0",
    ApiKey.UNREGISTER_BROKER: "2.8 0 K, 3.0 -, 3.3 0 K, 4.0 0",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0 0",
    ApiKey.LIST_TRANSACTIONS: "3.0 0, 3.8 0-1, 4.1 0-2",
    ApiKey.ALLOCATE_PRODUCER_IDS: "3.0 0 Z, 4.0 -",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "3.7 0, 4.0 0-1",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "3.8 0, 4.0 0-1",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "3.7 0 K, 4.0 0",
    ApiKey.PUSH_TELEMETRY: "3.7 0 K, 4.0 0",
    ApiKey.LIST_CONFIG_RESOURCES: "3.7 0 K, 4.0 0, 4.1 0-1",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "3.8 0 K, 4.0 0",
    ApiKey.SHARE_GROUP_HEARTBEAT: "4.1 1",
    ApiKey.SHARE_GROUP_DESCRIBE: "4.1 1",
    ApiKey.SHARE_FETCH: "4.1 1, 4.2 1-2",
    ApiKey.SHARE_ACKNOWLEDGE: "4.1 1, 4.2 1-2",
    ApiKey.ADD_RAFT_VOTER: "3.9 0 K, 4.0 0, 4.2 0-1",
    ApiKey.REMOVE_RAFT_VOTER: "3.9 0 K, 4.0 0",
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "4.1 0",
    ApiKey.READ_SHARE_GROUP_STATE: "4.1 0",
    ApiKey.WRITE_SHARE_GROUP_STATE: "4.1 0, 4.2 0-1",
    ApiKey.DELETE_SHARE_GROUP_STATE: "4.1 0",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "4.1 0, 4.2 0-1",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "4.2 0, 4.4 0-1",
    ApiKey.STREAMS_GROUP_DESCRIBE: "4.2 0, 4.4 0-1",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "4.1 0, 4.2 0-1",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "4.1 0",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "4.1 0",
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: "4.4 0",
    ApiKey.UNREGISTER_CONTROLLER: "4.4 0",
}  # fmt: skip

_KRAFT_SINCE = "2.8"
_ENTRY = re.compile(r"(?P<release>[\d.]+) (?:(?P<first>\d+)(?:-(?P<last>\d+))?|-)(?: (?P<mode>[ZK]))?")


@cache
def release_versions(release: str, *, has_zookeeper: bool) -> Mapping[int, range]:
    """Return {API key: versions} of a release's brokers. `has_zookeeper` matters from 2.8 to 3.9. Raises KeyError."""
    if release not in RELEASES:
        raise KeyError(release)
    found = {}
    for key, history in _HISTORY.items():
        versions = _at(history, RELEASES.index(release), "K" if has_zookeeper else "Z")
        if versions:
            found[int(key)] = versions
    return found


@cache
def kept_since(key: int) -> str | None:
    """Return since which release all have an API: "2.4", or "3.7 with KRaft"; None if the newest lacks it."""
    zookeeper = _kept_since(key, RELEASES, has_zookeeper=True)
    kraft = _kept_since(key, RELEASES[RELEASES.index(_KRAFT_SINCE) :], has_zookeeper=False)
    if kraft is None or zookeeper is None:
        return None
    return zookeeper if RELEASES.index(zookeeper) <= RELEASES.index(kraft) else f"{kraft} with KRaft"


def _kept_since(key: int, releases: Sequence[str], *, has_zookeeper: bool) -> str | None:
    since: str | None = None
    for release in releases:
        since = (since or release) if key in release_versions(release, has_zookeeper=has_zookeeper) else None
    return since


def _at(history: str, index: int, other_mode: str) -> range:
    versions = range(0)
    for text in history.split(", "):
        entry = _ENTRY.fullmatch(text)
        assert entry is not None, text
        if RELEASES.index(entry["release"]) > index:
            break
        is_there = entry["first"] is not None and entry["mode"] != other_mode
        versions = range(int(entry["first"]), int(entry["last"] or entry["first"]) + 1) if is_there else range(0)
    return versions
