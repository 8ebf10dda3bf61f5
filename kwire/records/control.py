"""Control records: what brokers write into a log for readers, not for users.

The key says the kind, the value is the kind's own. Only the ends of transactions have a value that clients read
(KIP-98); the others are those of KRaft's metadata log (KIP-595).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kwire.errors import CorruptRecordsError

# By the number in the key. Kafka's ControlRecordType.
KINDS = ("abort", "commit", "leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters")

_KEY = struct.Struct(">hh")  # version, kind
_END_TRANSACTION = struct.Struct(">hi")  # version, coordinator epoch


class ControlRecord(NamedTuple):
    """`kind` is one of KINDS, or "unknown" for one that a newer broker brought, which a reader passes over.

    `version` is that of the key; `coordinator_epoch` is None but for "commit" and "abort".
    """

    kind: str
    version: int
    coordinator_epoch: int | None


def decode_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Newer versions may append fields, so what follows the known ones is passed over."""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordsError("a control record's key has no kind")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordsError(f"a control record's key has version {version}")
    if not 0 <= number < len(KINDS):
        return ControlRecord("unknown", version, None)
    kind = KINDS[number]
    if kind not in ("abort", "commit"):
        return ControlRecord(kind, version, None)
    if value is None or len(value) < _END_TRANSACTION.size:
        raise CorruptRecordsError("the end of a transaction does not tell its coordinator's epoch")
    value_version, coordinator_epoch = _END_TRANSACTION.unpack_from(value)
    if value_version < 0:
        raise CorruptRecordsError(f"the end of a transaction has version {value_version}")
    return ControlRecord(kind, version, coordinator_epoch)


def encode_end_transaction(kind: str, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Key and value of the record that ends a transaction: `kind` is "commit" or "abort"."""
    if kind not in ("abort", "commit"):
        raise ValueError(f"a transaction ends with commit or abort, not {kind!r}")
    return _KEY.pack(0, KINDS.index(kind)), _END_TRANSACTION.pack(0, coordinator_epoch)
