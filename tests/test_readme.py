"""Every example in the documents runs as it stands, and the files that they name exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(ROOT.glob("*.md"))
README = (ROOT / "README.md").read_text()


def examples(language: str) -> list[tuple[str, str]]:
    found = []
    for document in DOCUMENTS:
        blocks = re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)
        found += [(f"{document.name}-{number}", block) for number, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize(("name", "source"), examples("python"), ids=lambda value: value if "\n" not in value else "")
def test_python_example_runs(name: str, source: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split()[0] == "1001"


def test_the_first_example_is_twenty_lines() -> None:
    code = [line for line in examples("python")[0][1].splitlines() if line.strip()]
    assert 15 <= len(code) <= 22


def test_files_that_the_documents_name_exist() -> None:
    folder = ""
    for line in README.splitlines():
        for name in re.findall(r"`((?:kwire|tests|tools|fixtures)?/?[\w/]+(?:\.py|/))`", line):
            path = ROOT / name if "/" in name.rstrip("/") or (ROOT / name).exists() else ROOT / folder / name
            if name.startswith(("kwire/", "tests/", "tools/")):
                folder = name.rpartition("/")[0]
            assert path.exists(), f"{name} in: {line}"


def test_every_room_is_on_the_map() -> None:
    rooms = {path.parent.name for path in (ROOT / "kwire").glob("*/__init__.py")}
    mapped = set(re.findall(r"^\| `kwire/(\w+)/` ", README, re.MULTILINE))
    assert mapped == rooms
