"""`import kwire` is cheap: it reads no message module, no socket, no thread; names come when they are used."""

from __future__ import annotations

import subprocess
import sys

import kwire

PROBE = "import sys; before = set(sys.modules); import kwire; print(*sorted(set(sys.modules) - before))"


def test_importing_kwire_imports_next_to_nothing() -> None:
    loaded = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout.split()
    ours = [name for name in loaded if name.startswith("kwire")]
    assert ours == ["kwire", "kwire.version"]
    assert not {"asyncio", "ssl", "socket", "threading", "json"} & set(loaded)


def test_every_public_name_is_there() -> None:
    for name in kwire.__all__:
        assert getattr(kwire, name) is not None
    assert set(kwire.__all__) <= set(dir(kwire))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(kwire, "Produce")
