"""-v and -vv: what kwire logs, shown on stderr while a command runs."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator


class _Stderr(logging.Handler):
    """Write to the current `sys.stderr`, which tests replace."""

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
    """Show kwire's log on stderr: from INFO with -v, from DEBUG with -vv.

    Of `kwire -v COMMAND -vv` the higher level counts.

    Without -v, warnings appear as Python shows them without a logging configuration: as bare lines.
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
