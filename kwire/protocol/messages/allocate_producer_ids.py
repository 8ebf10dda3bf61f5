"""AllocateProducerIds (key 67): a broker gets a block of producer ids from the controller.

v0   flexible (KIP-730)
"""

from kwire.protocol.fields import int16, int32, int64
from kwire.protocol.schema import Request, Response


class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"], key=67, versions=(0, 0), flexible=0):
    broker_id: int32
    broker_epoch: int64 = -1


class AllocateProducerIdsResponse(Response, key=67, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
    producer_id_start: int64
    producer_id_len: int32
