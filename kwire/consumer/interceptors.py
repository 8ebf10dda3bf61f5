"""Interceptors of consumers: they see, and may change, what a program gets, and learn what was committed.

    class Audit(kwire.ConsumerInterceptor):
        def on_consume(self, records):
            return [record for record in records if not is_test(record)]

        def on_commit(self, offsets):
            log.info("committed %s", offsets)

    consumer = kwire.Consumer("localhost:9092", group="billing", interceptors=[Audit()])

After Java's ConsumerInterceptor. What an interceptor raises is logged and changes nothing. A consumer without
interceptors pays nothing per record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kwire.cluster.interceptors import Interceptors, log
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.offsets import Offset
from kwire.consumer.record import ConsumerRecord
from kwire.errors import ConfigurationError


class ConsumerInterceptor:
    """What a consumer calls with records and with committed offsets. Override any of the methods."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records that the program gets: these, or others. A record that is left out counts as processed.

        A poll returns an empty list, before its time is over, if all that it found are left out.
        Called in the call that reads, on the caller's thread: with what a `poll` returns and what `process` hands to
        its workers, in an iteration with one record at a time. `poll_batch` and `poll_arrow` make no records: they
        raise ConfigurationError where this method is overridden. So does `next(consumer)`.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Learn which offsets the group's coordinator has stored, of commits of every kind.

        Called on a thread of kwire's; of asyncio, in the loop that began to read. It must not wait for long.
        """

    def close(self) -> None:
        """Free what the interceptor holds. Called once, when the consumer has ended, after all other calls."""


class ConsumerInterceptors(Interceptors[ConsumerInterceptor]):
    """The interceptors of one consumer, called in their order; records go from one to the next.

    `dispatch` runs `on_commit` and `close` where user code runs.
    """

    def __init__(self, interceptors: Sequence[ConsumerInterceptor], dispatch: Callable[..., object]) -> None:
        super().__init__(interceptors)
        self.dispatch = dispatch
        self._changing = self._overriding(ConsumerInterceptor, "on_consume")
        self._told = self._overriding(ConsumerInterceptor, "on_commit")

    @property
    def changes_records(self) -> bool:
        return bool(self._changing)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        for interceptor in self._changing:
            try:
                changed = interceptor.on_consume(list(records))
                if not isinstance(changed, list):
                    raise TypeError(f"on_consume returned {type(changed).__name__}, not a list of records")
                records = changed
            except Exception:
                log.exception("%s.on_consume raised", type(interceptor).__name__)
        return records

    def check_records(self, what: str) -> None:
        """Raise ConfigurationError where records would go past the interceptors."""
        if self._changing:
            raise ConfigurationError(
                f"{what} hands out records that no interceptor has seen, and this consumer has some with on_consume",
                remedy="use poll(), `for record in consumer` or process(), or leave the interceptors out",
            )

    def committed(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Tell of stored offsets. On the loop thread."""
        if self._told:
            self.dispatch(self._tell, offsets)

    def _tell(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        for interceptor in self._told:
            try:
                interceptor.on_commit(dict(offsets))
            except Exception:
                log.exception("%s.on_commit raised", type(interceptor).__name__)

    def close_soon(self) -> None:
        """Close the interceptors, after the calls for earlier commits."""
        self.dispatch(self.close)


def is_consumer_interceptors(value: Any) -> bool:
    """Return whether a value is a sequence of interceptors of consumers."""
    return isinstance(value, (list, tuple)) and all(isinstance(one, ConsumerInterceptor) for one in value)
