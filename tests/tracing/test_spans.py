"""Spans of OpenTelemetry around sends, polls and the work on records; their contexts travel in headers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import kwire
from kwire import tracing
from kwire.broker import Cluster
from kwire.errors import RecordTooLargeError


def sent_by(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans that a span is linked to."""
    return [int(link.context.span_id) for link in span.links]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


class Traces:
    """A provider of tracers that remembers the spans that ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"orders": 1, "other": 1}) as running:
        yield running


def send_two(cluster: Cluster, traces: Traces) -> None:
    with kwire.Producer(cluster.bootstrap, client_id="shop") as producer:
        tracing.instrument(producer, tracer_provider=traces.provider, record_keys=True)
        with traces.tracer.start_as_current_span("request"):
            producer.send("orders", b"1", key="anna", headers={"source": b"test"})
        producer.send("orders", b"2", key="anna")


@pytest.mark.parametrize(
    ("key", "text"),
    [(5, "5"), ({"id": 1}, "{'id': 1}"), (b"\xff", "\N{REPLACEMENT CHARACTER}"), (memoryview(b"anna"), "anna")],
)
def test_a_key_of_any_type_is_text_in_the_span(cluster: Cluster, traces: Traces, key: Any, text: str) -> None:
    """bytes(5) would be five zeros, and a key that is a dict would fail the send."""
    with kwire.Producer(cluster.bootstrap, key_serializer=lambda topic, given: repr(given).encode()) as producer:
        tracing.instrument(producer, tracer_provider=traces.provider, record_keys=True)
        producer.send("orders", b"1", key=key).result(timeout=10)
    (span,) = traces.named("send orders")
    assert span.attributes is not None
    assert span.attributes["messaging.kafka.message.key"] == text


def read_two(cluster: Cluster) -> list[kwire.ConsumerRecord]:
    with kwire.Consumer(cluster.bootstrap) as consumer:
        consumer.assign([("orders", 0, "earliest")])
        records: list[kwire.ConsumerRecord] = []
        while len(records) < 2:
            records += consumer.poll(timeout=10)
    return records


def test_a_send_is_a_span_until_the_record_is_acknowledged(cluster: Cluster, traces: Traces) -> None:
    send_two(cluster, traces)
    (request,), (first, second) = traces.named("request"), traces.named("send orders")
    assert first.kind is SpanKind.PRODUCER
    assert first.parent == request.context
    assert second.parent is None
    assert dict(first.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.client.id": "shop",
        "messaging.kafka.message.key": "anna",
        "messaging.kafka.offset": 0,
    }


def test_the_context_is_in_the_headers_beside_the_others(cluster: Cluster, traces: Traces) -> None:
    send_two(cluster, traces)
    headers = dict(read_two(cluster)[0].headers)
    (first, _) = traces.named("send orders")
    assert first.context is not None
    assert headers["source"] == b"test"
    assert (headers["traceparent"] or b"").startswith(f"00-{first.context.trace_id:032x}-{id_of(first):016x}-".encode())


def test_a_refused_record_ends_its_span_with_the_error(cluster: Cluster, traces: Traces) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        tracing.instrument(producer, tracer_provider=traces.provider)
        with pytest.raises(RecordTooLargeError):
            producer.send("orders", bytes(2_000_000))
    (span,) = traces.named("send orders")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "RecordTooLargeError"


def test_a_failed_delivery_ends_its_span_with_the_error(cluster: Cluster, traces: Traces) -> None:
    with kwire.Producer(cluster.bootstrap, unknown_topic_timeout_ms=0, allow_auto_create_topics=False) as producer:
        tracing.instrument(producer, tracer_provider=traces.provider)
        response = producer.send("nowhere", b"1")
        assert response.exception(timeout=10) is not None
    (span,) = traces.named("send nowhere")
    assert span.status.status_code is StatusCode.ERROR


def test_a_poll_and_the_work_are_linked_to_the_sends(cluster: Cluster, traces: Traces) -> None:
    send_two(cluster, traces)
    sends = [id_of(span) for span in traces.named("send orders")]
    with kwire.Consumer(cluster.bootstrap, group="g") as consumer:
        tracing.instrument(consumer, tracer_provider=traces.provider, group="g")
        consumer.subscribe(["orders"])
        records: list[kwire.ConsumerRecord] = []
        while len(records) < 2:
            records += consumer.poll(timeout=10)
        assert consumer.poll(timeout=0) == []  # a poll without records is no span
    polls = traces.named("poll orders")
    assert [sent for poll in polls for sent in sent_by(poll)] == sends
    assert all((poll.attributes or {})["messaging.consumer.group.name"] == "g" for poll in polls)
    with pytest.raises(KeyError), tracing.process(records[1], tracer_provider=traces.provider):
        raise KeyError("no such order")
    (work,) = traces.named("process orders")
    assert work.kind is SpanKind.CONSUMER
    assert sent_by(work) == sends[1:]
    assert work.parent is None
    assert [event.name for event in work.events] == ["exception"]
    assert (work.attributes or {})["messaging.kafka.offset"] == 1


def test_work_on_one_record_can_be_a_child_of_its_send(cluster: Cluster, traces: Traces) -> None:
    send_two(cluster, traces)
    records = read_two(cluster)
    with tracing.process(records[0], relation="parent", tracer_provider=traces.provider, group="g"):
        pass
    (work,), (first, _) = traces.named("process orders"), traces.named("send orders")
    assert work.parent is not None
    assert work.parent.span_id == id_of(first)
    assert not work.links
    with (
        pytest.raises(ValueError, match="2 records have no single parent"),
        tracing.process(records, relation="parent"),
    ):
        pass


def test_what_a_traced_function_sends_belongs_to_its_span(cluster: Cluster, traces: Traces) -> None:
    send_two(cluster, traces)
    with kwire.Producer(cluster.bootstrap) as producer:
        tracing.instrument(producer, tracer_provider=traces.provider)

        def handle(record: kwire.ConsumerRecord) -> None:
            producer.send("other", record.value)

        for record in read_two(cluster):
            tracing.traced(handle, tracer_provider=traces.provider)(record)
    works = [id_of(span) for span in traces.named("process orders")]
    assert [span.parent.span_id for span in traces.named("send other") if span.parent] == works


def test_records_of_a_batch_are_one_span(cluster: Cluster, traces: Traces) -> None:
    send_two(cluster, traces)

    async def handle(records: list[kwire.ConsumerRecord]) -> int:
        return len(records)

    assert asyncio.run(tracing.traced(handle, tracer_provider=traces.provider)(read_two(cluster))) == 2
    (work,) = traces.named("process orders")
    assert len(work.links) == (work.attributes or {})["messaging.batch.message_count"] == 2


def test_asyncio(cluster: Cluster, traces: Traces) -> None:
    async def main() -> list[kwire.ConsumerRecord]:
        async with kwire.aio.Producer(cluster.bootstrap) as producer, kwire.aio.Consumer(cluster.bootstrap) as consumer:
            tracing.instrument(producer, tracer_provider=traces.provider)
            tracing.instrument(consumer, tracer_provider=traces.provider)
            assert (await (await producer.send("orders", b"1"))).offset == 0
            consumer.assign([("orders", 0, "earliest")])
            return await consumer.poll(timeout=10)

    (record,) = asyncio.run(main())
    (send,), (poll,) = traces.named("send orders"), traces.named("poll orders")
    assert sent_by(poll) == [id_of(send)]
    assert record.headers[0][0] == "traceparent"


def test_a_share_consumer(cluster: Cluster, traces: Traces) -> None:
    with kwire.ShareConsumer(cluster.bootstrap, group="s", acknowledgement_mode="implicit") as consumer:
        tracing.instrument(consumer, tracer_provider=traces.provider)
        consumer.subscribe(["orders"])
        consumer.poll(timeout=1)  # the group begins at the end of the log
        send_two(cluster, traces)
        records: list[kwire.ShareRecord] = []
        while len(records) < 2:
            records += consumer.poll(timeout=10)
    with tracing.process(records[0], tracer_provider=traces.provider):
        pass
    assert sum(len(poll.links) for poll in traces.named("poll orders")) == 2
    assert len(traces.named("process orders")) == 1


def test_headers_with_context_for_other_ways_to_send(cluster: Cluster, traces: Traces) -> None:
    with kwire.Producer(cluster.bootstrap) as producer, traces.tracer.start_as_current_span("request") as request:
        stale: dict[str, str | bytes] = {"traceparent": "00-1-2-01", "kind": b"a"}
        producer.send_all([kwire.Message("orders", str(n), headers=tracing.with_context(stale)) for n in range(2)])
    for record in read_two(cluster):
        assert [name for name, _ in record.headers] == ["kind", "traceparent"]
        span_id = f"{request.get_span_context().span_id:016x}"
        assert span_id.encode() in (record.headers[1][1] or b"")


def test_instrumenting_twice_makes_one_span(cluster: Cluster, traces: Traces) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        for _ in range(2):
            assert tracing.instrument(producer, tracer_provider=traces.provider) is producer
        producer.send("orders", b"1").result(timeout=10)
    assert len(traces.named("send orders")) == 1


def test_other_things_cannot_be_instrumented() -> None:
    with pytest.raises(TypeError, match=r"client is .*Cluster.*a producer, a consumer"):
        tracing.instrument(Cluster)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="relation is 'child'"):
        tracing.process([], relation="child").__enter__()  # type: ignore[arg-type]
