"""The type of options that are numbers: finite, in a range."""

from __future__ import annotations

from math import isfinite
from typing import Any

import click

# Times are counted in milliseconds, and some protocols and system calls have 32 bits for them.
SECONDS_MAX = 2_000_000


class FiniteRange(click.FloatRange):
    """A range of numbers; click's own accepts nan, and inf where there is no maximum."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found
