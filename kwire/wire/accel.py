"""The one place that chooses between the loops in Python (`_pure`, the specification) and those in C (`_speedups`).

`KWIRE_IMPL=python` takes the former, `KWIRE_IMPL=c` the latter or fails with ImportError; unset, C is taken where it
was built. `IMPLEMENTATION` says which it is. Everybody imports these names from here, and nobody else looks at
KWIRE_IMPL.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from kwire.wire import _pure
from kwire.wire.rows import Header, Headers, NewRecord, Row

__all__ = [
    "IMPLEMENTATION",
    "Header",
    "Headers",
    "NewRecord",
    "Row",
    "crc32c",
    "decode_records",
    "encode_headers",
    "encode_records",
    "murmur2",
]


def _choose(asked: str) -> ModuleType:
    if asked not in ("", "python", "c"):
        raise ImportError(f"KWIRE_IMPL is {asked!r}: it can be 'python' or 'c'")
    if asked != "python":
        try:
            return importlib.import_module("kwire.wire._speedups")
        except ImportError as error:
            if asked == "c":
                raise ImportError(
                    "KWIRE_IMPL=c, but kwire was installed without its C accelerator: install it where a C compiler "
                    "is, or unset KWIRE_IMPL"
                ) from error
    return _pure


_chosen = _choose(os.environ.get("KWIRE_IMPL", ""))
IMPLEMENTATION = "python" if _chosen is _pure else "c"

# Bound to the specification's types: whichever is chosen keeps them.
crc32c = _pure.crc32c if _chosen is _pure else _chosen.crc32c
murmur2 = _pure.murmur2 if _chosen is _pure else _chosen.murmur2
encode_records = _pure.encode_records if _chosen is _pure else _chosen.encode_records
encode_headers = _pure.encode_headers if _chosen is _pure else _chosen.encode_headers
decode_records = _pure.decode_records if _chosen is _pure else _chosen.decode_records
