"""Several messages in one `send`, with their own acknowledgements and time limit, as the producer-API proposal has it.

    request = (
        ProducerRequest()
        .add_message("topic-1", "key-1", "value-1")
        .add_message("topic-2", "key-2", "value-2")
        .timeout(1.0)
        .await_committed()
    )
    for response in producer.send(request):
        print(response.result())

The proposal leaves open how requests with different parameters combine. The rule here: no caller's parameters are
weakened, so records that cannot be combined are sent separately.

    batches      records share a batch only when they wait for the same acknowledgements and have the same time limit.
                 The records of a partition stay in the order in which they were sent.
    requests     a ProduceRequest has one `acks` field, so only batches with equal acks share a request. Its timeout_ms
                 is the longest time limit of its batches.
    time limits  start at `send` and include the wait for memory. When a limit expires, the response fails with a
                 DeliveryError, whose `possibly_persisted` says whether the record was in flight. A batch expires with
                 its oldest record; a record that would lose more than a tenth of its limit begins another batch.
    idempotence  needs the acknowledgement of all in-sync replicas. With an idempotent producer, `await_acks` of 0 or 1
                 waits for all of them, which is more than was requested.
    no parameter means the producer's own options; such records share batches with those of `send(topic, ...)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, Self

from kwire.errors import ConfigurationError
from kwire.producer.futures import warn_of_milliseconds
from kwire.producer.message import Data, Headers, Message
from kwire.producer.options import ALL_IN_SYNC, ProducerSettings

# The share of its time limit that a record may lose by joining an older batch.
_LIMIT_SHARED = 0.1

# Seconds: about eight times the default delivery_timeout_ms.
_LONG = 1_000


class DeliveryOptions(NamedTuple):
    """The parameters of a record that differ from the producer's options.

    `acks` is 0, 1 or -1. `timeout` is the limit in seconds, None for the producer's delivery_timeout_ms; `deadline` is
    the time of the loop's clock at which it expires.
    """

    acks: int
    timeout: float | None = None
    deadline: float = math.inf


def may_share(batch: DeliveryOptions | None, record: DeliveryOptions | None) -> bool:
    """Return whether a record may join a batch whose first record has the options `batch`."""
    if batch is None or record is None:
        return batch is record
    if batch.acks != record.acks or batch.timeout != record.timeout:
        return False
    return batch.timeout is None or 0 <= record.deadline - batch.deadline <= batch.timeout * _LIMIT_SHARED


class ProducerRequest:
    """Messages, their acknowledgements and their time limit. Each method returns the request, so calls can be chained.

    A request may be sent more than once; messages added later are not part of an earlier `send`.
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
        """Limit the delivery of each message to this many seconds after `send`.

        Raises ConfigurationError unless above 0. Warns from 1,000 on: the proposal's example gives milliseconds.
        """
        if not 0 < seconds < math.inf:
            raise ConfigurationError(f"a timeout of {seconds!r} s", remedy="give seconds above 0")
        if seconds >= _LONG:
            warn_of_milliseconds(seconds)
        self._timeout = float(seconds)
        return self

    def await_committed(self) -> Self:
        """Wait for all in-sync replicas, at least min.insync.replicas of the topic."""
        self._acks = ALL_IN_SYNC
        return self

    def await_acks(self, count: int) -> Self:
        """Wait for the leader only (1), or for no response (0): then neither offsets nor broker errors are known.

        Raises ConfigurationError for other counts: brokers have not accepted them since 0.9.
        """
        if count not in (0, 1) or isinstance(count, bool):
            raise ConfigurationError(
                f"await_acks({count!r}): brokers know 0, 1 and all",
                remedy="await_committed(), and min.insync.replicas of the topic for how many replicas that has to be",
            )
        self._acks = count
        return self

    def terms(self, settings: ProducerSettings, now: float) -> DeliveryOptions | None:
        """Return the parameters that differ from the producer's settings; None if none do."""
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
