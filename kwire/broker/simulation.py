"""The former name of `kwire.simulation`, so that programs which import it from here still run.

The import happens on first use, by name: the broker itself does not need a client.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    # An import statement may look up names such as `__path__`; those are this module's own.
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("kwire.simulation"), name)
