"""Writes exactly once as Spark runs them: which batch and task this is, and what driver and tasks do.

A task learns its query and batch from Spark's local properties, and puts them into its message, since Spark tells the
driver's side only the number of the batch. A batch write has no query: its id is the option writeId, or random.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark import TaskContext

from kwire.cluster import ClientConfig
from kwire.errors import KwireError
from kwire.producer.options import ProducerSettings
from kwire.spark.clients import transactions
from kwire.spark.error_messages import with_option_names
from kwire.spark.lead import BatchId, LeadTransaction, Prepared
from kwire.spark.options import ExactlyOnce, WriteOptions
from kwire.spark.sink import SinkBatch
from kwire.spark.task_write import TaskId, TaskWrite
from kwire.spark.transactions import TransactionRequests

_log = logging.getLogger("kwire.spark")

_QUERY_ID, _BATCH_ID, _RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
_RUN_SHOWN = 12  # characters of a run's id that distinguish it

# Prefixes whose left-over transactions this process has cleared, or whose newest batch it has completed.
_cleared: set[str] = set()
_recovered: set[str] = set()


def prepare(options: WriteOptions, run: str | None, batches: Iterable[SinkBatch]) -> Prepared:
    """Run a task. `run` is that of a batch write; a streaming query's is in the context of the task."""
    context = TaskContext.get()
    assert context is not None, "a task runs in Spark"
    if run is None:
        batch, run = _streaming_batch(context)
    else:
        batch = BatchId(options.write_id or run, 0, is_stream=False)
    task = TaskId(batch, run.replace("-", "")[:_RUN_SHOWN], context.partitionId(), context.attemptNumber())
    with with_option_names():
        return TaskWrite(_requests(options), _exactly_once(options), _settings(options), task).write(batches)


def commit(options: WriteOptions, messages: Sequence[Any]) -> None:
    """Make the rows of all tasks visible."""
    parts = [part for part in messages if isinstance(part, Prepared)]
    if not parts:
        return
    batch = parts[0].batch
    prefix = batch.prefix(_exactly_once(options))
    with with_option_names():
        if _lead(options, prefix).commit(batch, parts, clears=prefix not in _cleared):
            _cleared.add(prefix)


def abort(options: WriteOptions, messages: Sequence[Any]) -> None:
    """Abort what the tasks have left open, unless the batch was decided."""
    parts = [part for part in messages if isinstance(part, Prepared)]
    if parts:
        with with_option_names():
            _lead(options, parts[0].batch.prefix(_exactly_once(options))).abort(parts[0].batch, parts)


def recover(options: WriteOptions) -> None:
    """Complete the query's newest batch before its first tasks start, where the query is known by then."""
    prefix = _exactly_once(options).prefix
    if prefix is None and (query := _query_of(options.checkpoint)) is not None:
        prefix = BatchId(query, 0, True).prefix(_exactly_once(options))
    if prefix is None or prefix in _recovered:
        return
    _recovered.add(prefix)
    try:
        _lead(options, prefix).recover()
    except KwireError as error:  # the commit of the batch does the same, and reports what is wrong
        _log.warning("the newest batch of %s cannot be completed yet: %s", prefix, error)


def _streaming_batch(context: TaskContext) -> tuple[BatchId, str]:
    query, number, run = map(context.getLocalProperty, (_QUERY_ID, _BATCH_ID, _RUN_ID))
    if query is None or number is None or run is None:
        raise KwireError(
            "Spark does not say which batch of which query this task is of",
            remedy="this version of Spark cannot write exactly once: leave out the option delivery",
        )
    return BatchId(query, int(number), True), run


def _query_of(checkpoint: str | None) -> str | None:
    """Return the id of the query in a local checkpoint; None if it is elsewhere or has none yet."""
    url = urlparse(checkpoint or "")
    if not checkpoint or url.scheme not in ("", "file"):
        return None
    try:
        metadata = json.loads((Path(unquote(url.path)) / "metadata").read_text())
    except (OSError, ValueError):
        return None
    return metadata.get("id") if isinstance(metadata, Mapping) else None


def _lead(options: WriteOptions, prefix: str) -> LeadTransaction:
    return LeadTransaction(_requests(options), _exactly_once(options), prefix)


def _exactly_once(options: WriteOptions) -> ExactlyOnce:
    assert options.exactly_once is not None
    return options.exactly_once


def _requests(options: WriteOptions) -> TransactionRequests:
    client = ClientConfig.option_names()
    own = {name: value for name, value in options.client.items() if name in client}
    return transactions.get({**own, "seconds": _settings(options).delivery_timeout_ms / 1000})


def _settings(options: WriteOptions) -> ProducerSettings:
    own = {field.name for field in fields(ProducerSettings)}
    return ProducerSettings(**{name: value for name, value in options.client.items() if name in own})
