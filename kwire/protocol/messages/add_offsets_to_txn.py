"""AddOffsetsToTxn (key 25): announce to the transaction coordinator that a transaction will commit offsets of a group.

v0   (KIP-98)
v1   throttling is the client's to carry out (KIP-219)
v2   PRODUCER_FENCED may be returned (KIP-588)
v3   flexible (KIP-482)
v4   TRANSACTION_ABORTABLE may be returned (KIP-890)
"""

from kwire.protocol.fields import int16, int32, int64, string
from kwire.protocol.schema import Request, Response


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], key=25, versions=(0, 4), flexible=3):
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    group_id: string


class AddOffsetsToTxnResponse(Response, key=25, versions=(0, 4), flexible=3):
    throttle_time_ms: int32 = 0
    error_code: int16
