"""Records out: partitioners, partition queues, and the sender that owns order.

    producer         `kwire.Producer`, the face for threads
    response         `ProduceResponse`, the future of a record
    settings         the options
    intake           the door between threads and the loop: bounded memory, inbox
    sender           the state machine: takes in, routes, collates, sends
    outcomes         what answers mean; flushes
    verdicts         what each error code means, a table
    topic_queue      records without a partition yet
    partition_queue  the one owner of a partition's order
    batch            records that travel together
    identity         the idempotent producer's id and epoch
    transaction      the transactional producer's state machine; transaction_state and transaction_verdicts, its tables
    request          batches to ProduceRequest and back, by version
    partitioners     key to partition

Imports: cluster, protocol, records, wire.
"""

from kwire.producer.producer import Producer
from kwire.producer.response import ProduceResponse, RecordMetadata
from kwire.producer.transaction import GroupMetadata

__all__ = ["GroupMetadata", "ProduceResponse", "Producer", "RecordMetadata"]
