"""README's example is short, and every path that README names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_first_example_is_twenty_lines() -> None:
    (first, *_) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    code = [line for line in first.splitlines() if line.strip()]
    assert 15 <= len(code) <= 22


def test_every_room_is_on_the_map() -> None:
    rooms = {path.parent.name for path in (ROOT / "kwire").glob("*/__init__.py")}
    mapped = set(re.findall(r"^\| `kwire/(\w+)/` ", README, re.MULTILINE))
    assert mapped == rooms


def test_every_path_that_is_named_exists() -> None:
    paths = set(re.findall(r"`((?:kwire|tests|tools|docs|examples|fixtures)/[\w/.-]*)`", README))
    assert len(paths) > 10
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
