"""Texts of options: what each means, and that a wrong one is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kwire.errors import ConfigurationError
from kwire.spark import values


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (values.flag, "true", True),
        (values.flag, " FALSE ", False),
        (values.whole, "7", 7),
        (values.duration_ms, "15m", 900_000),
        (values.duration_ms, "15min", 900_000),
        (values.duration_ms, " 2 h ", 7_200_000),
        (values.duration_ms, "250ms", 250),
        (values.duration_ms, "250", 250),
        (values.duration_ms, "1D", 86_400_000),
        (values.names, "b, a,a,", ("a", "b")),
        (values.topic_partitions, '{"b":[1,0],"a":[2]}', (("a", 2), ("b", 0), ("b", 1))),
        (values.topic_partitions, '{"b":["1"]}', (("b", 1),)),
    ],
)
def test_reads(read: Callable[[str, str], object], text: str, expected: object) -> None:
    assert read("opt", text) == expected


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (values.flag, "yes"),
        (values.whole, "0"),
        (values.whole, "-1"),
        (values.whole, "1.5"),
        (values.whole, ""),
        (values.duration_ms, "15 parsecs"),
        (values.duration_ms, "m"),
        (values.duration_ms, "-1s"),
        (values.names, " , "),
        (values.pattern, "(a"),
        (values.topic_partitions, "a,b"),
        (values.topic_partitions, "[1]"),
        (values.topic_partitions, '{"a":1}'),
        (values.topic_partitions, '{"a":[-1]}'),
        (values.topic_partitions, '{"a":[true]}'),
        (values.topic_partitions, '{"a":[]}'),
        (values.topic_partitions, "{}"),
    ],
)
def test_refuses_by_name(read: Callable[[str, str], object], text: str) -> None:
    with pytest.raises(ConfigurationError, match="option opt "):
        read("opt", text)


def test_numbers_by_partition() -> None:
    read = values.numbers_by_partition("opt", '{"t":{"10":5,"2":-1},"s":{"0":0}}', least=-2)
    assert list(read.items()) == [(("s", 0), 0), (("t", 2), -1), (("t", 10), 5)]


@pytest.mark.parametrize(
    "text", ['{"t":{"0":-3}}', '{"t":{"0":"5"}}', '{"t":{"x":5}}', '{"t":[5]}', '{"t":{"0":true}}', "{}", "5"]
)
def test_numbers_by_partition_refuses(text: str) -> None:
    with pytest.raises(ConfigurationError, match="option opt "):
        values.numbers_by_partition("opt", text, least=-2)


def test_one_of_takes_any_case_and_names_the_choices() -> None:
    assert values.one_of("opt", "ALL", {"all": "all", "-1": "all"}) == "all"
    with pytest.raises(ConfigurationError, match="option opt is 'none': give one of error, latest"):
        values.one_of("opt", "none", ("error", "latest"))
