"""What a pipeline learns of a query of Spark while it waits for its end."""

from __future__ import annotations

from typing import Any, cast

from kwire.pipeline.session import await_query

KEPT = 100


class Query:
    """Ends after some waits. Batches of two rows end during each wait; Spark keeps the progress of the last ones."""

    def __init__(self, waits: int, batches: int) -> None:
        self._waits = waits
        self._batches = batches
        self._progress: list[dict[str, int]] = []

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        self._waits -= 1
        begun = self._progress[-1]["batchId"] + 1 if self._progress else 0
        self._progress.append({"batchId": begun, "numInputRows": 0})  # said of a batch that has nothing to read yet
        self._progress += [{"batchId": begun + number, "numInputRows": 2} for number in range(self._batches)]
        return self._waits == 0

    @property
    def recentProgress(self) -> list[dict[str, int]]:  # noqa: N802
        return self._progress[-KEPT:]


def count(waits: int, batches: int) -> tuple[int, int]:
    meanwhile: list[Any] = []
    rows = await_query(cast(Any, Query(waits, batches)), lambda: meanwhile.append(None))
    return rows, len(meanwhile)


def test_rows_of_more_batches_than_spark_remembers() -> None:
    assert count(1, 3) == (6, 0)
    assert count(4, 90) == (720, 0)
    assert count(3, 0) == (0, 0)


def test_something_is_done_once_a_minute() -> None:
    assert count(25, 1) == (50, 2)
