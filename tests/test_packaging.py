"""The contents of the source archive and the wheels, and the wheel's tag with and without C."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.conftest import missing

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".*", "build", "dist", "site", "fixtures", "*.egg-info", "*.so", "__pycache__", "spark-warehouse"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(ROOT, tmp_path_factory.mktemp("packaging") / "source", ignore=LEFT_OUT)


def build(source: Path, hook: str, where: Path, **environment: str) -> Path:
    """Call the build backend as pip does, but in this environment: nothing is fetched."""
    shutil.rmtree(source / "build", ignore_errors=True)
    program = f"from setuptools import build_meta; print(build_meta.{hook}({str(where)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=source, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return where / done.stdout.splitlines()[-1]


def members(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def expect_python_only(wheel: Path) -> None:
    names = members(wheel)
    assert wheel.name.endswith("-py3-none-any.whl")
    suffixes = {Path(name).suffix for name in names if name.startswith("kwire/")}
    assert suffixes == {".py", ".typed", ".html", ".css", ".js"} | (suffixes & {".pyi"}), suffixes
    assert {"kwire/__init__.py", "kwire/py.typed", "pyspark_kwire.py"} <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"kwire", "pyspark_kwire.py"}


def test_the_build_names_every_c_source_and_no_other() -> None:
    """The extension is optional, so a build without one of its files would end without an error, and without C."""
    (extension,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    for named, suffix in ((extension["sources"], "c"), (extension["depends"], "h")):
        assert sorted(named) == sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(f"kwire/_c/*.{suffix}"))


def test_a_missing_c_source_leaves_a_wheel_that_is_pure(source: Path, tmp_path: Path) -> None:
    """That is what the test of the wheel with the accelerator would notice."""
    damaged = shutil.copytree(source, tmp_path / "damaged")
    (damaged / "kwire" / "_c" / "checksums.c").unlink()
    expect_python_only(build(damaged, "build_wheel", tmp_path, CFLAGS="-O0"))


def test_a_wheel_without_the_accelerator_is_pure(source: Path, tmp_path: Path) -> None:
    expect_python_only(build(source, "build_wheel", tmp_path, KWIRE_NO_EXTENSIONS="1"))


def test_a_wheel_built_without_a_compiler_is_pure(source: Path, tmp_path: Path) -> None:
    expect_python_only(build(source, "build_wheel", tmp_path, CC="false"))


def test_a_wheel_with_the_accelerator_has_it_and_none_of_its_sources(source: Path, tmp_path: Path) -> None:
    if not shutil.which("cc") and not shutil.which("gcc"):
        missing("there is no C compiler")
    wheel = build(source, "build_wheel", tmp_path, CFLAGS="-O0")
    assert "-cp311-abi3-" in wheel.name
    names = members(wheel)
    assert any("_speedups" in name and name.endswith((".so", ".pyd")) for name in names)
    assert [name for name in names if name.endswith((".c", ".h"))] == []


def test_the_source_archive_has_the_documents_and_builds_the_same_wheel(source: Path, tmp_path: Path) -> None:
    # Python 3.11.0 to 3.11.3 lack tarfile's filters, without which 3.12 and 3.13 warn.
    subprocess.run(["tar", "-xf", build(source, "build_sdist", tmp_path), "-C", tmp_path], check=True)
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    names = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    documents = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert {"README.md", "CHANGELOG.md", "LICENSE", "CONTRIBUTING.md", "SECURITY.md", *documents} <= names
    c_sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "kwire").rglob("*.[ch]")}
    assert c_sources <= names
    assert [name for name in names if name.startswith(("tests/", "tools/", "fixtures/"))] == []
    (tmp_path / "again").mkdir()
    (tmp_path / "first").mkdir()
    of_archive = build(unpacked, "build_wheel", tmp_path / "again", KWIRE_NO_EXTENSIONS="1")
    of_tree = build(source, "build_wheel", tmp_path / "first", KWIRE_NO_EXTENSIONS="1")
    assert sorted(members(of_archive)) == sorted(members(of_tree))
