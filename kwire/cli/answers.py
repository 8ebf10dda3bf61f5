"""What an answer in Kafka's JSON says went wrong: every error code in it, with its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kwire.errors import error_name


class Refusal(NamedTuple):
    """An error code that is not 0, and its path in the answer: topics[0].errorCode."""

    path: str
    code: int

    @property
    def name(self) -> str:
        return error_name(self.code)


def refusals(answer: Any, path: str = "") -> Iterator[Refusal]:
    """The answer's own, those of its topics, partitions, ..."""
    if isinstance(answer, list):
        for index, item in enumerate(answer):
            yield from refusals(item, f"{path}[{index}]")
    elif isinstance(answer, dict):
        for name, value in answer.items():
            here = f"{path}.{name}" if path else name
            if isinstance(value, (list, dict)):
                yield from refusals(value, here)
            elif value and (name == "errorCode" or name.endswith("ErrorCode")):
                yield Refusal(here, value)
