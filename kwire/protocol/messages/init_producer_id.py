"""InitProducerId (key 22): a producer id and epoch, for idempotence and transactions.

v0   (KIP-98)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)
v3   a producer may name its id and epoch, to go on with a bumped epoch after an error (KIP-360)
v4   PRODUCER_FENCED may be returned (KIP-588)
v5   TRANSACTION_ABORTABLE may be returned (KIP-890)
v6   two-phase commit: keep a prepared transaction (KIP-939); not yet stable in 4.4
"""

from kwire.protocol.fields import boolean, int16, int32, int64, string
from kwire.protocol.schema import Request, Response, since


class InitProducerIdRequest(Request["InitProducerIdResponse"], key=22, versions=(0, 6), flexible=2):
    transactional_id: string | None
    transaction_timeout_ms: int32
    producer_id: int64 = since(3, default=-1)
    producer_epoch: int16 = since(3, default=-1)
    enable2_pc: boolean = since(6, default=False)
    keep_prepared_txn: boolean = since(6, default=False)


class InitProducerIdResponse(Response, key=22, versions=(0, 6), flexible=2):
    throttle_time_ms: int32 = 0
    error_code: int16
    producer_id: int64 = -1
    producer_epoch: int16
    ongoing_txn_producer_id: int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: int16 = since(6, default=-1)
