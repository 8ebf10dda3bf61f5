"""Check what a machine can judge of style: docstrings, leftovers, empty names, and that each test asserts something."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for folder in ("kwire", "tests", "tools") for path in (ROOT / folder).rglob("*.py"))
PRODUCT = [path for path in SOURCES if path.is_relative_to(ROOT / "kwire")]
TESTS = [path for path in SOURCES if path.is_relative_to(ROOT / "tests")]
C_SOURCES = sorted((ROOT / "kwire").rglob("*.[ch]"))

NAMES_THAT_SAY_NOTHING = re.compile(r"(Helper|Util|Utils|Base|Common)$|^(helpers?|utils?|common|base|misc)$")
LEFTOVERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X{3}|HA" r"CK)\b|breakpoint\(\)")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def nodes_of(path: Path) -> list[ast.AST]:
    """All of them; the first is the module."""
    return list(ast.walk(ast.parse(path.read_text())))


def functions(nodes: list[ast.AST]) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_there_is_something_to_check() -> None:
    assert PRODUCT
    assert C_SOURCES


# One test per rule, which names every file that breaks the rule: a test per file would cost more than its check.


@pytest.mark.slow
def test_every_module_says_what_it_is_for() -> None:
    assert [name_of(path) for path in PRODUCT if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_every_c_source_says_what_it_is_for() -> None:
    assert [name_of(path) for path in C_SOURCES if not path.read_text().startswith("/*")] == []


@pytest.mark.slow
def test_no_name_says_nothing() -> None:
    assert [name_of(path) for path in PRODUCT if NAMES_THAT_SAY_NOTHING.search(path.stem)] == []
    classes = [
        f"{name_of(path)}: {node.name}" for path in PRODUCT for node in nodes_of(path) if isinstance(node, ast.ClassDef)
    ]
    assert [name for name in classes if NAMES_THAT_SAY_NOTHING.search(name.rpartition(" ")[2])] == []


def test_nothing_is_left_over() -> None:
    found = [(name_of(path), LEFTOVERS.search(path.read_text())) for path in [*SOURCES, *C_SOURCES]]
    assert [(name, match[0]) for name, match in found if match] == []


def judges(node: ast.AST) -> bool:
    """Return whether this can make a test fail, or names the errors that it allows."""
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


def unsound(path: Path) -> list[str]:
    """Return what is wrong with the tests of a file: tests that cannot fail, and tests that sleep.

    A test can fail if it asserts, names the errors that it allows, or calls what does.
    """
    nodes = nodes_of(path)
    of_its_own = {function.name for function in functions(nodes) if any(map(judges, ast.walk(function)))}
    lent = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests")
        for alias in node.names
    }
    found = []
    for function in functions(nodes):
        is_test = function.name.startswith("test_") and function.name not in of_its_own
        if is_test and not names_used(function) & (of_its_own | lent):
            found.append(f"{name_of(path)}: {function.name} cannot fail")
    for node in nodes:
        match node:
            case ast.Call(ast.Name("sleep") | ast.Attribute(ast.Name("time" | "asyncio"), "sleep"), [slept, *_]):
                if ast.unparse(slept) != "0":
                    found.append(f"{name_of(path)}: sleeps in line {node.lineno}")
    return found


@pytest.mark.slow
def test_tests_judge_something_and_do_not_sleep() -> None:
    assert [wrong for path in TESTS for wrong in unsound(path)] == []


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("def test_a():\n    assert 1\n", []),
        ("def test_a():\n    print(1)\n", ["test_a cannot fail"]),
        ("def check():\n    assert 1\ndef test_a():\n    check()\n", []),
        ("from tests.x import check\ndef test_a():\n    check()\n", []),
        ("import time\ndef test_a():\n    time.sleep(1)\n    assert 1\n", ["sleeps in line 3"]),
        ("import time\ndef test_a():\n    time.sleep(0)\n    assert 1\n", []),
    ],
)
def test_what_is_unsound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, wrong: list[str]) -> None:
    monkeypatch.setattr("tests.test_tidy.ROOT", tmp_path)
    file = tmp_path / "test_it.py"
    file.write_text(source)
    assert unsound(file) == [f"test_it.py: {one}" for one in wrong]


def test_a_mark_of_a_part_stands_in_the_file_or_the_conftest_of_its_folder() -> None:
    """`tools/test` gives pytest only the files in which it finds the mark: one that is imported would be missed."""
    marks = re.compile(r"mark\.(live|spark)\b")
    shared = [path for path in TESTS if not path.name.startswith("test_") and path.name != "conftest.py"]
    assert [name_of(path) for path in shared if marks.search(path.read_text())] == []
    imports = re.compile(r"import .*\bpytestmark\b")
    assert [name_of(path) for path in TESTS if imports.search(path.read_text())] == []
