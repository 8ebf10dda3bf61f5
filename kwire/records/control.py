"""Control records: markers that brokers write into a log for clients, not for applications.

The key holds the type, and the value depends on it. Clients read only the markers that end transactions (KIP-98); the
other types belong to KRaft's metadata log (KIP-595).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kwire.errors import CorruptRecordsError

# Indexed by the type in the key, as in Kafka's ControlRecordType.
KINDS = ("abort", "commit", "leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters")

_KEY = struct.Struct(">hh")  # version, kind
_END_TRANSACTION = struct.Struct(">hi")  # version, coordinator epoch


class ControlRecord(NamedTuple):
    """A decoded control record.

    `kind` is one of KINDS, or "unknown" for a type of a newer broker, which a reader ignores. `version` is the key's
    version. `coordinator_epoch` is None except for "commit" and "abort".
    """

    kind: str
    version: int
    coordinator_epoch: int | None


def decode_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Return the control record; ignore bytes after the known fields, since newer versions may append fields.

    Raise CorruptRecordsError if the key or the value is too short or has a negative version.
    """
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
        raise CorruptRecordsError("the end-of-transaction marker lacks its coordinator's epoch")
    value_version, coordinator_epoch = _END_TRANSACTION.unpack_from(value)
    if value_version < 0:
        raise CorruptRecordsError(f"the end of a transaction has version {value_version}")
    return ControlRecord(kind, version, coordinator_epoch)


def encode_end_transaction(kind: str, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Return the key and value of the record that ends a transaction: `kind` is "commit" or "abort"."""
    if kind not in ("abort", "commit"):
        raise ValueError(f"a transaction ends with commit or abort, not {kind!r}")
    return _KEY.pack(0, KINDS.index(kind)), _END_TRANSACTION.pack(0, coordinator_epoch)
