"""Options of format("kwire"): meaning, defaults, precedence, and errors."""

from __future__ import annotations

import pickle
import re
from contextlib import nullcontext
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from kwire.cluster import ClientConfig
from kwire.cluster.security_properties import SECURITY_PROPERTIES
from kwire.consumer.options import ConsumerOptions
from kwire.errors import ConfigurationError
from kwire.producer.options import ProducerSettings
from kwire.spark import client_options, options
from kwire.spark.client_options import admin_options, consumer_options, producer_options
from kwire.spark.option_parsers import EARLIEST, LATEST
from kwire.spark.options import (
    EarliestOrLatest,
    ExactlyOnce,
    OffsetsByPartition,
    ReadOptions,
    Timestamp,
    TimestampsByPartition,
    check_read_options,
    includes_headers,
    read_options,
    write_options,
)

WHERE = {"kafka.bootstrap.servers": "b:9092"}
TOPIC = WHERE | {"subscribe": "t"}


def test_the_fewest_options_mean_sparks_defaults() -> None:
    batch, stream = read_options(TOPIC, is_stream=False), read_options(TOPIC, is_stream=True)
    assert batch.subscription.topics == ("t",)
    assert (batch.starting.position, batch.ending.position) == (EarliestOrLatest(EARLIEST), EarliestOrLatest(LATEST))
    assert stream.starting.position == EarliestOrLatest(LATEST)
    assert batch.fail_on_data_loss
    assert batch.client == {"bootstrap": "b:9092", "client_id": "kwire-spark"}
    assert (batch.poll_timeout_ms, stream.max_trigger_delay_ms) == (120_000, 900_000)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"startingOffsets": "EARLIEST"}, EarliestOrLatest(EARLIEST)),
        ({"startingoffsets": '{"t":{"0":5,"1":-2}}'}, OffsetsByPartition({("t", 0): 5, ("t", 1): -2})),
        ({"startingTimestamp": "1000"}, Timestamp(1000)),
        ({"startingOffsetsByTimestamp": '{"t":{"0":5}}'}, TimestampsByPartition({("t", 0): 5})),
        (
            {"startingTimestamp": "9", "startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "earliest"},
            Timestamp(9),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "earliest"},
            TimestampsByPartition({("t", 0): 5}),
        ),
    ],
)
def test_where_a_read_starts(options: dict[str, str], place: object) -> None:
    assert read_options(TOPIC | options, is_stream=False).starting.position == place


def test_names_come_in_any_case_and_query_options_are_ignored() -> None:
    lowered = {"SUBSCRIBE": "t", "maxoffsetspertrigger": "10", "checkpointlocation": "/c", "queryname": "q"}
    assert read_options(WHERE | lowered, is_stream=True).max_offsets_per_trigger == 10


def test_columns_of_a_read() -> None:
    assert read_options(TOPIC, is_stream=False).columns is None
    found = read_options(TOPIC | {"Columns": " value,OFFSET, timestamptype"}, is_stream=True)
    assert found.columns == ("value", "offset", "timestampType")
    for text, message in [
        ("value,vale", "names vale, which is no column: the columns are key, value"),
        (" ,", "give one or more columns"),
        ("value,VALUE", "each once"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            read_options(TOPIC | {"columns": text}, is_stream=False)


def test_filters_are_for_batches_and_a_group_is_for_streams() -> None:
    assert not read_options(TOPIC, is_stream=False).pushes_filters
    assert read_options(TOPIC | {"pushFilters": "true"}, is_stream=False).pushes_filters
    assert read_options(TOPIC | {"monitoringGroup": "g"}, is_stream=True).monitoring_group == "g"
    for name, is_stream in (("pushFilters", True), ("monitoringGroup", False)):
        with pytest.raises(ConfigurationError, match=f"option {name} is not for a"):
            read_options(TOPIC | {name: "true"}, is_stream=is_stream)
    with pytest.raises(ConfigurationError, match="name a group that has no members"):
        read_options(TOPIC | {"monitoringGroup": " "}, is_stream=True)


def test_a_table_is_refused_with_what_works() -> None:
    """Spark 4.3 keeps the options of CREATE TABLE, and hands none to the source that reads the table."""
    created = TOPIC | {"provider": "kwire", "option.subscribe": "t"}
    with pytest.raises(ConfigurationError, match="write CREATE TEMPORARY VIEW"):
        check_read_options(created)


def test_pattern_and_assignment() -> None:
    pattern = read_options(WHERE | {"subscribePattern": "a.*"}, is_stream=False).subscription.pattern
    assert pattern is not None
    assert pattern.fullmatch("abc")
    assigned = read_options(WHERE | {"assign": '{"t":[1]}'}, is_stream=False).subscription
    assert assigned.partitions == (("t", 1),)


@pytest.mark.parametrize(
    ("options", "is_stream", "message"),
    [
        ({"subscribe": "t"}, False, "kafka.bootstrap.servers is missing"),
        (WHERE, False, "no topic is named: give exactly one of subscribe, assign, subscribePattern"),
        (TOPIC | {"assign": '{"t":[0]}'}, False, "subscribe and assign contradict each other"),
        (
            TOPIC | {"startingOffset": "earliest"},
            False,
            "startingOffset is not supported: alternatives: startingOffsets",
        ),
        (TOPIC | {"frobnicate": "1"}, False, "frobnicate is not supported: alternatives: subscribe, assign"),
        (TOPIC | {"topic": "t"}, False, "option topic is not for a batch read"),
        (TOPIC | {"maxoffsetspertrigger": "1"}, False, "option maxOffsetsPerTrigger is not for a batch read"),
        (TOPIC | {"endingOffsets": "latest"}, True, "option endingOffsets is not for a streaming read"),
        (TOPIC | {"startingOffsets": "latest"}, False, "startingOffsets: a batch read cannot start at the latest"),
        (
            TOPIC | {"startingOffsets": '{"t":{"0":-1}}'},
            False,
            "startingOffsets: a batch read cannot start at the latest",
        ),
        (TOPIC | {"endingOffsets": "earliest"}, False, "endingOffsets: a batch read cannot end at the earliest"),
        (TOPIC | {"startingOffsets": "sometimes"}, False, "startingOffsets is not JSON"),
        (TOPIC | {"failOnDataLoss": "maybe"}, False, "failOnDataLoss is 'maybe': give true or false"),
        (TOPIC | {"minPartitions": "0"}, False, "minPartitions is '0'"),
        (TOPIC | {"maxTriggerDelay": "soon"}, True, "maxTriggerDelay is 'soon'"),
        (TOPIC | {"groupIdPrefix": "g"}, False, "groupIdPrefix is not supported: .*no consumer group"),
        (TOPIC | {"fetchOffset.numRetries": "3"}, False, "fetchOffset.numRetries is not supported: .*request.timeout"),
        (TOPIC | {"path": "t"}, False, "path is not supported: .*subscribe"),
        (TOPIC | {"startingOffsetsByTimestampStrategy": "guess"}, False, "give one of error, latest"),
        (TOPIC | {"kafka.group.id": "g"}, False, "kafka.group.id is not supported: .*remove it"),
        (TOPIC | {"kafka.max.poll.interval.ms": "1"}, False, "no consumer group; remove it"),
        (TOPIC | {"kafka.max.poll.records": "1"}, True, "maxOffsetsPerTrigger bounds a micro-batch"),
        (TOPIC | {"kafka.auto.offset.reset": "latest"}, False, "use startingOffsets"),
        (TOPIC | {"kafka.key.deserializer": "x"}, False, "kafka.key.deserializer is not supported"),
        (TOPIC | {"kafka.acks": "1"}, False, "option kafka.acks is for writing"),
        (TOPIC | {"kafka.isolation.levle": "x"}, False, "alternatives: kafka.isolation.level"),
        (TOPIC | {"kafka.isolation.level": "serializable"}, False, "give one of read_uncommitted, read_committed"),
        (TOPIC | {"kafka.ssl.keystore.key": "-----BEGIN"}, False, "put the PEM into a file"),
    ],
)
def test_a_wrong_read_option_is_named(options: dict[str, str], is_stream: bool, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_options(options, is_stream=is_stream)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (WHERE | {"topic": " "}, "option topic is empty"),
        (WHERE | {"subscribe": "t"}, "option subscribe is not for a batch write: its options are topic"),
        (WHERE | {"kafka.isolation.level": "read_committed"}, "kafka.isolation.level is for reading"),
        (WHERE | {"kafka.acks": "2"}, "kafka.acks is '2': give one of all, -1, 1, 0"),
        (WHERE | {"kafka.compression.type": "brotli"}, "give one of none, gzip, snappy, lz4, zstd"),
        (WHERE | {"kafka.transactional.id": "x"}, "set delivery to exactly-once"),
        (WHERE | {"kafka.linger.ms": "-1"}, "at least 0"),
    ],
)
def test_a_wrong_write_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        write_options(options)


@pytest.mark.parametrize(
    ("name", "value", "keywords"),
    [
        ("kafka.acks", "-1", {"acks": "all"}),
        ("kafka.acks", "1", {"acks": 1}),
        ("kafka.compression.type", "ZSTD", {"compression": "zstd"}),
        ("kafka.linger.ms", "0", {"linger_ms": 0}),
        ("kafka.batch.size", "1000", {"batch_bytes": 1000}),
        ("KAFKA.CLIENT.ID", "me", {"client_id": "me"}),
        ("kafka.enable.idempotence", "false", {"idempotence": False}),
        ("kafka.request.timeout.ms", "5", {"request_timeout_ms": 5}),
        ("kafka.retries", "0", {"retries": 0}),
        ("kafka.max.in.flight.requests.per.connection", "1", {"max_in_flight": 1}),
    ],
)
def test_producer_options(name: str, value: str, keywords: dict[str, Any]) -> None:
    defaults = {"bootstrap": "b:9092", "client_id": "kwire-spark"}
    assert producer_options(WHERE | {name: value}) == defaults | keywords


def test_options_are_the_same_after_pickling_and_serve_as_a_key() -> None:
    security = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "s3cret",
    }
    options = read_options(TOPIC | security | {"subscribe": "t,u"}, is_stream=True)
    again: ReadOptions = pickle.loads(pickle.dumps(options))
    assert again == options
    assert hash(tuple(sorted(again.client.items()))) == hash(tuple(sorted(options.client.items())))
    assert "s3cret" not in repr(options)


def test_the_keywords_are_those_of_the_clients() -> None:
    """Every keyword in the tables is one that the client takes: a renamed option fails here, not at a user's."""
    shared = {field.name for field in fields(ClientConfig)}
    producers = shared | {field.name for field in fields(ProducerSettings)}
    consumers = shared | {field.name for field in fields(ConsumerOptions)}
    assert {known.keyword for known in client_options._CLIENT.values()} <= shared
    assert {known.keyword for known in client_options._PRODUCER.values()} <= producers
    assert {known.keyword for known in client_options._CONSUMER.values()} <= consumers


def test_large_fetches_raise_the_limits_above_them() -> None:
    """Java's consumer has no rule here; kwire requires partition <= response <= buffer."""
    keywords = consumer_options(WHERE | {"kafka.max.partition.fetch.bytes": str(100 << 20)})
    own = {name: value for name, value in keywords.items() if name in signature(ConsumerOptions).parameters}
    assert ConsumerOptions(**own).partition_max_bytes == 100 << 20
    keywords = consumer_options(WHERE | {"kafka.fetch.max.bytes": str(1000)})
    own = {name: value for name, value in keywords.items() if name in signature(ConsumerOptions).parameters}
    assert ConsumerOptions(**own).max_bytes == 1000


def test_an_admin_gets_what_it_shares_with_a_consumer() -> None:
    keywords = consumer_options(WHERE | {"kafka.isolation.level": "read_committed", "kafka.client.id": "me"})
    assert admin_options(keywords) == {"bootstrap": "b:9092", "client_id": "me"}


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"subscribe": "t"}, None),
        ({"subscribe": "t", "endingOffsets": "latest"}, None),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "5"}, None),
        ({"subscribe": "t", "startingOffset": "latest"}, "startingOffset is not supported: alternatives: startingOff"),
        ({}, "no topic is named"),
    ],
)
def test_an_option_of_neither_kind_of_read_raises_with_the_schema(own: dict[str, str], message: str | None) -> None:
    with pytest.raises(ConfigurationError, match=message) if message else nullcontext():
        check_read_options(WHERE | own)


def test_include_headers_in_any_case() -> None:
    assert includes_headers({"INCLUDEHEADERS": "True"})
    assert not includes_headers({})
    with pytest.raises(ConfigurationError, match="includeHeaders"):
        includes_headers({"includeHeaders": "1"})


def test_docs_name_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    named = set(re.findall(r"`([\w.]+)`", page))
    own = {*options._READ, *options._BATCH_READ, *options._STREAM_READ, *options._WRITE, *options._BATCH_WRITE}
    properties = {"bootstrap.servers", *client_options._CLIENT, *client_options._PRODUCER, *client_options._CONSUMER}
    assert own | properties | set(SECURITY_PROPERTIES) <= named


# -- writes exactly once

EXACTLY_ONCE = WHERE | {"topic": "t", "delivery": "exactly-once"}


def test_a_write_is_at_least_once_by_default() -> None:
    assert write_options(WHERE | {"topic": "t"}).exactly_once is None
    assert write_options(WHERE | {"topic": "t", "delivery": "at-least-once"}).exactly_once is None


def test_the_options_of_a_write_exactly_once() -> None:
    found = write_options(EXACTLY_ONCE | {"checkpointlocation": "/c", "queryName": "n"}, is_stream=True)
    assert found.checkpoint == "/c"
    assert found.exactly_once == ExactlyOnce(None, ("t", 0), 900_000, 1_000_000, 64 << 20, "fail", False)
    given = {
        "transactionalIdPrefix": "mine",
        "markerTopic": "m",
        "kafka.transaction.timeout.ms": "5000",
        "inlineMaxBytes": "0",
        "inlineBatchMaxBytes": "1",
        "onInDoubt": "REPAIR",
        "onMissingMarker": "assumenew",
    }
    found = write_options(EXACTLY_ONCE | given)
    assert found.exactly_once == ExactlyOnce("mine", ("m", 0), 5_000, 0, 1, "repair", True)
    assert write_options(EXACTLY_ONCE | {"writeId": "w"}).write_id == "w"
    in_flight = {"kafka.max.in.flight.requests.per.connection": "1"}
    assert write_options(EXACTLY_ONCE | in_flight).client["max_in_flight"] == 1  # holds for every connection


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delivery": "twice"}, "option delivery is 'twice': give one of at-least-once, exactly-once"),
        ({"delivery": "at-least-once", "onInDoubt": "skip"}, "option onInDoubt is for writes exactly once: set deliv"),
        ({"delivery": "at-least-once", "kafka.transaction.timeout.ms": "1"}, "transaction.timeout.ms is for writes ex"),
        ({"kafka.acks": "1"}, "exactly-once needs the acknowledgement of all replicas"),
        ({"kafka.enable.idempotence": "false"}, "exactly-once needs the acknowledgement of all replicas"),
        ({"kafka.linger.ms": "5"}, "option kafka.linger.ms has no meaning with delivery exactly-once: .*: remove it"),
        ({"kafka.retries": "3"}, "option kafka.retries has no meaning with delivery exactly-once"),
        ({"kafka.max.block.ms": "10"}, "option kafka.max.block.ms has no meaning with delivery exactly-once"),
        ({"onInDoubt": "guess"}, "give one of fail, repair, duplicate, skip"),
        ({"onMissingMarker": "guess"}, "give one of fail, assumeNew"),
        ({"kafka.transactional.id": "x"}, "set delivery to exactly-once, and give transactionalIdPrefix"),
    ],
)
def test_wrong_options_of_a_write_exactly_once(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        write_options(EXACTLY_ONCE | given)


def test_a_topic_column_needs_a_topic_for_the_marker() -> None:
    with pytest.raises(ConfigurationError, match=r"needs a topic for its marker: .* markerTopic"):
        write_options(WHERE | {"delivery": "exactly-once"})
    assert write_options(WHERE | {"delivery": "exactly-once", "markerTopic": "m"}).topic is None


def test_a_stream_has_an_id_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match="option writeId is not for a streaming write"):
        write_options(EXACTLY_ONCE | {"writeId": "w"}, is_stream=True)
