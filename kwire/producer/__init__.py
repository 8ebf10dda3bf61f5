"""Records out, in order; transactions.

    producer          `kwire.Producer`, for threads
    client            what it shares with `kwire.aio.Producer`
    options           the options
    message           a record as a caller gives it; serializers: functions for its key and value
    producer_request  messages with acks and a time limit of their own
    futures           `ProduceResponse`, the future of a record; failures: the errors that nobody has looked at
    callbacks         where callbacks run
    bulk, arrow       `send_many` and `send_arrow`: many records of one call
    accumulator       open batches and the memory they use; batch_builder: one open batch
    buffer_pool       the callers that wait for memory
    sender            the state machine; builds requests
    ready             which partitions it examines in a turn
    topic             batches without a partition; slow start of new topics
    partition         the order of a partition
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
    "ProducerRequest",
    "Reason",
    "RecordMetadata",
]
