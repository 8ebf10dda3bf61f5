"""What the text of an option means, and errors that name the option."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kwire.errors import ConfigurationError
from kwire.spark import option_parsers


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (option_parsers.parse_bool, "true", True),
        (option_parsers.parse_bool, " FALSE ", False),
        (option_parsers.parse_int, "7", 7),
        (option_parsers.parse_duration_ms, "15m", 900_000),
        (option_parsers.parse_duration_ms, "15min", 900_000),
        (option_parsers.parse_duration_ms, " 2 h ", 7_200_000),
        (option_parsers.parse_duration_ms, "250ms", 250),
        (option_parsers.parse_duration_ms, "250", 250),
        (option_parsers.parse_duration_ms, "1D", 86_400_000),
        (option_parsers.parse_topics, "b, a,a,", ("a", "b")),
        (option_parsers.parse_partitions, '{"b":[1,0],"a":[2]}', (("a", 2), ("b", 0), ("b", 1))),
        (option_parsers.parse_partitions, '{"b":["1"]}', (("b", 1),)),
    ],
)
def test_reads(read: Callable[[str, str], object], text: str, expected: object) -> None:
    assert read("opt", text) == expected


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (option_parsers.parse_bool, "yes"),
        (option_parsers.parse_int, "0"),
        (option_parsers.parse_int, "-1"),
        (option_parsers.parse_int, "1.5"),
        (option_parsers.parse_int, ""),
        (option_parsers.parse_duration_ms, "15 parsecs"),
        (option_parsers.parse_duration_ms, "m"),
        (option_parsers.parse_duration_ms, "-1s"),
        (option_parsers.parse_topics, " , "),
        (option_parsers.parse_pattern, "(a"),
        (option_parsers.parse_partitions, "a,b"),
        (option_parsers.parse_partitions, "[1]"),
        (option_parsers.parse_partitions, '{"a":1}'),
        (option_parsers.parse_partitions, '{"a":[-1]}'),
        (option_parsers.parse_partitions, '{"a":[true]}'),
        (option_parsers.parse_partitions, '{"a":[]}'),
        (option_parsers.parse_partitions, "{}"),
    ],
)
def test_a_wrong_value_raises_with_the_name(read: Callable[[str, str], object], text: str) -> None:
    with pytest.raises(ConfigurationError, match="option opt "):
        read("opt", text)


def test_numbers_by_partition() -> None:
    read = option_parsers.parse_numbers_by_partition("opt", '{"t":{"10":5,"2":-1},"s":{"0":0}}', minimum=-2)
    assert list(read.items()) == [(("s", 0), 0), (("t", 2), -1), (("t", 10), 5)]


@pytest.mark.parametrize(
    "text", ['{"t":{"0":-3}}', '{"t":{"0":"5"}}', '{"t":{"x":5}}', '{"t":[5]}', '{"t":{"0":true}}', "{}", "5"]
)
def test_numbers_by_partition_refuses(text: str) -> None:
    with pytest.raises(ConfigurationError, match="option opt "):
        option_parsers.parse_numbers_by_partition("opt", text, minimum=-2)


def test_one_of_takes_any_case_and_names_the_choices() -> None:
    assert option_parsers.parse_choice("opt", "ALL", {"all": "all", "-1": "all"}) == "all"
    with pytest.raises(ConfigurationError, match="option opt is 'none': give one of error, latest"):
        option_parsers.parse_choice("opt", "none", ("error", "latest"))
