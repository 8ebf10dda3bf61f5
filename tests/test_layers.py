"""Rooms depend on each other in one direction: a room imports only lower rooms, and its docstring lists them.

The order is ROOMS. Each room's `__init__` docstring ends with a line `Imports: a, b.`; the code must import no other.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

KWIRE = Path(__file__).parent.parent / "kwire"

# Bottom first. OPEN_TO_ALL are files, not rooms.
ROOMS = [
    "wire", "protocol", "records", "session", "net", "cluster", "producer", "consumer", "share", "properties", "admin",
    "queue", "aio", "metrics", "tracing", "broker", "simulation", "capture", "logs", "tap", "doctor", "lint",
    "timeline", "spark", "pipeline", "cli",
]  # fmt: skip
OPEN_TO_ALL = {"arguments", "errors", "option_checks", "option_names", "version"}
# The parts of the standard library that only `net` may touch: sockets and clocks are arguments everywhere else.
ONLY_IN_NET = {"socket", "selectors", "ssl", "time"}
# ... with the reason for each exception.
MAY_ALSO: dict[str, set[str]] = {}


def rooms_present() -> list[str]:
    return [room for room in ROOMS if (KWIRE / room / "__init__.py").exists()]


@cache
def imported_modules(path: Path) -> set[str]:
    """Absolute names of every module that a file imports, wherever in the file, TYPE_CHECKING blocks included."""
    package = ".".join(path.relative_to(KWIRE.parent).with_suffix("").parts[:-1])
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base] if base else parent)
            names.add(base)
            if base == "kwire":
                names.update(f"kwire.{alias.name}" for alias in node.names)
    return names


def rooms_imported(path: Path) -> set[str]:
    rooms = {name.split(".")[1] for name in imported_modules(path) if name.startswith("kwire.")}
    return rooms - OPEN_TO_ALL


def declared_imports(room: str) -> set[str]:
    docstring = ast.get_docstring(ast.parse((KWIRE / room / "__init__.py").read_text())) or ""
    last = " ".join(docstring[docstring.rfind("Imports: ") :].split()) if "Imports: " in docstring else ""
    assert re.fullmatch(r"Imports: .*\.", last), f"{room}/__init__.py: no closing `Imports:` line"
    listed = last.removeprefix("Imports: ").removesuffix(".")
    return set() if listed == "nothing" else {name.strip() for name in listed.split(",")}


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in KWIRE.glob("*/__init__.py")}
    assert folders <= set(ROOMS)


@pytest.mark.parametrize("room", rooms_present())
def test_room_imports_only_what_it_declares(room: str) -> None:
    declared = declared_imports(room)
    below = set(ROOMS[: ROOMS.index(room)])
    assert declared <= below, f"{room} declares an upward arrow"
    used: set[str] = set()
    for path in sorted((KWIRE / room).rglob("*.py")):
        imported = rooms_imported(path) - {room}
        assert imported <= declared, f"{path.relative_to(KWIRE)} imports {imported - declared}"
        used |= imported
    assert declared <= used, f"{room} declares rooms that it does not import: {declared - used}"


def test_the_open_files_import_no_room() -> None:
    for name in OPEN_TO_ALL:
        assert not rooms_imported(KWIRE / f"{name}.py")


@pytest.mark.parametrize("room", [room for room in rooms_present() if room != "net"])
def test_only_net_touches_sockets_and_time(room: str) -> None:
    for path in sorted((KWIRE / room).rglob("*.py")):
        touched = {name.split(".")[0] for name in imported_modules(path)} & ONLY_IN_NET
        allowed = MAY_ALSO.get(path.relative_to(KWIRE).as_posix(), set())
        assert touched <= allowed, f"{path.relative_to(KWIRE)} imports {touched - allowed}"


def test_an_upward_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself can fail: a planted upward import, absolute or relative, is found."""
    monkeypatch.setitem(globals(), "KWIRE", tmp_path / "kwire")
    room = tmp_path / "kwire" / "wire"
    room.mkdir(parents=True)
    absolute = ("from kwire.net import x", "def f():\n    import kwire.net.selector", "from kwire import net")
    for number, source in enumerate((*absolute, "from ..net import y")):
        bad = room / f"bad{number}.py"
        bad.write_text(source)
        assert rooms_imported(bad) == {"net"}, source
