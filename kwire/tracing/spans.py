"""Spans of producers and consumers.

    send <topic>       from `send` until the record is acknowledged or has failed; the record's headers have its context
    poll <topic>       one call of `poll` that returned records, with a link to the context of each
    process <topic>    the work on one record, or on a list of records, with links to their contexts

What the program does inside a process span, sending included, belongs to that span.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from kwire import aio
from kwire.arguments import wrong_type
from kwire.consumer import Consumer, ConsumerRecord
from kwire.net import SystemClock
from kwire.producer import Producer, ProduceResponse
from kwire.producer.message import Data, Headers, to_headers
from kwire.share import ShareConsumer, ShareRecord
from kwire.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound="Client")
Record: TypeAlias = ConsumerRecord | ShareRecord
Client: TypeAlias = Producer | aio.Producer | Consumer | aio.Consumer | ShareConsumer | aio.ShareConsumer
Attributes: TypeAlias = dict[str, str | int]

_PRODUCERS = (Producer, aio.Producer)
_CONSUMERS = (Consumer, aio.Consumer, ShareConsumer, aio.ShareConsumer)


def instrument(
    client: C, *, tracer_provider: TracerProvider | None = None, record_keys: bool = False, group: str | None = None
) -> C:
    """Make spans for `send` of a producer, or for `poll` of a consumer. Return the client.

    `tracer_provider` is by default OpenTelemetry's global one. With `record_keys` the key of a record is an attribute
    of its span, as text; keys may be personal data. `group` is an attribute of a consumer's spans. To instrument a
    client twice has no effect.
    """
    tracer = _tracer(tracer_provider)
    if isinstance(client, _PRODUCERS):
        _replace(client, "send", lambda send: _sending(send, tracer, client.client_id, record_keys))
    elif isinstance(client, _CONSUMERS):
        _replace(client, "poll", lambda poll: _polling(poll, tracer, group))
    else:
        raise wrong_type("client", client, "a producer, a consumer or a share consumer of kwire")
    return client


def with_context(headers: Headers = None) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers with the context of the current span, for `send_all` and other ways to send."""
    carrier = dict[str, str]()
    propagate.inject(carrier)
    kept = (pair for pair in to_headers(headers) if pair[0] not in carrier)
    return (*kept, *((name, value.encode()) for name, value in carrier.items()))


def context_of(record: Record) -> Context:
    """Return the context in the headers of a record: of the span that sent it. Without one, an empty context."""
    return propagate.extract(record.headers, contexts.Context(), _HEADERS)


@contextmanager
def process(
    records: Record | Iterable[Record],
    *,
    relation: Literal["link", "parent"] = "link",
    tracer_provider: TracerProvider | None = None,
    group: str | None = None,
) -> Iterator[Span]:
    """Make a span around the work on a record, or on several, and make it the current one.

    The span is linked to the span that sent the record. With relation="parent" it is a child of it, so that both are in
    one trace; only for a single record. An exception is recorded in the span, and goes on.
    """
    batch = [records] if isinstance(records, (ConsumerRecord, ShareRecord)) else list(records)
    if relation not in ("link", "parent"):
        raise ValueError(f'relation is {relation!r}: it must be "link" or "parent"')
    if relation == "parent" and len(batch) != 1:
        raise ValueError(f"{len(batch)} records have no single parent: use relation='link'")
    parent = context_of(batch[0]) if relation == "parent" else None
    links = [] if parent is not None else _links(batch)
    attributes = _attributes("process", "process", group=group)
    name = _named("process", batch, attributes)
    if len(batch) == 1:
        attributes["messaging.destination.partition.id"] = str(batch[0].partition)
        attributes["messaging.kafka.offset"] = batch[0].offset
    else:
        attributes["messaging.batch.message_count"] = len(batch)
    with _tracer(tracer_provider).start_as_current_span(
        name, parent, SpanKind.CONSUMER, attributes=attributes, links=links
    ) as span:
        yield span


def traced(function: F, **options: Any) -> F:
    """Return a function of a record, or of a list of records, that runs in a `process` span.

    For the functions of `consumer.process` and `ShareConsumer.process`, coroutine functions included. The options are
    those of `process`.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(records: Any, *rest: Any) -> Any:
            with process(records, **options):
                return await function(records, *rest)

        return awaited  # type: ignore[return-value]

    @functools.wraps(function)
    def called(records: Any, *rest: Any) -> Any:
        with process(records, **options):
            return function(records, *rest)

    return called  # type: ignore[return-value]


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("kwire", VERSION, provider)


def _replace(client: object, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    method = getattr(client, name)
    if not hasattr(method, "_is_traced"):
        wrapper = wrap(method)
        wrapper._is_traced = True  # type: ignore[attr-defined]
        setattr(client, name, wrapper)


# -- producers


def _sending(send: Callable[..., Any], tracer: Tracer, client_id: str, record_keys: bool) -> Callable[..., Any]:
    def start(topic: str, key: Data, partition: int | None) -> Span:
        attributes = _attributes("send", "send")
        attributes["messaging.destination.name"] = topic
        attributes["messaging.client.id"] = client_id
        if partition is not None:
            attributes["messaging.destination.partition.id"] = str(partition)
        if record_keys and key is not None:
            attributes["messaging.kafka.message.key"] = _text(key)
        return tracer.start_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes)

    def headers_of(span: Span, headers: Headers) -> Headers:
        with trace.use_span(span):
            return with_context(headers)

    if inspect.iscoroutinefunction(send):

        @functools.wraps(send)
        async def send_awaited(
            topic: Any, value: Data = None, key: Data = None, headers: Headers = None, partition: int | None = None,
            timestamp_ms: int | None = None, on_delivery: Any = None,
        ) -> Any:  # fmt: skip
            if not isinstance(topic, str):  # a ProducerRequest: its messages have headers of their own
                return await send(topic)
            span = start(topic, key, partition)
            with _ends_on_error(span):
                response = await send(
                    topic, value, key, headers_of(span, headers), partition, timestamp_ms, on_delivery
                )
            response.add_done_callback(_ender(span))
            return response

        return send_awaited

    @functools.wraps(Producer.send)
    def send_at_once(
        topic: Any, value: Data = None, key: Data = None, headers: Headers = None, partition: int | None = None,
        timestamp_ms: int | None = None, on_delivery: Any = None,
    ) -> Any:  # fmt: skip
        if not isinstance(topic, str):
            return send(topic)
        span = start(topic, key, partition)
        with _ends_on_error(span):
            response = send(topic, value, key, headers_of(span, headers), partition, timestamp_ms, on_delivery)
        response.add_done_callback(_ender(span))
        return response

    return send_at_once


def _text(key: Any) -> str:
    """Return a key as text; with a `key_serializer` it may be anything."""
    return bytes(key).decode(errors="replace") if isinstance(key, (bytes, bytearray, memoryview)) else str(key)


@contextmanager
def _ends_on_error(span: Span) -> Iterator[None]:
    """End the span if the record is not even accepted."""
    try:
        yield
    except BaseException as error:
        _fail(span, error)
        span.end()
        raise


def _ender(span: Span) -> Callable[[ProduceResponse], None]:
    def end(response: ProduceResponse) -> None:
        error = response.exception()
        if error is not None:
            _fail(span, error)
        else:
            metadata = response.result()
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
            if metadata.offset >= 0:  # with acks=0 nobody knows it
                span.set_attribute("messaging.kafka.offset", metadata.offset)
        span.end()

    return end


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))


# -- consumers


def _polling(poll: Callable[..., Any], tracer: Tracer, group: str | None) -> Callable[..., Any]:
    def make_span(start_ns: int, records: list[Record]) -> None:
        """Make the span afterwards: a poll without records has none, and links are given when a span begins."""
        if not records:
            return
        attributes = _attributes("poll", "receive", group=group)
        attributes["messaging.batch.message_count"] = len(records)
        name = _named("poll", records, attributes)
        span = tracer.start_span(
            name, kind=SpanKind.CONSUMER, attributes=attributes, links=_links(records), start_time=start_ns
        )
        span.end()

    if inspect.iscoroutinefunction(poll):

        @functools.wraps(poll)
        async def poll_awaited(*args: Any, **options: Any) -> Any:
            start_ns = SystemClock().time_ms() * 1_000_000
            records = await poll(*args, **options)
            make_span(start_ns, records)
            return records

        return poll_awaited

    @functools.wraps(poll)
    def poll_at_once(*args: Any, **options: Any) -> Any:
        start_ns = SystemClock().time_ms() * 1_000_000
        records = poll(*args, **options)
        make_span(start_ns, records)
        return records

    return poll_at_once


def _links(records: Iterable[Record]) -> list[Link]:
    """Return a link for each span that sent some of the records."""
    found = (trace.get_current_span(context_of(record)).get_span_context() for record in records)
    spans = {(span.trace_id, span.span_id): span for span in found if span.is_valid}
    return [Link(span) for span in spans.values()]


def _named(operation: str, records: list[Record], attributes: Attributes) -> str:
    """Return the name of a span: with the topic, if there is only one. That is an attribute, too."""
    topics = {record.topic for record in records}
    if len(topics) != 1:
        return operation
    (attributes["messaging.destination.name"],) = topics
    return f"{operation} {records[0].topic}"


def _attributes(name: str, kind: str, *, group: str | None = None) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if group is not None:
        attributes["messaging.consumer.group.name"] = group
    return attributes


class _RecordHeaders(Getter[tuple[tuple[str, bytes | None], ...]]):
    """Read a context from the headers of a record."""

    def get(self, carrier: tuple[tuple[str, bytes | None], ...], key: str) -> list[str] | None:
        found = [value.decode(errors="replace") for name, value in carrier if name.lower() == key and value is not None]
        return found or None

    def keys(self, carrier: tuple[tuple[str, bytes | None], ...]) -> list[str]:
        return [name for name, _ in carrier]


_HEADERS = _RecordHeaders()
