"""The page "Coming from kcat and kcl": each command and option that it names exists; no flag of kcat is left out."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from kwire.cli.app import kwire
from tests.conftest import missing

_PAGE = Path(__file__).parents[2] / "docs" / "howto" / "kcat.md"
# Of kcat's help: what the page says is not there.
_LEFT_OUT = {"-s"}


def rows() -> list[list[str]]:
    lines = [line for line in _PAGE.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("| for")]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that the words name, and the words after its name."""
    context = click.Context(kwire)
    command: click.Command = kwire
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no command {words[0]}"
        command, words = found, words[1:]
    return command, words


def options_of(command: click.Command) -> set[str]:
    found = command.get_params(click.Context(command))  # --help included
    return {name for one in found if isinstance(one, click.Option) for name in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_what_kwire_is_said_to_have_exists(row: list[str]) -> None:
    texts = quoted(row[3])
    assert texts, "the row names nothing of kwire"
    known: set[str] = set()
    for text in texts:
        words = text.split()
        if words[0] == "kwire":
            command, words = command_of(words[1:])
            known = options_of(command)
        for word in words:
            if re.fullmatch(r"-vv|-[A-Za-z]|--[a-z-]+", word):
                assert (word[:2] if word == "-vv" else word) in known, f"{text}: there is no {word}"


def test_no_flag_of_kcat_is_left_out() -> None:
    if shutil.which("kcat") is None:
        missing("kcat is not installed: `tools/env peers` installs it")
    text = subprocess.run(["kcat", "-h"], capture_output=True, text=True, check=False)
    flags = set(re.findall(r"^  (-[A-Za-z])\b", text.stdout + text.stderr, re.MULTILINE)) | {"-P", "-L", "-Q"}
    named = {flag for row in rows() for flag in re.findall(r"(?<![\w-])-[A-Za-z]\b", row[1])}
    assert flags - _LEFT_OUT - named == {"-b"}
