"""The exchanges of a capture that a filter accepts, what could not be read, and whether anything could."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from kwire.cli.error_report import ExitCode, print_error
from kwire.cli.output import Output

if TYPE_CHECKING:
    from kwire.capture import Exchange, Remark
    from kwire.capture.filters import Filter


class AcceptedExchanges:
    """Iterable once. What could not be read goes to stderr, with the file's name if `names_file`.

    `options` are those of `read_exchanges`. At the end `status` is the exit code for what was read, and `is_unreadable`
    says whether nothing was: the file is no capture, or one with traffic of which no exchange came out.
    """

    def __init__(
        self, source: str | BinaryIO, where: Filter | None, output: Output, *, names_file: bool = False, **options: Any
    ) -> None:
        self._source = source
        self._where = where
        self._output = output
        self._name = str(source) if names_file else ""
        self._options = options
        self._exchanges = 0
        self._unread: list[Remark] = []  # all remarks, until there is an exchange
        self._has_lost = False

    def __iter__(self) -> Iterator[Exchange]:
        from kwire.capture import read_exchanges

        for one in read_exchanges(self._source, on_remark=self._note, **self._options):
            self._exchanges += 1
            self._unread.clear()
            if self._where is None or self._where.accepts(one):
                yield one
        print_absence(self._exchanges, self._unread, self._output, self._name)

    @property
    def is_unreadable(self) -> bool:
        from kwire.capture import is_unreadable

        return is_unreadable(self._exchanges, self._unread)

    @property
    def status(self) -> ExitCode:
        return ExitCode.UNDECODABLE if self._has_lost or self.is_unreadable else ExitCode.OK

    def _note(self, remark: Remark) -> None:
        self._has_lost |= remark.is_problem
        if not self._exchanges:
            self._unread.append(remark)
        if _is_for_all(remark):
            print_remark(remark, self._output, self._name)


def status_of(exchanges: int, remarks: Sequence[Remark]) -> ExitCode:
    """Return the exit code for what was read of a capture of so many exchanges."""
    from kwire.capture import is_incomplete

    return ExitCode.UNDECODABLE if is_incomplete(exchanges, remarks) else ExitCode.OK


def print_remarks(exchanges: int, remarks: Sequence[Remark], output: Output, name: str = "") -> None:
    """Print what could not be read of a capture of so many exchanges, with the file's name if it is given."""
    for remark in remarks:
        if _is_for_all(remark):
            print_remark(remark, output, name)
    print_absence(exchanges, remarks, output, name)


def print_absence(exchanges: int, remarks: Sequence[Remark], output: Output, name: str = "") -> None:
    """Say that a capture has no exchange, and all that may be the reason."""
    if exchanges:
        return
    for remark in remarks:
        if not _is_for_all(remark):
            print_remark(remark, output, name)
    output.note(_named("no Kafka exchange is in the capture", name))


def print_remark(remark: Remark, output: Output, name: str = "") -> None:
    """Print a remark to stderr: lost bytes as an error, which -q does not silence."""
    text = _named(str(remark), name)
    if remark.is_problem:
        print_error(text)
    else:
        output.note(text)


def _is_for_all(remark: Remark) -> bool:
    """Return whether everybody hears it: lost bytes, and what is true of the whole capture."""
    return remark.is_problem or remark.connection is None


def _named(text: str, name: str) -> str:
    return f"{name}: {text}" if name else text
