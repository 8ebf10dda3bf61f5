"""The C accelerator of this source tree, compiled for the tests that compare it with the specification.

The environment may have none installed, or an old one; so it is compiled here, with warnings as errors, wherever there
is a compiler and Python's headers.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_SOURCES = Path(__file__).resolve().parents[2] / "kwire" / "_c"
_INCLUDE = Path(sysconfig.get_path("include"))
_COMPILER = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
# KWIRE_CFLAGS is for tools/sanitize.
_FLAGS = os.environ.get("KWIRE_CFLAGS", "-O2").split()

# CI skips nothing: without a compiler, the tests that need it fail there.
CAN_COMPILE = bool(os.environ.get("CI")) or (_COMPILER is not None and (_INCLUDE / "Python.h").is_file())

needs_c = pytest.mark.skipif(not CAN_COMPILE, reason="no C compiler or no headers of Python")


def compiled(flags: Sequence[str] = _FLAGS, *more: Path) -> Path:
    """Compile the accelerator with additional sources."""
    return shared_library([*sorted(_SOURCES.glob("*.c")), *more], flags)


def shared_library(sources: Sequence[Path], flags: Sequence[str] = _FLAGS) -> Path:
    """Compile once for each state of the sources and the accelerator's headers."""
    assert _COMPILER is not None, "no C compiler"
    texts = [path.read_bytes() for path in (*sources, *sorted(_SOURCES.glob("*.h")))]
    key = hashlib.sha256(b"\0".join([*texts, *map(str.encode, flags), str(_INCLUDE).encode()])).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"kwire-speedups-{os.getuid()}-{key}"
    library = folder / "_speedups.so"
    if not library.exists():
        folder.mkdir(exist_ok=True, mode=0o700)
        unfinished = folder / f"{os.getpid()}.so"
        command = [
            _COMPILER, "-std=c11", *flags, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{_INCLUDE}",
            f"-I{_SOURCES}", *map(str, sources), "-o", str(unfinished),
        ]  # fmt: skip
        # With the sanitizers of tools/sanitize in it, too, the compiler itself would need three times as long.
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        unfinished.rename(library)
    return library


def loaded(library: Path) -> ModuleType:
    loader = ExtensionFileLoader("_speedups", str(library))
    spec = spec_from_loader("_speedups", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@cache
def speedups() -> ModuleType:
    return loaded(compiled())


# The modules that have counterparts in C; imported modules first.
TWINS = (
    "kwire.wire.accel", "kwire.wire.buffers", "kwire.wire.checksums", "kwire.net.channel", "kwire.records.encoder",
    "kwire.records.decoder", "kwire.records.reader", "kwire.producer.batch_builder",
    "kwire.producer.accumulator",
)  # fmt: skip


class Implementation:
    """All names of the modules with counterparts in C, from copies of their own that use `speedups`, or none."""

    def __init__(self, speedups: ModuleType | None) -> None:
        for name in TWINS:
            importlib.import_module(name)  # with its packages, which keep the original modules
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KWIRE_IMPL", "")
            patch.setitem(sys.modules, "kwire.wire._speedups", speedups)
            for name in TWINS:
                package, _, module = name.rpartition(".")
                patch.setattr(sys.modules[package], module, None)  # the import sets it
                patch.delitem(sys.modules, name)
            self.modules = [importlib.import_module(name) for name in TWINS]
            for name in TWINS:  # so that the patch restores the originals
                sys.modules.pop(name)

    def module(self, name: str) -> Any:
        """Return the copy of the module of that name."""
        return self.modules[TWINS.index(name)]

    def __getattr__(self, name: str) -> Any:
        for module in self.modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(name)


# The specification, all in Python.
python = Implementation(None)


@cache
def accelerated() -> Implementation:
    """Return C, with Python for what C leaves to it."""
    return Implementation(speedups())


def run_in_new_process(check: Callable[[], None]) -> None:
    """Call a function of a test module in a process of its own, where no other test has C's pool of memory in use."""
    program = f"from {check.__module__} import {check.__name__}; {check.__name__}()"
    done = subprocess.run([sys.executable, "-c", program], cwd=_SOURCES.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
