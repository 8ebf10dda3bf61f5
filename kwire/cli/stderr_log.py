"""-v and -vv: what kwire logs, shown on stderr while a command runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def log_to_stderr(verbose: int) -> Iterator[None]:
    """Show kwire's log on stderr: from INFO with -v, from DEBUG with -vv.

    Of `kwire -v COMMAND -vv` the higher level counts.

    Without -v, warnings appear as Python shows them without a logging configuration: as bare lines.
    """
    if not verbose:
        yield
        return
    import logging  # which many commands do not need otherwise

    from kwire.cli.stderr_handler import HANDLER

    logger = logging.getLogger("kwire")
    level, level_before = logging.DEBUG if verbose > 1 else logging.INFO, logger.level
    is_first = HANDLER not in logger.handlers
    logger.setLevel(level if is_first else min(level, level_before))
    if is_first:
        logger.addHandler(HANDLER)
    try:
        yield
    finally:
        logger.setLevel(level_before)
        if is_first:
            logger.removeHandler(HANDLER)
