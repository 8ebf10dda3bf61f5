"""The choice between the C accelerator and pure Python.

`speedups` is the C module, or None. `KWIRE_IMPL=python` leaves it out, `KWIRE_IMPL=c` fails with ImportError where it
is missing. Each module that has a counterpart in C uses `speedups` itself; no other module reads KWIRE_IMPL.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeVar, cast

if TYPE_CHECKING:
    from kwire.wire._speedups import Speedups

T = TypeVar("T")

_requested = os.environ.get("KWIRE_IMPL", "")


def _load() -> Speedups | None:
    if _requested not in ("", "python", "c"):
        raise ImportError(f"KWIRE_IMPL is {_requested!r}: it can be 'python' or 'c'")
    if _requested == "python":
        return None
    try:
        return cast("Speedups", importlib.import_module("kwire.wire._speedups"))
    except ImportError as error:
        if _requested == "c":
            raise ImportError(
                "KWIRE_IMPL=c, but kwire was installed without its C accelerator: install it where a C compiler is, "
                "or unset KWIRE_IMPL"
            ) from error
    return None


speedups = _load()
IMPLEMENTATION: Literal["c", "python"] = "python" if speedups is None else "c"


def described() -> str:
    """Return the implementation in words: "C accelerator", or "pure Python: " and the reason."""
    if IMPLEMENTATION == "c":
        return "C accelerator"
    if _requested == "python":
        return "pure Python: KWIRE_IMPL is python"
    if importlib.util.find_spec("kwire.wire._speedups") is not None:
        return "pure Python: the C accelerator cannot be loaded, KWIRE_IMPL=c says why"
    return "pure Python: installed without the C accelerator"


def has_headers() -> bool:
    """Return whether Python's C headers are on this machine."""
    import sysconfig  # imported here, because few processes need it
    from pathlib import Path

    return Path(sysconfig.get_path("include"), "Python.h").exists()


def can_build() -> bool:
    """Return whether a C compiler and Python's headers are on this machine."""
    import shutil

    return has_headers() and any(shutil.which(name) for name in ("cc", "gcc", "clang", "cl"))


@cache  # once in a process
def warn_if_slow() -> None:
    """Log a warning where C was left out though it could be built here, unless KWIRE_IMPL is python."""
    if IMPLEMENTATION == "python" and _requested != "python" and can_build():
        import logging

        logging.getLogger("kwire").warning(
            "kwire runs in pure Python, several times slower than its C accelerator, though a C compiler is here: "
            "reinstall it (pip install --force-reinstall --no-cache-dir --no-binary kwire kwire), or set "
            "KWIRE_IMPL=python to silence this"
        )


def made_anew(make: Callable[[str], type[T]], written: type[T]) -> type[T]:
    """Return a new class made in C, with the attributes of the class `written`."""
    made = make(f"{written.__module__}.{written.__qualname__}")
    for name, value in vars(written).items():
        setattr(made, name, value)
    return made
