"""The demo's records tell their numbers, and one that was altered tells none."""

from __future__ import annotations

import pytest
from demo_main import key_of, number_of, value_of


@pytest.mark.parametrize("number", [0, 1, 10, 999, 1_000, 199_999])
def test_a_record_tells_its_number(number: int) -> None:
    assert number_of(key_of(number), value_of(number)) == number


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key_of(1), None),
        (key_of(1), b""),
        (key_of(1), b"record"),
        (key_of(1), b"record one ."),
        (key_of(1), value_of(1) + b"."),
        (key_of(2), value_of(1)),
        (None, value_of(1)),
        (b"", value_of(10)),
    ],
)
def test_an_altered_record_tells_none(key: bytes | None, value: bytes | None) -> None:
    assert number_of(key, value) == -1
