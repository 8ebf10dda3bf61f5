"""Counts the Python functions of kwire that are called: what a round trip costs, on every machine alike."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2] / "kwire"


class Calls:
    """`with Calls("net", ...) as calls: ...` counts the calls, in this thread, of functions of these rooms."""

    def __init__(self, *rooms: str) -> None:
        self._places = tuple(f"{ROOT}/{room}/" for room in rooms)
        self.by_name: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self.by_name.total()

    def __enter__(self) -> Calls:
        self._before = sys.getprofile()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self._places):
            self.by_name[frame.f_code.co_qualname] += 1
