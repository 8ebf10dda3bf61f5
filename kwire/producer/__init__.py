"""Records out, in order; transactions.

    producer          `kwire.Producer`, for threads
    methods           the methods that wait, shared with `kwire.aio.Producer`
    consumed          batches of a consumer in a transaction
    client            the parts of a producer that never wait
    options           the options
    message           a record as a caller gives it; serializers: functions for its key and value
    interceptors      what sees each record and its result: `ProducerInterceptor`
    producer_request  messages with acks and a time limit of their own
    futures           `ProduceResponse`, the future of a record; where callbacks run; failures that no caller has seen
    bulk, arrow       `send_many`, `send_lines` and `send_arrow`: many records of one call
    accumulator       open batches, the memory they use, and the callers that wait for some
    batch_builder     one open batch
    sender            the state machine; builds requests
    topic             batches without a partition; slow start of new topics
    partition         the order of a partition; which partitions the sender examines in a turn
    batch             a batch on the loop thread; splitting: a batch that is too large
    partitioner       which partition a record or batch gets
    responses         requests by version; what a response means for a batch; flushes
    producer_id       the producer id and epoch
    transaction       the transactional producer
    explain           why records are not sent yet
    metrics           what is counted

Imports: cluster, protocol, records, wire.
"""

from kwire.cluster import GroupMetadata
from kwire.producer.bulk import BulkResponse, BulkResult
from kwire.producer.explain import Explanation, Hold, Reason
from kwire.producer.futures import ProduceResponse, RecordMetadata
from kwire.producer.interceptors import ProducerInterceptor
from kwire.producer.message import Message
from kwire.producer.partitioner import Partitioner
from kwire.producer.producer import Producer
from kwire.producer.producer_request import ProducerRequest

__all__ = [
    "BulkResponse",
    "BulkResult",
    "Explanation",
    "GroupMetadata",
    "Hold",
    "Message",
    "Partitioner",
    "ProduceResponse",
    "Producer",
    "ProducerInterceptor",
    "ProducerRequest",
    "Reason",
    "RecordMetadata",
]
