"""Options: each is declared once, and a wrong one is refused with its name, unit and default, before any connection."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import kwire
import kwire.aio
from kwire.admin.options import AdminKwargs, AdminOptions
from kwire.broker.faults import Fault, FaultKwargs
from kwire.broker.options import ClusterKwargs, Options
from kwire.cluster import ClientConfig, ClientKwargs
from kwire.consumer.options import ConsumerKwargs, ConsumerOptions
from kwire.consumer.processor import ProcessorOptions
from kwire.errors import ConfigurationError
from kwire.option_checks import option_table, options_of
from kwire.option_names import FOREIGN, NOT_SUPPORTED, OWNERS
from kwire.producer.options import ProducerKwargs, ProducerSettings
from kwire.share.options import ShareConsumerKwargs, ShareConsumerOptions
from kwire.share.processor import ShareProcessorOptions

CLIENTS: list[Any] = [
    kwire.Producer,
    kwire.aio.Producer,
    kwire.Consumer,
    kwire.aio.Consumer,
    kwire.Admin,
    kwire.Cluster,
]
DECLARING = [ClientConfig, ProducerSettings, ConsumerOptions]
ALL_DECLARING = [*DECLARING, ShareConsumerOptions, AdminOptions]


def type_hints(declaring: Any) -> dict[str, Any]:
    """Return the types of fields. `Sasl` is imported for type checkers only where they are declared."""
    return get_type_hints(declaring, localns={"Sasl": kwire.Sasl})


def refusal(client: Callable[..., object], *args: Any, **options: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        client(*args, **options)
    return str(caught.value)


@pytest.mark.parametrize("declaring", ALL_DECLARING)
def test_every_option_is_declared_and_its_default_is_allowed(declaring: type[Any]) -> None:
    names = {field.name for field in dataclasses.fields(declaring)} - {"bootstrap"}
    assert names == set(options_of(declaring))
    for name, declared in options_of(declaring).items():
        declared.check(declared.default)
        assert declared.doc, name
        assert (declared.unit == "milliseconds") == ("_ms" in name), name
        assert (declared.unit == "bytes") == name.endswith("_bytes"), name


@pytest.mark.parametrize(
    ("keywords", "declaring"),
    [
        (ClientKwargs, [ClientConfig]),
        (ProducerKwargs, [ClientConfig, ProducerSettings]),
        (ConsumerKwargs, [ClientConfig, ConsumerOptions]),
        (ShareConsumerKwargs, [ClientConfig, ShareConsumerOptions]),
        (AdminKwargs, [ClientConfig, AdminOptions]),
    ],
)
def test_the_typed_keywords_agree_with_the_declarations(keywords: Any, declaring: list[Any]) -> None:
    declared = {name: kind for each in declaring for name, kind in type_hints(each).items() if name != "bootstrap"}
    assert type_hints(keywords) == declared


@pytest.mark.parametrize(
    ("client", "options", "expected"),
    [
        (
            kwire.Producer,
            {"linger_ms": "5"},
            "linger_ms is '5' (str): give a whole number of milliseconds from 0 up; the default is 5 ms",
        ),
        (
            kwire.Producer,
            {"linger_ms": None},
            "linger_ms is None (NoneType): give a whole number of milliseconds from 0 up; the default is 5 ms",
        ),
        (kwire.Producer, {"retries": "x"}, "retries is 'x' (str): give a whole number from 0 up, or None"),
        (kwire.Producer, {"delivery_timeout_ms": "1"}, "delivery_timeout_ms is '1' (str)"),
        (kwire.Producer, {"batch_bytes": 0}, "batch_bytes is 0 (int): give a whole number of bytes from 1 up"),
        (kwire.Producer, {"max_block_ms": True}, "max_block_ms is True (bool)"),
        (kwire.Producer, {"compression": 3}, "compression is 3 (int): give \"none\", \"gzip\""),
        (kwire.Producer, {"compression": "zst"}, "compression is 'zst' (str): give \"none\", \"gzip\""),
        (kwire.Producer, {"compression": "gzip", "compression_level": "9"}, "compression_level is '9' (str)"),
        (kwire.Producer, {"acks": True}, 'acks is True (bool): give "all", -1, 0 or 1; the default is "all"'),
        (kwire.Producer, {"idempotence": "true"}, "idempotence is 'true' (str): give True or False, or None"),
        (kwire.Producer, {"when_full": "wait"}, 'when_full is \'wait\' (str): give "block" or "raise"'),
        (kwire.Producer, {"partitioner": 5}, "partitioner is 5 (int): give a name or a function"),
        (kwire.Producer, {"transactional_id": ""}, "transactional_id is '' (str): give a str that is not empty"),
        (kwire.Producer, {"client_id": 5}, "client_id is 5 (int): give a str that is not empty, of at most 32,767"),
        (kwire.Producer, {"client_id": "a\ud800"}, r"client_id is 'a\ud800' (str): give a str"),
        (kwire.Cluster, {"client_id": "a" * 32_768}, "bytes in UTF-8; the default is \"kwire\""),
        (kwire.Producer, {"transactional_id": "a\ud800"}, r"transactional_id is 'a\ud800' (str): give a str"),
        (kwire.Producer, {"transactional_id": "\xe9" * 16_384}, "give a str that is not empty, of at most 32,767"),
        (kwire.aio.Producer, {"linger_ms": 0.5}, "linger_ms is 0.5 (float)"),
        (kwire.Consumer, {"rack": None}, "rack is None (NoneType): give a str"),
        (kwire.Consumer, {"max_bytes": 2**31}, "from 1 to 2147483647; the default is 16_777_216 bytes"),
        (kwire.Consumer, {"check_crc": 1}, "check_crc is 1 (int): give True or False"),
        (kwire.Admin, {"request_timeout_ms": 0}, "request_timeout_ms is 0 (int): give a whole number of milliseconds"),
        (kwire.Admin, {"tls": "yes"}, "tls is 'yes' (str): give True or a kwire.Tls, or None"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_name(client: Any, options: dict[str, Any], expected: str) -> None:
    assert expected in refusal(client, "localhost:9092", **options)


def test_the_error_of_a_wrong_sasl_does_not_show_the_value() -> None:
    said = refusal(kwire.Producer, "localhost:9092", sasl="user:hunter2")
    assert "sasl is of type str: give a kwire.Sasl" in said
    assert "hunter2" not in said


def test_compression_none_means_no_compression() -> None:
    with kwire.Producer("localhost:9092", compression=None):
        assert ProducerSettings(compression=None) == ProducerSettings(compression="none")


def test_a_codec_whose_package_is_missing_is_refused_by_the_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    from kwire.records import compression

    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.delitem(sys.modules, "kwire.records.compression.zstd", raising=False)
    compression._compressor.cache_clear()
    assert "kwire[zstd]" in refusal(kwire.Producer, "localhost:9092", compression="zstd")


def test_an_invalid_compression_level_is_refused_by_the_constructor() -> None:
    assert "level" in refusal(kwire.Producer, "localhost:9092", compression="gzip", compression_level=99)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("bootstrap", [None, 9092, b"localhost:9092", {"localhost:9092"}, [9092], [None]], ids=repr)
def test_a_bootstrap_of_a_wrong_type_is_refused(client: Any, bootstrap: Any) -> None:
    said = refusal(client, bootstrap)
    assert said.startswith(f"bootstrap is {bootstrap!r} ({type(bootstrap).__name__}): give ")


@pytest.mark.parametrize(
    ("client", "options", "expected"),
    [
        (kwire.Producer, {"linger": 5}, "unknown option linger: linger is called linger_ms; the options of kwire.P"),
        (kwire.Producer, {"lingr_ms": 5}, "did you mean linger_ms?"),
        (kwire.Producer, {"linger.ms": 5}, "linger.ms is called linger_ms"),
        (kwire.Producer, {"batch_size": 5}, "batch_size is called batch_bytes"),
        (kwire.Producer, {"compression_type": "gzip"}, "compression_type is called compression"),
        (kwire.Producer, {"enable_idempotence": True}, "enable_idempotence is called idempotence"),
        (kwire.Producer, {"enable.idempotence": True}, "enable.idempotence is called idempotence"),
        (kwire.Producer, {"bootstrap_servers": "h"}, "bootstrap_servers is called bootstrap"),
        (kwire.Producer, {"queue.buffering.max.ms": 5}, "queue.buffering.max.ms is called linger_ms"),
        (kwire.Producer, {"batch_sise": 5}, "did you mean batch_bytes?"),
        (kwire.Producer, {"isolation": "read_committed"}, "isolation is an option of kwire.Consumer"),
        (kwire.aio.Producer, {"linger": 5}, "the options of kwire.aio.Producer are acks, allow_auto_create_topics, "),
        (kwire.Consumer, {"isolaton": "read_committed"}, "did you mean isolation?"),
        (kwire.Consumer, {"isolation.level": "read_committed"}, "isolation.level is called isolation"),
        (
            kwire.Consumer,
            {"auto_offset_reset": "earliest"},
            "unknown option auto_offset_reset: auto_offset_reset is called on_no_offset",
        ),
        (kwire.Consumer, {"fetch_min_bites": 1}, "did you mean min_bytes?"),
        (kwire.Consumer, {"linger_ms": 5}, "linger_ms is an option of kwire.Producer"),
        (kwire.Consumer, {"batch.size": 5}, "batch_bytes is an option of kwire.Producer"),
        (kwire.Admin, {"clientid": "x"}, "did you mean client_id?"),
        (
            kwire.Consumer,
            {"group_id": "g"},
            "unknown option group_id: group_id is called group",
        ),
        (
            kwire.Consumer,
            {"group.id": "g", "a": 1},
            "unknown options group.id, a: group.id is called group",
        ),
        (kwire.Admin, {"a": 1, "client.id": "x"}, "unknown options a, client.id: client.id is called client_id"),
    ],
)
def test_an_unknown_option_is_refused_with_the_likely_one(client: Any, options: dict[str, Any], expected: str) -> None:
    assert expected in refusal(client, "localhost:9092", **options)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ["bootstrap_servers", "bootstrap.servers", "metadata.broker.list"])
def test_the_bootstrap_of_other_libraries_alone_is_translated(client: Any, name: str) -> None:
    shown = refusal(client, **{name: "db:9092"})
    assert shown.startswith(f"unknown option {name}: {name} is called bootstrap: write kwire.")
    assert shown.endswith("('db:9092', ...)")


@pytest.mark.parametrize("client", [kwire.Consumer, kwire.aio.Consumer])
def test_the_topics_of_other_libraries_constructors_are_for_subscribe(client: Any) -> None:
    shown = refusal(client, "orders", "payments", bootstrap_servers="db:9092")
    assert shown.endswith("('db:9092', ...), and give topics to subscribe")


@pytest.mark.parametrize(
    ("client", "name", "hint"),
    [
        (kwire.Producer, "ssl_password", "ssl_password is called tls"),
        (kwire.Producer, "sasl_oauth_token_provider", "sasl_oauth_token_provider is called sasl"),
        (kwire.Consumer, "sasl_kerberos_service_name", "sasl_kerberos_service_name is called sasl"),
        (kwire.Consumer, "rebalance_timeout_ms", "rebalance_timeout_ms is called max_poll_interval_ms"),
        (kwire.Consumer, "exclude_internal_topics", "a pattern matches no internal topic"),
        (kwire.Consumer, "client_dns_lookup", "kwire tries all addresses"),
        (kwire.Consumer, "enable.partition.eof", "compare position with end_offsets"),
        (kwire.Producer, "socket_options", "TCP_NODELAY"),
        (kwire.Producer, "bootstrap_timeout_ms", "a constructor contacts no broker"),
    ],
)
def test_no_option_of_another_library_leads_to_one_that_is_only_spelled_alike(
    client: Any, name: str, hint: str
) -> None:
    said = refusal(client, "localhost:9092", **{name: 1})
    assert hint in said
    assert "did you mean" not in said


def test_a_client_without_any_bootstrap_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'bootstrap'"):
        kwire.Producer(linger_ms=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_option_is_refused_with_all_options_of_the_client(client: Any) -> None:
    said = refusal(client, "localhost:9092", nonsense=1)
    keywords = type_hints(ProducerKwargs if "Producer" in repr(client) else ClientKwargs)
    if client in (kwire.Consumer, kwire.aio.Consumer):
        keywords = type_hints(ConsumerKwargs)
    if client is kwire.Admin:
        keywords = type_hints(AdminKwargs)
    listed = said.rpartition(" are ")[2]
    assert listed.split(", ") == sorted(keywords)


@pytest.mark.parametrize(
    ("client", "properties", "expected"),
    [
        (
            kwire.Producer,
            {"bootstrap.servers": "h:9092", "linger.ms": 5},
            "kwire.Producer takes options as keywords, not as a dict: write kwire.Producer('h:9092', linger_ms=5)",
        ),
        (
            kwire.Producer,
            {"bootstrap.servers": "h:9092", "enable.idempotence": "true", "batch.size": "100", "acks": "1"},
            "write kwire.Producer('h:9092', idempotence=True, batch_bytes=100, acks=1)",
        ),
        (
            kwire.Consumer,
            {"bootstrap.servers": "h:9092", "group.id": "g", "isolation.level": "read_committed"},
            "write kwire.Consumer('h:9092', group='g', isolation='read_committed')",
        ),
        (
            kwire.Admin,
            {"bootstrap.servers": "h", "security.protocol": "SASL_SSL", "ssl.ca.location": "ca.pem",
             "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": "hunter2"},
            "write kwire.Admin('h', tls=kwire.Tls(ca_file='ca.pem'), sasl=kwire.Sasl('SCRAM-SHA-512', 'me', ...))",
        ),
        (kwire.aio.Producer, {"metadata.broker.list": "h"}, "write kwire.aio.Producer('h')"),
    ],
)  # fmt: skip
def test_a_dict_is_refused_with_the_call_to_write(client: Any, properties: dict[str, Any], expected: str) -> None:
    said = refusal(client, properties)
    assert expected in said
    assert "hunter2" not in said


def test_the_tables_of_names_lead_to_existing_options() -> None:
    client, producer, consumer = (set(options_of(declaring)) for declaring in DECLARING)
    assert set(FOREIGN.values()) <= client | producer | consumer | {"bootstrap"}
    assert set(OWNERS) <= producer | consumer
    for name, owner in OWNERS.items():
        assert name in (producer if owner == "kwire.Producer" else consumer)
    assert not set(NOT_SUPPORTED) & (client | producer | consumer | set(FOREIGN))


@pytest.mark.parametrize(
    ("client", "tables"),
    [
        (kwire.Producer, [option_table(ProducerSettings), option_table(ClientConfig)]),
        (kwire.aio.Producer, [option_table(ProducerSettings), option_table(ClientConfig)]),
        (kwire.Consumer, [option_table(ConsumerOptions),
                          option_table(ClientConfig, defaults={"allow_auto_create_topics": False})]),
        (kwire.aio.Consumer, [option_table(ConsumerOptions),
                              option_table(ClientConfig, defaults={"allow_auto_create_topics": False})]),
        (kwire.ShareConsumer, [option_table(ShareConsumerOptions),
                               option_table(ClientConfig, defaults={"allow_auto_create_topics": False})]),
        (kwire.aio.ShareConsumer, [option_table(ShareConsumerOptions),
                                   option_table(ClientConfig, defaults={"allow_auto_create_topics": False})]),
        (kwire.Admin, [option_table(AdminOptions), option_table(ClientConfig)]),
        (kwire.aio.Admin, [option_table(AdminOptions), option_table(ClientConfig)]),
        (kwire.Cluster, [option_table(ClientConfig)]),
    ],
)  # fmt: skip
def test_docstrings_list_every_option_with_its_default(client: Any, tables: list[str]) -> None:
    shown = "\n".join(line.removeprefix("    ") for line in (client.__doc__ or "").splitlines())
    for table in tables:
        assert table in shown, f"the docstring of {client} lacks\n{table}"


@pytest.mark.parametrize(
    ("client", "declaring"),
    [
        (kwire.Consumer, ProcessorOptions), (kwire.aio.Consumer, ProcessorOptions),
        (kwire.ShareConsumer, ShareProcessorOptions), (kwire.aio.ShareConsumer, ShareProcessorOptions),
    ],
)  # fmt: skip
def test_the_docstring_of_process_lists_its_options(client: Any, declaring: type[Any]) -> None:
    shown = " ".join(client.process.__doc__.split())
    for name, declared in options_of(declaring).items():
        assert f" {name} [" in shown
        assert " ".join(declared.doc.split()) in shown
    assert "retry_if [always]" in shown


def test_the_typed_keywords_of_the_embedded_broker_agree_with_its_options() -> None:
    assert get_type_hints(ClusterKwargs) == get_type_hints(Options)
    fields = get_type_hints(Fault)
    counted = {"effect", "seen", "hits", "_random"}
    assert get_type_hints(FaultKwargs) == {name: fields[name] for name in fields.keys() - counted}
