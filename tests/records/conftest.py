"""Every test of records runs on the loops in Python, and where C can be compiled on those in C."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kwire.records import v2

from ..wire.speedups import CAN_COMPILE, accelerated, python

LOOPS = ["python", "c"] if CAN_COMPILE else ["python"]
NAMES = ("crc32c", "decode_records", "encode_records")


@pytest.fixture(autouse=True, scope="module", params=LOOPS)
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    chosen = accelerated() if request.param == "c" else python
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.setattr(v2, name, getattr(chosen, name))
        yield
