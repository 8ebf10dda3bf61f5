"""Records in: from the brokers' logs to the user's hands.

    consumer   the face: assign, poll, iterate, seek, ask                       (users' threads)
    lane       what was fetched of a partition and not yet read; decoding       (users' threads)
    columns    what was polled, as columns and for Arrow                        (users' threads)
    inbox      what crosses over, and how much of it there is
    fetcher    what to fetch from whom, and when                                (state machine, loop)
    position   where fetching stands in a partition                             (loop)
    fetch      one Fetch request and whose the parts of its answer are          (loop)
    extent     how far fetched records reach, without decoding them             (loop)
    offsets    earliest, latest, by time: ListOffsets                           (state machine, loop)
    queries    what users ask and wait for                                      (state machines, loop)
    aborted    which batches nobody must see
    place      where a partition's leader is, or why there is none
    failures   the errors of a partition that cannot be read on

It refuses to decode on the loop's thread, and to hand out a record that is not counted as read from then on.

Imports: cluster, protocol, records, wire.
"""

from kwire.consumer.arguments import TopicPartition
from kwire.consumer.columns import PartitionColumns, PolledBatch
from kwire.consumer.consumer import Consumer
from kwire.consumer.offsets import AtTimestamp, StartOffset
from kwire.consumer.options import ConsumerOptions
from kwire.consumer.record import ConsumerRecord

__all__ = [
    "AtTimestamp",
    "Consumer",
    "ConsumerOptions",
    "ConsumerRecord",
    "PartitionColumns",
    "PolledBatch",
    "StartOffset",
    "TopicPartition",
]
