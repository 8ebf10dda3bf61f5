"""Check what a machine can judge of style: docstrings, leftovers, empty names, and that each test asserts something."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for folder in ("kwire", "tests", "tools") for path in (ROOT / folder).rglob("*.py"))
PRODUCT = [path for path in SOURCES if path.is_relative_to(ROOT / "kwire")]
TESTS = [path for path in SOURCES if path.is_relative_to(ROOT / "tests")]
C_SOURCES = sorted((ROOT / "kwire").rglob("*.[ch]"))

NAMES_THAT_SAY_NOTHING = re.compile(r"(Manager|Helper|Util|Utils|Base|Common)$|^(helpers?|utils?|common|base|misc)$")
LEFTOVERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X{3}|HA" r"CK)\b|breakpoint\(\)")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@lru_cache(maxsize=1)  # one test asks several times; to keep them all would give the collector of garbage much to do
def nodes_of(path: Path) -> list[ast.AST]:
    """All of them; the first is the module."""
    return list(ast.walk(ast.parse(path.read_text())))


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_there_is_something_to_check() -> None:
    assert PRODUCT
    assert C_SOURCES


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_module(path: Path) -> None:
    module, *nodes = nodes_of(path)
    assert isinstance(module, ast.Module)
    assert ast.get_docstring(module), "a module says what it is for"
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            assert not NAMES_THAT_SAY_NOTHING.search(node.name), node.name
    assert not NAMES_THAT_SAY_NOTHING.search(path.stem)


@pytest.mark.parametrize("path", C_SOURCES, ids=name_of)
def test_c_source(path: Path) -> None:
    assert path.read_text().startswith("/*"), "a file says what it is for"


@pytest.mark.parametrize("path", [*SOURCES, *C_SOURCES], ids=name_of)
def test_nothing_is_left_over(path: Path) -> None:
    found = LEFTOVERS.search(path.read_text())
    assert found is None, found


def judges(node: ast.AST) -> bool:
    """Whether it can make a test fail, or names the errors that it allows."""
    match node:
        case ast.Assert() | ast.Name("assert_type") | ast.keyword("check", ast.Constant(True)):
            return True
        case ast.Attribute(ast.Name("pytest"), "raises" | "fail" | "warns"):
            return True
        case ast.ExceptHandler(ast.Name(error)):
            return error.endswith("Error")
    return False


def names_used(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)} | {
        name.attr for name in ast.walk(node) if isinstance(name, ast.Attribute)
    }


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_tests_judge_something_and_do_not_sleep(path: Path) -> None:
    """A test that cannot fail proves nothing: it asserts, names the errors it allows, or calls what does."""
    of_its_own = {function.name for function in functions(path) if any(map(judges, ast.walk(function)))}
    lent = {
        alias.asname or alias.name
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests")
        for alias in node.names
    }
    for function in functions(path):
        if function.name.startswith("test_") and function.name not in of_its_own:
            assert names_used(function) & (of_its_own | lent), function.name
    for node in nodes_of(path):
        match node:
            case ast.Call(ast.Name("sleep") | ast.Attribute(ast.Name("time" | "asyncio"), "sleep"), [slept, *_]):
                assert ast.unparse(slept) == "0", f"sleeps in line {node.lineno}"
