"""EndTxn (key 26): commit or abort a transaction.

v0   (KIP-98)
v1   throttling is the client's to carry out (KIP-219)
v2   PRODUCER_FENCED may be returned (KIP-588)
v3   flexible (KIP-482)
v4   TRANSACTION_ABORTABLE may be returned (KIP-890)
v5   every transaction bumps the epoch: the response has the producer id and epoch to go on with (KIP-890)
"""

from kwire.protocol.fields import boolean, int16, int32, int64, string
from kwire.protocol.schema import Request, Response, since


class EndTxnRequest(Request["EndTxnResponse"], key=26, versions=(0, 5), flexible=3):
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    committed: boolean


class EndTxnResponse(Response, key=26, versions=(0, 5), flexible=3):
    throttle_time_ms: int32 = 0
    error_code: int16
    producer_id: int64 = since(5, default=-1, ignorable=True)
    producer_epoch: int16 = since(5, default=-1, ignorable=True)
