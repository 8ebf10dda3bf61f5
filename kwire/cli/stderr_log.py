"""-v and -vv: what kwire logs, shown on stderr while a command runs."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator


class _Stderr(logging.Handler):
    """Writes to whatever `sys.stderr` is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


_HANDLER = _Stderr()
_HANDLER.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))


@contextlib.contextmanager
def log_to_stderr(verbose: int) -> Iterator[None]:
    """Show what kwire logs: from INFO on with -v, from DEBUG on with -vv; of `kwire -v COMMAND -vv` the more counts.

    Without -v, warnings are shown as Python shows them where nothing is set up: as bare lines.
    """
    logger = logging.getLogger("kwire")
    if not verbose:
        yield
        return
    level, level_before = logging.DEBUG if verbose > 1 else logging.INFO, logger.level
    is_first = _HANDLER not in logger.handlers
    logger.setLevel(level if is_first else min(level, level_before))
    if is_first:
        logger.addHandler(_HANDLER)
    try:
        yield
    finally:
        logger.setLevel(level_before)
        if is_first:
            logger.removeHandler(_HANDLER)
