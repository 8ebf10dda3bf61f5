"""Count delivery reports with the same few instructions for every client."""

from __future__ import annotations

import threading


class Reports:
    """Count reports: `delivered()` counts one, `wait()` waits for the wanted number and raises a report's error."""

    __slots__ = ("_count", "_done", "_wanted", "error")

    def __init__(self, wanted: int) -> None:
        self._count = 0
        self._wanted = wanted
        self._done = threading.Event()
        self.error: object = None

    def delivered(self) -> None:
        self._count += 1
        if self._count == self._wanted:
            self._done.set()

    def failed(self, error: object) -> None:
        self.error = self.error or error
        self.delivered()

    def expect(self, wanted: int) -> None:
        """Set the number of reports to wait for."""
        self._wanted = wanted
        if self._count >= wanted:
            self._done.set()

    def wait(self, seconds: float = 300.0) -> None:
        if not self._done.wait(seconds):
            raise RuntimeError(f"{self._count} of {self._wanted} delivery reports came in {seconds} s")
        self.check()

    def check(self) -> None:
        """Raise the error of a report, and check the count, after the last report."""
        if self.error is not None or self._count != self._wanted:
            raise RuntimeError(f"{self._count} of {self._wanted} delivery reports, first error: {self.error}")
