"""Rows of a task as errors name them: "row 7 of DataFrame partition 3 (key b'k', value of 5 bytes)"."""

from __future__ import annotations

from typing import NamedTuple

from kwire.errors import ConfigurationError, DeliveryError, KwireError
from kwire.spark.sink import SinkBatch

# Bytes of a key that an error shows.
_KEY_SHOWN = 40


class TaskBatch(NamedTuple):
    """A batch of a task, and how errors name its rows. `first_row` is the number of its first row in the task."""

    batch: SinkBatch
    first_row: int
    task: str

    def name(self, row: int) -> str:
        key, value_bytes = self.batch.key(row), self.batch.value_bytes(row)
        shown = "no key" if key is None else f"key {key[:_KEY_SHOWN]!r}"
        if key is not None and len(key) > _KEY_SHOWN:
            shown += f"... of {_in_bytes(len(key))}"
        value = "no value" if value_bytes is None else f"value of {_in_bytes(value_bytes)}"
        return f"row {self.first_row + row} of {self.task} ({shown}, {value})"

    def failure(self, error: Exception, row: int, others: str = "") -> DeliveryError:
        where: dict[str, object] = {"topic": self.batch.topic(row), "partition": self.batch.partition(row)}
        cause: BaseException | None = error
        while isinstance(cause, KwireError):
            where = {**cause.where, **{name: value for name, value in where.items() if value is not None}}
            cause = cause.__cause__
        message, remedy = (error.message, error.remedy) if isinstance(error, KwireError) else (str(error), None)
        return DeliveryError(
            f"{self.name(row)} was not written{others}: {message}",
            possibly_persisted=getattr(error, "possibly_persisted", False),
            remedy=remedy,
            **where,
        )


def _in_bytes(count: int) -> str:
    return f"{count:,} byte{'' if count == 1 else 's'}"


def checked(batch: TaskBatch) -> None:
    """Raise ConfigurationError for the first row that cannot become a record."""
    row_error = batch.batch.first_error()
    if row_error is not None:
        raise ConfigurationError(f"{batch.name(row_error.row)} {row_error.what}", remedy=row_error.remedy)
