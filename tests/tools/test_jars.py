"""Test that one run of Maven fetches several artifacts, with a program in the place of Maven."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from brokers.jars import fetch_all, fetch_jars

pytestmark = pytest.mark.programs

# It copies a jar for each module of the pom, but none for a version 9, and writes down how it was called.
MAVEN = f"""#!{sys.executable}
import os, pathlib, re, sys
folder = pathlib.Path(sys.argv[sys.argv.index("-f") + 1])
modules = re.findall("<module>(.*?)</module>", (folder / "pom.xml").read_text())
with open(os.environ["CALLS"], "a") as calls:
    print(*modules, os.environ["MAVEN_OPTS"].split()[-1], file=calls)
for module in modules:
    pom = (folder / module / "pom.xml").read_text()
    if "<version>9</version>" in pom:
        sys.exit("no such version: 9")
    assert f"<artifactId>{{module.partition('-')[0]}}" in pom
    (folder / module / "target" / "dependency").mkdir(parents=True)
    (folder / module / "target" / "dependency" / "some.jar").touch()
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put such a Maven on PATH; return the file with its calls."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mvn").write_text(MAVEN)
    (tmp_path / "bin" / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("MAVEN_OPTS", "-Dproxy")
    return tmp_path / "calls"


def test_one_maven_fetches_what_is_absent(calls: Path, tmp_path: Path) -> None:
    root = tmp_path / "jars"
    assert fetch_jars("kafka", "4.3.1", root=root) == root / "kafka-4.3.1"
    wanted = [("kafka", "4.3.1"), ("streams", "1"), ("clients", "4.4.0"), ("streams", "1")]
    found = fetch_all(wanted, root=root)
    assert found == [root / name for name in ("kafka-4.3.1", "streams-1", "clients-4.4.0", "streams-1")]
    assert [[path.name for path in folder.iterdir()] for folder in found] == [["some.jar"]] * 4
    assert calls.read_text().splitlines() == ["kafka-4.3.1 -Dproxy", "streams-1 clients-4.4.0 -Dproxy"]
    assert sorted(path.name for path in root.iterdir()) == ["clients-4.4.0", "kafka-4.3.1", "streams-1"]


def test_a_failure_shows_what_maven_said_and_leaves_nothing(calls: Path, tmp_path: Path) -> None:
    root = tmp_path / "jars"
    with pytest.raises(SystemExit, match=r"could not fetch clients 4\.4\.0, streams 9:\nno such version: 9"):
        fetch_all([("clients", "4.4.0"), ("streams", "9")], root=root)
    assert [*root.iterdir()] == []
    assert fetch_all([], root=root) == []


def test_without_maven_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="run `tools/env java maven`"):
        fetch_jars("clients", "4.4.0", root=tmp_path)
