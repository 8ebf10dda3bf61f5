"""Several messages handed over at once, with what their sender asks of their delivery: the producer-API proposal's.

    request = (
        ProducerRequest()
        .add_message("topic-1", "key-1", "value-1")
        .add_message("topic-2", "key-2", "value-2")
        .timeout(1.0)
        .await_committed()
    )
    for response in producer.send(request):
        print(response.result())

The proposal left open what happens when requests with different parameters travel together. The rule here: nothing
that a caller asked for is weakened, so what cannot be combined travels separately.

    batches      records share a batch only when they wait for the same acknowledgements and have the same time limit.
                 The records of a partition stay in the order in which they were handed over.
    requests     a ProduceRequest has one field for the acknowledgements, so only batches of the same share one. Its
                 field for the time that replicas may take gets the longest limit of its batches.
    time limits  count from `send`, waiting for memory included. When one is over, the response has an outcome: a
                 DeliveryError, whose `possibly_persisted` says whether the record was on its way. A batch is over when
                 its oldest record is; one that would lose more than a tenth of its limit by that begins another batch.
    idempotence  needs the acknowledgement of all replicas in sync. A producer that promised no duplicates keeps the
                 promise: there, `await_acks` of 0 or 1 waits for all, which is more than was asked for.
    no parameter means the producer's own, and travels with what `send(topic, ...)` sends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, Self

from kwire.errors import ConfigurationError
from kwire.producer.futures import warn_of_milliseconds
from kwire.producer.message import Data, Headers, Message
from kwire.producer.options import ALL_IN_SYNC, ProducerSettings

# A record may lose this part of its time limit by joining a batch that was begun earlier.
_LIMIT_SHARED = 0.1

# Seconds: eight times what a record has by default.
_LONG = 1_000


class DeliveryOptions(NamedTuple):
    """What the sender of a record asked for, where that is not what the producer does anyway.

    `acks` is 0, 1 or -1. `timeout` is the limit in seconds, `deadline` the loop's time at which it is over; None for
    the producer's own delivery_timeout_ms.
    """

    acks: int
    timeout: float | None = None
    deadline: float = math.inf


def may_share(batch: DeliveryOptions | None, record: DeliveryOptions | None) -> bool:
    """Whether a record may join a batch whose first record came with the terms `batch`."""
    if batch is None or record is None:
        return batch is record
    if batch.acks != record.acks or batch.timeout != record.timeout:
        return False
    return batch.timeout is None or 0 <= record.deadline - batch.deadline <= batch.timeout * _LIMIT_SHARED


class ProducerRequest:
    """Messages, and how they are to be delivered. Each method answers the request itself, so that calls chain.

    It may be sent more than once; what is added afterwards is not part of what was sent before.
    """

    __slots__ = ("_acks", "_messages", "_timeout")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._timeout: float | None = None
        self._acks: int | None = None

    def add_message(
        self,
        topic: str,
        key: Data = None,
        value: Data = None,
        *,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Self:
        """Add a message: topic, key, value, in the proposal's order."""
        self._messages.append(Message(topic, value, key, headers, partition, timestamp_ms))
        return self

    def timeout(self, seconds: float) -> Self:
        """Have an outcome of every response this many seconds after `send`.

        ConfigurationError unless it is above 0. A warning from 1,000 on: the proposal's example gives milliseconds.
        """
        if not 0 < seconds < math.inf:
            raise ConfigurationError(f"a timeout of {seconds!r} s", remedy="give seconds above 0")
        if seconds >= _LONG:
            warn_of_milliseconds(seconds)
        self._timeout = float(seconds)
        return self

    def await_committed(self) -> Self:
        """Wait until all replicas in sync have the messages: how many that are, min.insync.replicas of the topic."""
        self._acks = ALL_IN_SYNC
        return self

    def await_acks(self, count: int) -> Self:
        """Wait for the leader alone (1), or for nobody (0): then responses know no offset and no failure at the broker.

        ConfigurationError for more: brokers count no replicas since 0.9.
        """
        if count not in (0, 1) or isinstance(count, bool):
            raise ConfigurationError(
                f"await_acks({count!r}): brokers know 0, 1 and all",
                remedy="await_committed(), and min.insync.replicas of the topic for how many replicas that has to be",
            )
        self._acks = count
        return self

    def terms(self, settings: ProducerSettings, now: float) -> DeliveryOptions | None:
        """What its records ask for beyond what a producer with these settings does anyway."""
        acks = settings.required_acks if self._acks is None or settings.wants_idempotence else self._acks
        if self._timeout is not None:
            return DeliveryOptions(acks, self._timeout, now + self._timeout)
        return None if acks == settings.required_acks else DeliveryOptions(acks)

    def __iter__(self) -> Iterator[Message]:
        return iter(tuple(self._messages))

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        acks = {None: "the producer's acks", ALL_IN_SYNC: "committed"}.get(self._acks, f"{self._acks} acks")
        limit = "" if self._timeout is None else f", within {self._timeout} s"
        return f"<ProducerRequest of {len(self)} messages, {acks}{limit}>"
