"""What every test may use: the tools' Python on the path, and the rule that CI never skips for want of something."""

from __future__ import annotations

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


# The files that take longest: processes share the files out, and none is to be left alone with one of these at the end.
_FIRST = (
    "test_fuzzing_speedups", "test_process", "test_seeds", "test_speedups", "test_cursor", "test_growth", "test_bulk",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _FIRST.index(item.path.stem) if item.path.stem in _FIRST else len(_FIRST))


def pytest_configure(config: pytest.Config) -> None:
    # A shell has what it starts in the background ignore interrupts, and children inherit that; some tests send them.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Not ours to mend: kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls old.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
