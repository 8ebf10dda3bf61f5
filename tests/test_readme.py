"""README: a short first example, existing paths, links and extras, and every room on its map."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
ROOM = re.compile(r"`kwire/(\w+)/`")


def test_the_first_example_is_twenty_lines() -> None:
    (first, *_) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    code = [line for line in first.splitlines() if line.strip()]
    assert 15 <= len(code) <= 22


def test_every_room_is_on_the_map() -> None:
    rooms = {path.parent.name for path in (ROOT / "kwire").glob("*/__init__.py")}
    mapped = {room for row in re.findall(r"^\| (`kwire/.*?) \|", README, re.MULTILINE) for room in ROOM.findall(row)}
    assert mapped == rooms


def test_every_path_that_is_named_exists() -> None:
    paths = set(re.findall(r"`((?:kwire|tests|tools|docs|examples|fixtures)/[\w/.-]*)`", README))
    paths |= set(re.findall(r"\]\(([^):#]+)\)", README))
    assert len(paths) > 10
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_every_extra_that_is_named_exists() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    table = README[README.index("| extra |") : README.index("Two commands")]
    named = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert {"cli", "spark"} <= named <= set(setup["options.extras_require"])


def test_the_changelog_keeps_its_form() -> None:
    """Unreleased, then releases with dates; changes are under Added, Changed, Fixed or similar."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert releases[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", release) for release in releases[1:])
    kinds = set(re.findall(r"^### (.+)$", changelog, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
