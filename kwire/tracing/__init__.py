"""Traces for OpenTelemetry, whose context travels in the headers of records (extra `otel`).

    spans   spans for `send` and `poll`, and around the work on a record

A client that is not instrumented pays nothing: `instrument` replaces methods of one instance. The names of spans and
attributes are those of OpenTelemetry's semantic conventions for messaging.

Imports: aio, consumer, net, producer, share.
"""

from kwire.tracing.spans import context_of, instrument, process, traced, with_context

__all__ = ["context_of", "instrument", "process", "traced", "with_context"]
