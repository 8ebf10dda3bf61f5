"""Which APIs share a colour in the page and a letter in the text."""

from __future__ import annotations

from typing import NamedTuple

from kwire.protocol import ApiKey


class Family(NamedTuple):
    name: str
    letter: str


PRODUCE = Family("produce", "P")
FETCH = Family("fetch", "F")
OFFSETS = Family("offsets", "O")
GROUP = Family("groups", "G")
TRANSACTION = Family("transactions", "T")
METADATA = Family("metadata", "M")
CONNECTION = Family("connection", "C")
OTHER = Family("other", "A")
# In the order of the legend. A cell of the text shows the first of those with equally many requests.
FAMILIES = (PRODUCE, FETCH, OFFSETS, GROUP, TRANSACTION, METADATA, CONNECTION, OTHER)

_BY_API = {
    ApiKey.PRODUCE: PRODUCE,
    **dict.fromkeys((ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE), FETCH),
    **dict.fromkeys((ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH,
                     ApiKey.OFFSET_FOR_LEADER_EPOCH), OFFSETS),
    **dict.fromkeys((ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP,
                     ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT), GROUP),
    **dict.fromkeys((ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN,
                     ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS), TRANSACTION),
    **dict.fromkeys((ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER,
                     ApiKey.DESCRIBE_TOPIC_PARTITIONS), METADATA),
    **dict.fromkeys((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE), CONNECTION),
}  # fmt: skip


def family_of(key: ApiKey | None, *, is_token: bool = False) -> Family:
    """Return the family of an API; a SASL token without a header belongs to the connection."""
    if is_token:
        return CONNECTION
    return OTHER if key is None else _BY_API.get(key, OTHER)
