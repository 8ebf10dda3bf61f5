"""Record batches v2, message sets v0 and v1, control records, and their compression.

Imports: wire.
"""

from kwire.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Batch,
    Header,
    Record,
)
from kwire.records.compression import MAX_DECOMPRESSED_BYTES, Compression
from kwire.records.control import ControlRecord
from kwire.records.convert import convert
from kwire.records.formats import decode_batches, encode_batch
from kwire.records.rows import BATCH_OVERHEAD_BYTES, record_bytes_max
from kwire.records.v2 import assign_offsets, encode_control_batch

__all__ = [
    "BATCH_OVERHEAD_BYTES",
    "CREATE_TIME",
    "LOG_APPEND_TIME",
    "MAX_DECOMPRESSED_BYTES",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "Batch",
    "Compression",
    "ControlRecord",
    "Header",
    "Record",
    "assign_offsets",
    "convert",
    "decode_batches",
    "encode_batch",
    "encode_control_batch",
    "record_bytes_max",
]
