"""`kwire.ShareConsumer`, safe to use from many threads. What it does is in `client`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from kwire.cluster import ClientConfig, Cluster
from kwire.cluster.waiting import BLOCKING, blocking, run_blocking
from kwire.option_checks import documents_keywords, documents_options, translate_bootstrap
from kwire.share.client import ShareConsumerClient
from kwire.share.options import CLIENT_DEFAULTS, ShareConsumerKwargs, ShareConsumerOptions
from kwire.share.processor import ShareProcessor, ShareProcessorKwargs, ShareProcessorOptions, make_share_processor
from kwire.share.record import ShareRecord


@documents_options(ShareConsumerOptions, ClientConfig, defaults=CLIENT_DEFAULTS)
class ShareConsumer(ShareConsumerClient):
    """Reads topics together with the other members of a share group: a queue on Kafka (KIP-932, Kafka 4.2).

    >>> with kwire.ShareConsumer("localhost:9092", group="emails") as consumer:   # doctest: +SKIP
    ...     consumer.subscribe(["emails"])
    ...     for record in consumer:
    ...         with record:                       # leaves normally: accept; raises: release
    ...             send_mail(record.value)

    The broker gives each record to one member at a time, under a lock. The member accepts, releases or rejects it; a
    record that is released, or whose lock ends, goes to any member again, up to the group's limit of deliveries. There
    is no order, and no position.

    The options used most: group, acknowledgement_mode, renew, max_poll_records, tls and sasl.
    `help(kwire.ShareConsumer)` and the page "Options" of the documentation have all of them, with defaults and units.

    `poll` and iteration raise errors that waiting does not end, each once; a group that refuses this member raises at
    every poll. Retriable errors are not raised. No broker is contacted before `subscribe`.
    """

    _waiter = BLOCKING
    _name = "kwire.ShareConsumer"

    @translate_bootstrap("kwire.ShareConsumer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ShareConsumerKwargs]) -> None:
        self._set_up(bootstrap, options)

    subscribe = blocking(ShareConsumerClient._subscribe)
    unsubscribe = blocking(ShareConsumerClient._unsubscribe)
    poll = blocking(ShareConsumerClient._poll)
    commit = blocking(ShareConsumerClient._commit)
    metrics = blocking(ShareConsumerClient._metrics)
    client_instance_id = blocking(ShareConsumerClient._client_instance_id)
    explain = blocking(ShareConsumerClient._explain)
    close = blocking(ShareConsumerClient._close)

    @documents_keywords(ShareProcessorOptions)
    def process(self, function: Callable[[Any], Any], **options: Unpack[ShareProcessorKwargs]) -> ShareProcessor:
        """Process the records of the subscription by `function`, in parallel.

        Threads call a plain function, tasks of an event loop in a thread of its own a coroutine function.
        A record is accepted when `function` has returned, and released when it raised, so that the group delivers it
        again; rejected when its retries are used up. There is no order. `run` polls until `stop`; nothing else may poll
        meanwhile. With renew=True locks are kept while calls run.

        >>> processor = consumer.process(handle, concurrency=64)      # doctest: +SKIP
        >>> processor.run()                                           # doctest: +SKIP
        """
        return make_share_processor(ShareProcessor, self, function, options, None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ShareRecord:
        while True:
            record = self._next_iterated()
            if record is not None:
                return record
            if not run_blocking(self._fill_iteration()):
                raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
