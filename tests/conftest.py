"""What every test may use: the tools' Python on the path, and the rule that CI never skips for want of something."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))


def missing(what: str) -> None:
    """A test cannot run here for want of `what`: a failure in CI, a skip elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}, and CI skips nothing", pytrace=False)
    pytest.skip(what)


def pytest_collection_finish() -> None:
    # What was collected, hundreds of thousands of objects, stays: the collector of garbage need not look at it again.
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    # A shell has what it starts in the background ignore interrupts, and children inherit that; some tests send them.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Not ours to mend: kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls old.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
