"""`kwire.Consumer`: the consumer for threads. It is safe to use from many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kwire.cluster import Cluster
from kwire.cluster.waiting import BLOCKING, blocking, run_blocking
from kwire.consumer.group_client import GroupClient
from kwire.consumer.options import ConsumerKwargs
from kwire.consumer.processor import Processor, ProcessorKwargs, make_processor
from kwire.consumer.record import ConsumerRecord
from kwire.options import translate_bootstrap
from kwire.records.reader import RecordIterator

if TYPE_CHECKING:
    from kwire.records.reader import RecordReader


class Consumer(GroupClient, RecordIterator):
    """Reads records of assigned partitions.

    >>> with kwire.Consumer("localhost:9092") as consumer:            # doctest: +SKIP
    ...     consumer.assign([("greetings", 0, "earliest")])
    ...     for record in consumer:
    ...         print(record.offset, record.value)

    Options, with their defaults. Sizes are bytes of records as they are stored, compressed. The smallest of the limits
    counts; a single batch that exceeds them is still fetched.

    bootstrap                "host:port,host:port" of any brokers of the cluster, a list of such, or a `kwire.Cluster`
    group                    [None] the consumer group to join by `subscribe`, and to commit to
    group_protocol           ["auto"] how the group works: "consumer" is the new protocol (KIP-848), "classic" the
                             older; "auto" is the new one where the brokers have it, unless an option was given that
                             only classic groups have
    group_instance_id        [None] makes the member static (KIP-345): a restart within the session timeout causes no
                             rebalance. Unique in the group
    assignors                [None] classic groups only: how the leader divides partitions, in the order of preference;
                             None: cooperative-sticky
    remote_assignor          [None] new groups only: the broker's assignor, such as "uniform" or "range"; None: its own
                             choice
    session_timeout_ms       [None] classic groups only: a member is dropped after this time without a heartbeat; None:
                             45 s
    heartbeat_interval_ms    [None] classic groups only: at most a third of the session timeout; None: 3 s
    max_poll_interval_ms     [300_000 ms] a member that does not ask for records for this long leaves the group, until
                             it does; None: it never has to
    max_poll_records         [500] what `poll` returns at most, unless it is given a number
    commit                   ["auto"] what commits: "auto" every record that was returned before the last time that the
                             program asked for more, "marks" what `mark` was called for, "manual" only `commit`
    commit_interval_ms       [5_000 ms] how often "auto" and "marks" commit; they also do before a rebalance and in
                             `close`
    callbacks                ["poll"] where rebalance callbacks run: in the call that polls, between two batches; or
                             "background", on a thread of their own, while records may be in use
    isolation                ["read_uncommitted"] "read_committed" hides the records of aborted transactions and waits
                             for open ones to end
    on_no_offset             ["earliest"] where to begin if the group has committed no offset: "earliest", "latest",
                             AtTimestamp(ms), Ago(hours=1), or "error"
    on_out_of_range          ["error"] at an offset that the log does not have: "error", or go to "earliest", "latest",
                             to the "nearest" of the two, AtTimestamp(ms) or Ago(hours=1)
    max_wait_ms              [500 ms] how long a broker may wait for min_bytes; a seek may be that late
    min_bytes                [1 bytes] a broker waits for this many bytes, up to max_wait_ms
    max_bytes                [16_777_216 bytes] the limit of one fetch from one broker
    partition_max_bytes      [1_048_576 bytes] the limit of one partition in one fetch
    max_buffered_bytes       [67_108_864 bytes] the limit of what is fetched, or in flight, and not yet read; without
                             paused partitions
    unknown_topic_timeout_ms [5_000 ms] how long a topic may be unknown to the brokers before it is an error: it may
                             just be created
    rack                     [""] read from a replica of the same rack, if the brokers are configured for it (KIP-392)
    check_crc                [True] whether to verify the checksums of batches
    max_decompressed_bytes   [268_435_456 bytes] a compressed batch that becomes larger is an error

    and those of every client:

    client_id                ["kwire"] the name in the brokers' logs, metrics and quotas
    tls                      [None] True for TLS with the system's certificate authorities, or a `kwire.Tls`
    sasl                     [None] how to log in: `kwire.Sasl("SCRAM-SHA-512", user, password)`
    request_timeout_ms       [30_000 ms] a broker may take this long to answer; then its connection is closed
    connect_timeout_ms       [10_000 ms] a connection may take this long, TLS and SASL included
    idle_timeout_ms          [540_000 ms] an unused connection is closed after this
    metadata_max_age_ms      [300_000 ms] metadata is refreshed after this even if nothing went wrong
    retry_backoff_ms         [100 ms] the first pause before a retry; it doubles up to the maximum, with jitter
                             (KIP-580)
    retry_backoff_ms_max     [1_000 ms] the longest pause before a retry
    reconnect_backoff_ms     [50 ms] the first pause before connecting to a broker again; it doubles likewise
    reconnect_backoff_ms_max [1_000 ms] the longest pause before connecting again
    max_frame_bytes          [104_857_600 bytes] a larger response is refused
    max_in_flight            [5 requests] requests sent on one connection and not yet answered
    allow_auto_create_topics [False] whether brokers may create a topic that a client asks for

    `poll` and iteration raise the error of a partition once, after the records before it. The partition then stops
    until `seek`, and the others continue. Retriable errors (a leader that moves, a broker that restarts) are not
    raised. No broker is contacted before the first use.
    """

    _waiter = BLOCKING
    _name = "kwire.Consumer"

    @translate_bootstrap("kwire.Consumer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ConsumerKwargs]) -> None:
        self._set_up(bootstrap, options)

    position = blocking(GroupClient._position)
    poll = blocking(GroupClient._poll)
    poll_batch = blocking(GroupClient._poll_batch)
    poll_arrow = blocking(GroupClient._poll_arrow)
    partitions = blocking(GroupClient._partitions)
    beginning_offsets = blocking(GroupClient._beginning_offsets)
    end_offsets = blocking(GroupClient._end_offsets)
    offsets_at = blocking(GroupClient._offsets_at)
    subscribe = blocking(GroupClient._subscribe)
    unsubscribe = blocking(GroupClient._unsubscribe)
    allow_rebalance = blocking(GroupClient._allow_rebalance)
    lag = blocking(GroupClient._lag)
    explain = blocking(GroupClient._explain)
    metrics = blocking(GroupClient._metrics)
    commit = blocking(GroupClient._commit)
    committed = blocking(GroupClient._committed)
    close = blocking(GroupClient._close)

    def process(self, function: Callable[[Any], Any], **options: Unpack[ProcessorKwargs]) -> Processor:
        """Process the records of the subscription by `function`, in parallel, and commit them in order.

        Threads call a plain function, tasks of an event loop in a thread of its own a coroutine function.
        `Processor.run` polls until `Processor.stop`; nothing else may poll meanwhile. A record counts as processed when
        `function` has returned. Rebalances and the end wait for calls that run. Options: see `ProcessorOptions`.

        >>> processor = consumer.process(handle, order="key", concurrency=64)     # doctest: +SKIP
        >>> processor.run()                                                       # doctest: +SKIP
        """
        return make_processor(Processor, self, function, options, None)

    def _free_memory(self) -> None:
        self._end()

    def _next_cursor(self) -> RecordReader:
        reader = run_blocking(self._next_reader())
        if reader is None:
            raise StopIteration
        return reader

    if TYPE_CHECKING:

        def __iter__(self) -> Self: ...
        def __next__(self) -> ConsumerRecord: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
