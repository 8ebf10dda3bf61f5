"""The consumer: fetches ahead on the loop thread, decodes and returns records on the caller's thread.

    client         `ConsumerClient`: assign, poll, iterate, seek, for both faces    (callers' threads)
    consumer       `Consumer`: the face for threads; `kwire.aio.Consumer` is the other
    group_client   `GroupClient`: subscribe, close                                (callers' threads)
    group_commits  what counts as processed; commit, mark                         (callers' threads)
    group_steps    the steps of a rebalance in the call that polls                (callers' threads)
    group_reports  lag, explain, metrics                                          (callers' threads)
    dropped        a consumer that is dropped without close leaves its group     (loop thread)
    interceptors   what sees records before the program: `ConsumerInterceptor`
    signals        `stop_on_signals`
    explain        why a consumer gets no records
    metrics        what a consumer counts
    lag            how far partitions are behind their ends
    processor      `process`: polls for workers, rebalances, commits in order
    workers        threads and executors that call the user's function
    task_workers   tasks of asyncio that call the user's coroutine function
    shards         records that wait to be processed, in the order to keep
    progress       which offsets of a partition are complete
    dead_letters   a topic for records that cannot be processed
    auto_commit    periodic commits of what was processed                         (loop thread)
    gate           whether the user may be using records; the poll interval
    arguments      checks of the arguments of its methods                         (callers' threads)
    options        `ConsumerOptions`
    buffer         fetched data between the threads; decoding, aborted records
    record         `ConsumerRecord`
    columns        polled records as columns                                      (callers' threads)
    arrow          columns as pyarrow arrays                                      (callers' threads)
    fetcher        what to fetch from which broker, and when                      (loop thread)
    partition      the fetch state of a partition, and its errors                 (loop thread)
    fetch_request  one Fetch request and its response                             (loop thread)
    fetch_session  what a broker knows already, and what changes (KIP-227)        (loop thread)
    offsets        starts and offsets; ListOffsets: earliest, latest, by time     (loop thread)
    assignors      how the members of a classic group divide partitions           (loop thread, or one of its own)
    validation     whether a log still has what was read (KIP-320)                (loop thread)
    subscription   topics by name or pattern
    membership     membership in a group; the choice of its protocol              (loop thread)
    group_member   what members of both protocols share; rebalance steps          (loop thread)
    classic_membership   the classic protocol                                     (loop thread)
    consumer_membership  the new protocol, KIP-848                                (loop thread)
    topic_watch    the group's topics in metadata that may be incomplete          (loop thread)
    commits        OffsetCommit and OffsetFetch                                   (loop thread)
    offset_map     completed offsets in a commit's metadata, as in Confluent's Parallel Consumer
    rebalance      steps of a rebalance, and the user's listener
    routing        the leader of a partition, or why there is none                (loop thread)

The loop thread decodes no records. A record counts as read when it is returned to the caller, not before.

Imports: producer, cluster, protocol, records, wire.
"""

from kwire.consumer.arguments import TopicPartition
from kwire.consumer.assignors import Assignor, MemberAssignment, MemberSubscription, RebalanceProtocol, TopicRacks
from kwire.consumer.columns import PartitionColumns, PolledBatch
from kwire.consumer.consumer import Consumer
from kwire.consumer.dead_letters import DeadLetterTopic, to_topic
from kwire.consumer.interceptors import ConsumerInterceptor
from kwire.consumer.lag import Lag
from kwire.consumer.offsets import Ago, AtTimestamp, Offset, StartOffset
from kwire.consumer.options import ConsumerOptions
from kwire.consumer.parallel import ProcessorMetrics
from kwire.consumer.processor import Processor, ProcessorOptions
from kwire.consumer.rebalance import RebalanceListener, RebalanceStep
from kwire.consumer.record import ConsumerRecord
from kwire.consumer.signals import stop_on_signals
from kwire.consumer.subscription import Regex

__all__ = [
    "Ago",
    "Assignor",
    "AtTimestamp",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerOptions",
    "ConsumerRecord",
    "DeadLetterTopic",
    "Lag",
    "MemberAssignment",
    "MemberSubscription",
    "Offset",
    "PartitionColumns",
    "PolledBatch",
    "Processor",
    "ProcessorMetrics",
    "ProcessorOptions",
    "RebalanceListener",
    "RebalanceProtocol",
    "RebalanceStep",
    "Regex",
    "StartOffset",
    "TopicPartition",
    "TopicRacks",
    "stop_on_signals",
    "to_topic",
]
