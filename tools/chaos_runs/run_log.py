"""Follow kwire's log during a run: count retried batches, and keep errors as complaints.

Warnings about lost brokers are expected in a run and are dropped.
"""

from __future__ import annotations

import logging
from typing import Self


class RunLog(logging.Handler):
    """Handle kwire's log records while the context is open."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.retries = 0
        self.errors: list[str] = []
        self._log = logging.getLogger("kwire")
        self._producer_log = logging.getLogger("kwire.producer")
        self._levels = self._log.level, self._producer_log.level
        self._propagates = self._log.propagate

    def __enter__(self) -> Self:
        self._producer_log.setLevel(logging.DEBUG)
        self._log.propagate = False
        self._log.addHandler(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._log.removeHandler(self)
        self._log.propagate = self._propagates
        self._log.setLevel(self._levels[0])
        self._producer_log.setLevel(self._levels[1])

    def emit(self, record: logging.LogRecord) -> None:
        if "is sent again" in str(record.msg):
            self.retries += 1
        if record.levelno >= logging.ERROR:
            self.errors.append(self.format(record))
