"""`kwire.broker.simulation`, the former name of `kwire.simulation`, still works, and costs nothing before its use."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_names_of_the_former_package_are_the_same_objects() -> None:
    import kwire.broker.simulation as former
    import kwire.simulation as current

    for name in current.__all__:
        assert getattr(former, name) is getattr(current, name)
    assert former.__all__ == current.__all__


def test_an_unknown_name_raises_import_error() -> None:
    with pytest.raises(ImportError, match="no_such_name"):
        from kwire.broker.simulation import no_such_name  # noqa: F401


def test_importing_the_broker_imports_no_client() -> None:
    program = "import sys, kwire.broker; print([name for name in sys.modules if name.startswith('kwire.simulation')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
