"""The fixture of the tests of batches: they run on the loops in Python and, where C can be compiled, on those in C.

A module requests it: `pytestmark = pytest.mark.usefixtures("loops")`. The tests of the loops themselves do not.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kwire.records import v2

from ..wire.speedups import CAN_COMPILE, accelerated, python

LOOPS = ["python", "c"] if CAN_COMPILE else ["python"]
NAMES = ("crc32c", "decode_records", "encode_records")


@pytest.fixture(scope="module", params=LOOPS)
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let `kwire.records.v2` use the loops of one implementation, for a module."""
    chosen = accelerated() if request.param == "c" else python
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.setattr(v2, name, getattr(chosen, name))
        yield
