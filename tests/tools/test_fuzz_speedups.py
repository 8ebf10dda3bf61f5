"""Test that tools/sanitize fuzz passes for some fixed cases, and that it finds a difference."""

from __future__ import annotations

import subprocess
import sys

import pytest
from checks import sanitize

from tests.wire.speedups import needs_c

# The sanitizers slow everything down, the compiler too.
pytestmark = [needs_c, pytest.mark.programs, pytest.mark.timeout(900)]

# In a new process all of kwire uses the C code compiled with the sanitizers.
BEGINNING = (
    f"import sys; sys.path.insert(0, {str(sanitize.ROOT / 'tools')!r}); from checks import fuzz_speedups as fuzzing\n"
)
SOME = "for seed in range(150): fuzzing.check(seed)"
BEHIND_THE_END = "import ctypes; ctypes.string_at(ctypes.create_string_buffer(100), 300)"
A_WRONG_ANSWER = "fuzzing.python.columns = lambda pieces, has_headers: (len(pieces),)\n" + SOME


@pytest.mark.parametrize(
    ("program", "says"),
    [(SOME, None), (A_WRONG_ANSWER, "DisagreementError"), (BEHIND_THE_END, "heap-buffer-overflow")],
)
def test_c_and_python_agree(program: str, says: str | None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + program], env=sanitize.environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == (says is None), done.stderr
    assert (says or "") in done.stderr
