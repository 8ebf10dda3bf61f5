"""What docs/producer-documents.md names is there: files, tests, and the classes and methods said to be in a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "producer-documents.md").read_text()
ROWS = [line for line in DOCUMENT.splitlines() if re.match(r"\| (?!idea|what|---)", line)]

TESTS = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", DOCUMENT)))
PATHS = sorted(set(re.findall(r"`([\w/]+(?:\.py|/))`|`(tools/\w+)`", DOCUMENT)))
NAMED = sorted(set(re.findall(r"`(\w+)(?:\.(\w+))?`(?: and `\w+`)? \(`(\w+/\w+\.py)`", DOCUMENT)))


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    assert re.search(rf"^ *(async )?def {name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", ["".join(pair) for pair in PATHS])
def test_a_file_that_is_named_exists(path: str) -> None:
    assert any((ROOT / room / path).exists() for room in ("kwire", "tests", "."))


@pytest.mark.parametrize(("name", "member", "file"), NAMED)
def test_what_is_said_to_be_in_a_file_is_there(name: str, member: str, file: str) -> None:
    text = (ROOT / "kwire" / file).read_text()
    assert re.search(rf"^class {name}\b|^ +{name}:", text, re.MULTILINE)
    assert not member or re.search(rf"def {member}\(|self\.{member}\b", text)


def test_every_idea_is_placed() -> None:
    assert len(ROWS) > 40
    for row in ROWS:
        assert "`" in row, f"nowhere: {row}"


def test_the_readme_leads_here() -> None:
    assert "docs/producer-documents.md" in (ROOT / "README.md").read_text()
