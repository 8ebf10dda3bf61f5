"""Random operations: the accumulator in C and the one in Python behave the same.

KWIRE_STORIES says how many, KWIRE_FIRST_STORY which is the first: for ten minutes with the sanitizers,

    KWIRE_STORIES=20000 tools/sanitize -k stories
"""

from __future__ import annotations

import os

import pytest

from tests.producer.accumulator_stories import Story
from tests.wire.speedups import needs_c, python, speedups

STORIES = int(os.environ.get("KWIRE_STORIES", "100"))
FIRST = int(os.environ.get("KWIRE_FIRST_STORY", "0"))


@needs_c
@pytest.mark.parametrize("tenth", range(10))
def test_both_accumulators_behave_the_same(tenth: int) -> None:
    for seed in range(FIRST + tenth, FIRST + STORIES, 10):
        try:
            Story(seed, (python, speedups())).go(150)
        except BaseException as error:
            error.add_note(f"story {seed}")
            raise
