"""The handler of `kwire -v`: what kwire logs, as lines on stderr."""

from __future__ import annotations

import logging
import sys


class _Stderr(logging.Handler):
    """Write to the current `sys.stderr`, which tests replace."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


HANDLER = _Stderr()
HANDLER.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
