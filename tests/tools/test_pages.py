"""Test the reference of the documentation site: tables from the code, and docstrings as Markdown."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from kwire import errors
from kwire.cli.app import COMMANDS
from kwire.cluster import ClientConfig
from kwire.errors import ErrorCode
from kwire.option_checks import options_of

PAGES = Path(__file__).parents[2] / "tools" / "pages"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    specification = importlib.util.spec_from_file_location("tables", PAGES / "tables.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_option_has_a_row_with_its_default_and_unit(tables: ModuleType) -> None:
    page = tables.on_page_markdown("# Options\n\n{{ options kwire.cluster.ClientConfig }}\n")
    for name in options_of(ClientConfig):
        assert f"\n| `{name}` |" in page
    (row,) = [line for line in page.splitlines() if line.startswith("| `request_timeout_ms`")]
    assert "| `30_000 ms` | milliseconds |" in row


def test_every_error_code_has_its_usual_cause(tables: ModuleType) -> None:
    page = tables.on_page_markdown("{{ error_codes }}")
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            assert f"| {int(code)} | `{code.name}` |" in page
            assert code.usual_cause.replace("|", "\\|") in page


def test_every_error_class_has_a_row(tables: ModuleType) -> None:
    page = tables.on_page_markdown("{{ errors }}")
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.KwireError):
            assert f"`{name}` |" in page


def test_every_command_has_its_help(tables: ModuleType) -> None:
    page = tables.on_page_markdown("{{ commands }}")
    for name in COMMANDS:
        assert f"## kwire {name}\n\n```text\nUsage: kwire {name} [OPTIONS]" in page


def test_a_page_without_directives_stays_unchanged(tables: ModuleType) -> None:
    assert tables.on_page_markdown("{{ options") == "{{ options"
