"""The exchanges of a capture file that a filter accepts, and whether the file could be read at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kwire.cli.output import Output

if TYPE_CHECKING:
    from kwire.capture import Exchange, Remark
    from kwire.capture.filters import Filter


class AcceptedExchanges:
    """Iterable once. What could not be read goes to stderr, with the file's name if `names_file`.

    `options` are those of `read_exchanges`. At the end `is_unreadable` says whether the file is no capture, or so
    damaged that no exchange came out.
    """

    def __init__(
        self, path: str, where: Filter | None, output: Output, *, names_file: bool = False, **options: Any
    ) -> None:
        self._path = path
        self._where = where
        self._output = output
        self._prefix = f"{path}: " if names_file else ""
        self._options = options
        self._is_empty = True
        self._has_problem = False

    def __iter__(self) -> Iterator[Exchange]:
        from kwire.capture import read_exchanges

        for one in read_exchanges(self._path, on_remark=self._note, **self._options):
            self._is_empty = False
            if self._where is None or self._where.accepts(one):
                yield one

    @property
    def is_unreadable(self) -> bool:
        return self._is_empty and self._has_problem

    def _note(self, remark: Remark) -> None:
        if remark.is_problem:
            self._has_problem = True
            self._output.note(f"{self._prefix}{remark.text}")
