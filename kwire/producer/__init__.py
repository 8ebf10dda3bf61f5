"""Records out: partitioners, partition queues, and the sender that owns order.

    producer         `kwire.Producer`, the face for threads
    core             what it stands on, and `kwire.aio.Producer` too
    message          what a caller may give for a record
    metrics          what is counted
    producer_request messages with parameters of their own, and the rule by which they travel together
    response         `ProduceResponse`, the future of a record
    bulk             `BulkResponse`, the future of the records of one call; and these while they go in
    columns          what a caller may give for many records; arrow, from Arrow's tables
    waiting          how a thread or a task waits for a response
    settings         the options
    intake           the door between threads and the loop: bounded memory, inbox
    sender           the state machine: takes in, routes, collates, sends
    explain          why something is not sent
    lateness         what a wait that took too long was about
    outcomes         what answers mean; flushes
    verdicts         what each error code means, a table
    topic_queue      records without a partition yet
    partition_queue  the one owner of a partition's order
    batch            records that travel together
    split            a batch that is too large for its topic in pieces
    identity         the idempotent producer's id and epoch
    transaction      the transactional producer's state machine; transaction_state and transaction_verdicts, its tables
    request          batches to ProduceRequest and back, by version
    partitioners     which partition: by key, by turns, by a caller's own rule
    spreads          where records without a key go
    topic_watch      who waits for a topic's metadata

Imports: cluster, protocol, records, wire.
"""

from kwire.producer.bulk import BulkResponse, BulkResult
from kwire.producer.explain import Explanation, Hold, Reason
from kwire.producer.futures import ProduceResponse, RecordMetadata
from kwire.producer.message import Message
from kwire.producer.partitioner import Partitioner
from kwire.producer.producer import Producer
from kwire.producer.producer_request import ProducerRequest
from kwire.producer.transaction import GroupMetadata

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
