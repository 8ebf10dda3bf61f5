"""Options and bootstrap addresses: what is refused, and that a configuration travels."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kwire.cluster import ClientConfig, client_config, parse_bootstrap
from kwire.errors import ConfigurationError
from kwire.session import Sasl


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("host", [("host", 9092)]),
        ("host:1", [("host", 1)]),
        (" a:1 , b:2,", [("a", 1), ("b", 2)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap(text: str | list[str], addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize(
    "text",
    ["", ",", "host:", "host:0", "host:65536", "host:x", ":9092", "::1", "[::1:9092", "kafka://host:9092", "host:٣"],
)
def test_bootstrap_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    "text", ["kafka://host:9092", "a:1;b:2", "a:1 b:2", ["a:1,b:2"], "a;b", "a b", ["a,b"], "host:65536", "a:1:x"]
)
def test_what_is_no_address_is_not_taken_for_ipv6(text: str | list[str]) -> None:
    with pytest.raises(ConfigurationError, match='is not host:port: give "host:port" alone for each broker'):
        parse_bootstrap(text)


@pytest.mark.parametrize("text", ["::1", "::1:9092", "fe80::1%eth0", "2001:db8::2:9092"])
def test_ipv6_without_brackets_is_ambiguous(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is ambiguous: write IPv6 as \[address\]:port"):
        parse_bootstrap(text)


def test_unknown_option_names_the_known() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown option linger_millis.*client_id"):
        client_config("host", {"linger_millis": 1}, client="kwire.Admin")


@pytest.mark.parametrize(
    "options",
    [
        {"request_timeout_ms": 0},
        {"request_timeout_ms": 1.5},
        {"max_in_flight": True},
        {"tls": "yes"},
        {"sasl": "PLAIN"},
    ],
)
def test_wrong_values(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ClientConfig("host", **options)


@pytest.mark.parametrize("text", ["[::1]:9093", "[::1]", "[2001:db8::2]:9092,host:1", ["[fe80::1%eth0]:9092"]])
def test_an_ipv6_address_keeps_its_brackets(text: str | list[str]) -> None:
    config = ClientConfig(text)
    assert config.addresses == parse_bootstrap(text)
    assert ClientConfig(config.bootstrap) == config


def test_it_pickles() -> None:
    config = ClientConfig("host:1", tls=True, sasl=Sasl("PLAIN", "user", "secret"))
    assert pickle.loads(pickle.dumps(config)) == config
    assert "secret" not in repr(config)
