"""`kwire.Consumer`: the consumer for threads. It is safe to use from many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kwire.cluster import ClientConfig, Cluster
from kwire.cluster.waiting import BLOCKING, blocking, run_blocking
from kwire.consumer.group_client import GroupClient
from kwire.consumer.interceptors import ConsumerInterceptors
from kwire.consumer.options import CLIENT_DEFAULTS, ConsumerKwargs, ConsumerOptions
from kwire.consumer.processor import Processor, ProcessorKwargs, ProcessorOptions, make_processor
from kwire.consumer.record import ConsumerRecord
from kwire.option_checks import documents_keywords, documents_options, translate_bootstrap
from kwire.records.reader import RecordIterator

if TYPE_CHECKING:
    from kwire.records.reader import RecordReader


@documents_options(ConsumerOptions, ClientConfig, defaults=CLIENT_DEFAULTS)
class Consumer(GroupClient, RecordIterator):
    """Reads records, as a member of a group or of partitions that you assign.

    >>> with kwire.Consumer("localhost:9092", group="billing") as consumer:        # doctest: +SKIP
    ...     consumer.subscribe(["orders"])
    ...     for record in consumer:  # the earlier records are processed, and are committed
    ...         print(record.topic, record.partition, record.offset, record.key, record.value)

    Without a group: `consumer.assign([("orders", 0, "earliest")])`. If other threads or tasks do the work, the default
    commit="auto" would lose records in a crash: give commit="marks" and call `mark`, or use `process`.

    join       subscribe, unsubscribe, assign, assignment, member, allow_rebalance, keep_alive
    read       iteration, poll, poll_batch, poll_arrow, process, pause, resume, wakeup
    commit     commit, commit_async, mark, committed, offsets, group_metadata
    position   position, seek, seek_to, beginning_offsets, end_offsets, offsets_at, lag
    look       explain, metrics, partitions, paused, subscription, on_cluster_event

    The options used most: group, commit, max_poll_records, isolation, on_no_offset, max_buffered_bytes, tls and sasl.
    `help(kwire.Consumer)` and the page "Options" of the documentation have all of them, with defaults and units.

    Sizes are bytes of records as they are stored, compressed. The smallest of the limits counts; a single batch that
    exceeds them is still fetched.

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
    client_instance_id = blocking(GroupClient._client_instance_id)
    commit = blocking(GroupClient._commit)
    committed = blocking(GroupClient._committed)
    close = blocking(GroupClient._close)

    @documents_keywords(ProcessorOptions)
    def process(self, function: Callable[[Any], Any], **options: Unpack[ProcessorKwargs]) -> Processor:
        """Process the records of the subscription by `function`, in parallel, and commit them in order.

        Threads call a plain function, tasks of an event loop in a thread of its own a coroutine function.
        `Processor.run` polls until `Processor.stop`; nothing else may poll meanwhile. A record counts as processed when
        `function` has returned. Rebalances and the end wait for calls that run.

        >>> processor = consumer.process(handle, order="key", concurrency=64)     # doctest: +SKIP
        >>> processor.run()                                                       # doctest: +SKIP
        """
        return make_processor(Processor, self, function, options, None)

    def _free_memory(self) -> None:
        self._end()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        if self._interceptors is not None and self._interceptors.changes_records:
            return self._intercepted(self._interceptors)
        records: Iterator[ConsumerRecord] = super().__iter__()
        return records

    def _intercepted(self, interceptors: ConsumerInterceptors) -> Iterator[ConsumerRecord]:
        while True:
            reading = self._reading
            record = None if reading is None else next(reading, None)
            if record is not None:
                yield from interceptors.on_consume([record])
            elif reading is None or self._reading is reading:
                self._reading = run_blocking(self._next_reader())
                if self._reading is None:
                    return

    def _next_cursor(self) -> RecordReader:
        if self._interceptors is not None:
            self._interceptors.check_records("next()")
        reader = run_blocking(self._next_reader())
        if reader is None:
            raise StopIteration
        return reader

    if TYPE_CHECKING:

        def __next__(self) -> ConsumerRecord: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
