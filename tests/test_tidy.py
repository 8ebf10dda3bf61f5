"""The style that a machine can judge: sizes, docstrings, leftovers, names that say nothing.

After TigerBeetle's tidy: rules that are not checked are wishes.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for folder in ("kwire", "tests", "tools") for path in (ROOT / folder).rglob("*.py"))
PRODUCT = [path for path in SOURCES if path.is_relative_to(ROOT / "kwire")]

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
NAMES_THAT_SAY_NOTHING = re.compile(r"(Manager|Helper|Util|Utils|Base|Common)$|^(helpers?|utils?|common|base|misc)$")
LEFTOVERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X{3}|HA" r"CK)\b|breakpoint\(\)")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_there_is_something_to_check() -> None:
    assert len(PRODUCT) > 50


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_module(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says what it owns"
    assert text.count("\n") <= MODULE_LINES_MAX, "one idea per file"
    for function in functions(path):
        body = function.body
        start = body[0].end_lineno if ast.get_docstring(function) else function.lineno
        length = (function.end_lineno or 0) - (start or 0)
        assert length <= FUNCTION_LINES_MAX, f"{function.name} has {length} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            assert not NAMES_THAT_SAY_NOTHING.search(node.name), node.name
    assert not NAMES_THAT_SAY_NOTHING.search(path.stem)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_is_left_over(path: Path) -> None:
    found = LEFTOVERS.search(path.read_text())
    assert found is None, found


JUDGES = re.compile(r"\bassert(_type)?\b|pytest\.(raises|fail|warns)|\bexcept \w+Error\b|check=True")


def names_used(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)} | {
        name.attr for name in ast.walk(node) if isinstance(name, ast.Attribute)
    }


@pytest.mark.parametrize("path", [path for path in SOURCES if path.name.startswith("test_")], ids=name_of)
def test_tests_judge_something(path: Path) -> None:
    """A test that cannot fail proves nothing: it asserts, names the errors it allows, or calls what does."""
    judges = {function.name for function in functions(path) if JUDGES.search(ast.unparse(function))}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            judges |= {alias.asname or alias.name for alias in node.names}
    for function in functions(path):
        if function.name.startswith("test_") and function.name not in judges:
            assert names_used(function) & judges, function.name


def test_tests_do_not_sleep() -> None:
    for path in SOURCES:
        if path.is_relative_to(ROOT / "tests"):
            slept = [
                node.lineno
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("time.sleep", "sleep", "asyncio.sleep")
                and ast.unparse(node.args[0]) != "0"
            ]
            assert not slept, f"{name_of(path)}: {slept}"
