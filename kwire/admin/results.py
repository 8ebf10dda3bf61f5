"""The results of a call that names several things: one result or one error for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from kwire.errors import KwireError

Name = TypeVar("Name")
Result = TypeVar("Result")


class Results(Mapping[Name, Result], Generic[Name, Result]):
    """A mapping of names to results. Reading the result of a name that failed raises its error.

    So no error is lost where a program reads what it requested; `ok` and `errors` read without raising.
    """

    def __init__(self, results: Mapping[Name, Result | KwireError]) -> None:
        self._results = dict(results)

    def __getitem__(self, name: Name) -> Result:
        result = self._results[name]
        if isinstance(result, KwireError):
            raise result
        return result

    def __iter__(self) -> Iterator[Name]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"Results({self._results!r})"

    @property
    def ok(self) -> dict[Name, Result]:
        """Return the results of the names that succeeded."""
        return {name: result for name, result in self._results.items() if not isinstance(result, KwireError)}

    @property
    def errors(self) -> dict[Name, KwireError]:
        """Return the errors of the names that failed."""
        return {name: result for name, result in self._results.items() if isinstance(result, KwireError)}

    def check(self) -> dict[Name, Result]:
        """Return all results, or raise the errors: one as it is, several as an ExceptionGroup."""
        errors = list(self.errors.values())
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"{len(errors)} of {len(self)} failed", errors)
        return self.ok
