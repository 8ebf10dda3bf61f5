"""Properties of Java's clients and of librdkafka become keywords, and none is ignored."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from brokers.jars import fetch_jars

import kwire
from kwire.broker import Cluster
from kwire.cluster.security_properties import SECURITY_PROPERTIES
from kwire.errors import ConfigurationError
from kwire.properties.java import JAVA
from kwire.properties.librdkafka import LIBRDKAFKA
from kwire.properties.translate import Keyword, Table, declarations, options
from tests.conftest import missing
from tests.java_program import JavaProgram

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_properties_of_java_as_in_a_file() -> None:
    assert options(
        java={
            "bootstrap.servers": "a:9092, b:9092",
            "linger.ms": "20",
            "acks": "all",
            "retries": "2147483647",
            "enable.idempotence": "true",
            "compression.type": "lz4",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "client.dns.lookup": "use_all_dns_ips",
        }
    ) == {
        "bootstrap": "a:9092,b:9092",
        "linger_ms": 20,
        "acks": "all",
        "retries": 2147483647,
        "idempotence": True,
        "compression": "lz4",
    }


def test_properties_of_java_for_a_group() -> None:
    assigned = "org.apache.kafka.clients.consumer.RangeAssignor,CooperativeStickyAssignor"
    assert options(java={"group.id": "g", "enable.auto.commit": False, "partition.assignment.strategy": assigned}) == {
        "group": "g",
        "commit": "manual",
        "assignors": ["range", "cooperative-sticky"],
    }


@pytest.mark.parametrize(
    ("java", "kwires"),
    [
        ("earliest", "earliest"),
        ("none", "error"),
        ("by_duration:P1DT2H", kwire.Ago(timedelta(hours=26))),
        ("by_duration:PT0.5S", kwire.Ago(seconds=0.5)),
    ],
)
def test_a_reset_is_for_no_offset_and_for_offsets_beyond_the_log(java: str, kwires: object) -> None:
    assert options(java={"auto.offset.reset": java}) == {"on_no_offset": kwires, "on_out_of_range": kwires}


@pytest.mark.parametrize(
    ("librdkafka", "commit"),
    [
        ({"enable.auto.commit": True}, "auto"),
        ({"enable.auto.commit": "false"}, "manual"),
        ({"enable.auto.offset.store": False}, "marks"),
        ({"enable.auto.commit": False, "enable.auto.offset.store": False}, "manual"),
        ({"auto.commit.enable": True, "enable.auto.offset.store": True}, "auto"),
    ],
)
def test_stores_of_offsets_are_marks(librdkafka: Mapping[str, object], commit: str) -> None:
    assert options(librdkafka=librdkafka) == {"commit": commit}


def test_properties_of_librdkafka() -> None:
    assert options(
        librdkafka={
            "metadata.broker.list": "a:9092",
            "queue.buffering.max.kbytes": 1024,
            "queue.buffering.max.ms": 5.0,
            "request.required.acks": -1,
            "partitioner": "consistent_random",
            "auto.offset.reset": "smallest",
            "statistics.interval.ms": 0,
            "group.id": None,
        }
    ) == {
        "bootstrap": "a:9092",
        "max_buffered_bytes": 1024 * 1024,
        "linger_ms": 5,
        "acks": -1,
        "partitioner": "crc32",
        "on_no_offset": "earliest",
        "on_out_of_range": "earliest",
    }


@pytest.mark.parametrize(("level", "kwires"), [(-1, None), ("-1", None), (3, 3)])
def test_the_default_level_of_librdkafka_is_that_of_the_codec(level: object, kwires: int | None) -> None:
    found = options(librdkafka={"compression.type": "lz4", "compression.level": level})
    assert found == {"compression": "lz4", "compression_level": kwires}
    kwire.Producer("localhost:1", **found).close()


@pytest.mark.parametrize(
    "properties",
    [
        {"java": {"sasl.jaas.config": f'{PLAIN_LOGIN} required username="u" password="secret";'}},
        {"librdkafka": {"sasl.username": "u", "sasl.password": "secret"}},
    ],
)
def test_security(properties: dict[str, dict[str, object]]) -> None:
    ((library, given),) = properties.items()
    mechanism = "sasl.mechanism" if library == "java" else "sasl.mechanisms"
    given = {**given, "security.protocol": "SASL_SSL", mechanism: "PLAIN"}
    assert options(**{library: given}) == {"tls": kwire.Tls(), "sasl": kwire.Sasl("PLAIN", "u", "secret")}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"java": {"lingr.ms": 5}}, "java has no property lingr.ms: did you mean linger.ms"),
        ({"java": {"linger.ms": "soon"}}, "property linger.ms is 'soon' .* whole number of milliseconds"),
        ({"java": {"acks": "2"}}, "property acks is '2'"),
        ({"java": {"auto.offset.reset": "by_duration:1h"}}, "a duration such as by_duration:PT1H30M"),
        ({"java": {"interceptor.classes": "x.Y"}}, "kwire runs no Java classes"),
        ({"java": {"partitioner.class": "x.Mine"}}, "RoundRobinPartitioner; kwire runs no Java classes"),
        ({"java": {"value.deserializer": "x.StringDeserializer"}}, "records have bytes"),
        ({"java": {"default.api.timeout.ms": 1}}, "give a timeout to the call"),
        ({"java": {"security.protocol": "SSL", "ssl.truststore.location": "t.jks"}}, "export it as PEM"),
        ({"librdkafka": {"debug": "all"}}, "logger kwire"),
        ({"librdkafka": {"enable.auto.commit": "maybe"}}, "enable.auto.commit is 'maybe': give true or false"),
        ({"librdkafka": {"linger.ms": 0.5}}, "property linger.ms is 0.5: give a whole number"),
        ({"librdkafka": {"linger.ms": 1, "queue.buffering.max.ms": 2}}, "mean the same, linger.ms"),
        ({"librdkafka": {"partitioner": "fnv1a"}}, "one of consistent_random, murmur2_random"),
        ({"librdkafka": {"error_cb": print}}, "logged under kwire"),
        ({"librdkafka": {5: 1}}, "the property 5 is no text"),
        ({"java": ["linger.ms"]}, "java is list: give a dict"),
        ({}, "one dict of properties"),
        ({"java": {}, "librdkafka": {}}, "one dict of properties"),
    ],
)
def test_what_has_no_counterpart_is_an_error(properties: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        options(**properties)  # type: ignore[arg-type]


def test_a_password_is_in_no_error() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": b"secret",
    }
    with pytest.raises(ConfigurationError) as raised:
        options(java=given)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("table", [JAVA, LIBRDKAFKA], ids=lambda table: table.library)
def test_every_counterpart_exists(table: Table) -> None:
    named = {rule.name for rule in table.rules.values() if isinstance(rule, Keyword)}
    assert named <= {*declarations(), "bootstrap"}
    assert not set(table.rules) & set(SECURITY_PROPERTIES)  # those go to `security_properties`
    assert set(table.aliases.values()) <= {*table.names(), "enable.auto.commit"}


def test_the_keywords_make_clients() -> None:
    with Cluster(brokers=1, topics={"t": 1}) as cluster:
        common = {"bootstrap.servers": cluster.bootstrap, "client.id": "ported"}
        with kwire.Producer(**options(java={**common, "linger.ms": "0"})) as producer:
            producer.send("t", b"v").result(timeout=10)
        with kwire.Consumer(
            **options(librdkafka={**common, "group.id": "g", "auto.offset.reset": "earliest"})
        ) as consumer:
            consumer.subscribe(["t"])
            assert [record.value for record in consumer.poll(timeout=10)] == [b"v"]


def test_every_property_of_librdkafka_is_known() -> None:
    unknown = set(names_in_librdkafka()) - LIBRDKAFKA.names() - {
        "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store",
    }  # fmt: skip
    assert unknown == set()


def names_in_librdkafka() -> list[str]:
    """Return the names of the properties that have a value by default, as the library prints them."""
    confluent = pytest.importorskip("confluent_kafka")
    folder = Path(confluent.__file__).parent.parent
    files = sorted(folder.glob("confluent_kafka*.libs/librdkafka*"))
    if sys.platform != "linux" or not files:
        missing("the librdkafka that confluent-kafka brings")
    library = ctypes.CDLL(str(files[0]))
    names = []
    for kind in ("rd_kafka_conf", "rd_kafka_topic_conf"):
        new, dump = getattr(library, f"{kind}_new"), getattr(library, f"{kind}_dump")
        new.restype = ctypes.c_void_p
        dump.restype, dump.argtypes = (
            ctypes.POINTER(ctypes.c_char_p),
            [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)],
        )
        count = ctypes.c_size_t()
        pairs = dump(new(), ctypes.byref(count))
        names += [pairs[index].decode() for index in range(0, count.value, 2)]
    assert len(names) > 100
    return names


@pytest.mark.live
def test_every_property_of_java_is_known() -> None:
    jars = fetch_jars("kafka-clients", "4.4.0")
    with closing(JavaProgram(jars, Path(__file__).with_name("PropertyNames.java"))) as program:
        names = set(program.ask(["names"]))
    assert len(names) > 120
    hidden = {name for name in names if name.startswith("internal.")}
    assert names - JAVA.names() - hidden - {"auto.offset.reset", "enable.auto.commit"} == set()
