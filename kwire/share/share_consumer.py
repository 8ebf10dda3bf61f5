"""`kwire.ShareConsumer`, safe to use from many threads. What it does is in `client`."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from kwire.cluster import Cluster
from kwire.cluster.waiting import BLOCKING, blocking, run_blocking
from kwire.options import translate_bootstrap
from kwire.share.client import ShareConsumerClient
from kwire.share.options import ShareConsumerKwargs
from kwire.share.record import ShareRecord


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

    Options, with their defaults.

    OPTIONS

    `poll` and iteration raise errors that waiting does not end, each once; a group that refuses this member raises at
    every poll. Retriable errors are not raised. No broker is contacted before `subscribe`.
    """

    _waiter = BLOCKING
    _name = "kwire.ShareConsumer"

    @translate_bootstrap("kwire.ShareConsumer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ShareConsumerKwargs]) -> None:
        self._set_up(bootstrap, options)

    poll = blocking(ShareConsumerClient._poll)
    commit = blocking(ShareConsumerClient._commit)
    explain = blocking(ShareConsumerClient._explain)
    close = blocking(ShareConsumerClient._close)

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
