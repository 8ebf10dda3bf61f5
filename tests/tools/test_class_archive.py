"""Class archives: named for the Java that wrote them, and used only if they are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from brokers import class_archive, java


@pytest.fixture
def a_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "lib" / "modules").touch()
    (home / "bin" / "java").touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(java, "CACHE", tmp_path / "cache")
    return home


def test_a_command_uses_the_archive_of_its_jars(a_java: Path, tmp_path: Path) -> None:
    def command(*, is_brief: bool = True) -> str:
        return " ".join(
            java.java_command(tmp_path / "kafka-1.0", "Main", [], heap_mb=64, log4j=tmp_path, is_brief=is_brief)
        )

    assert "SharedArchiveFile" not in command()
    path = java.archive("kafka-1.0")
    path.parent.mkdir(parents=True)
    path.touch()
    assert f"-XX:SharedArchiveFile={path}" in command()
    assert "SharedArchiveFile" not in command(is_brief=False)  # benchmarks run as users do


def test_each_java_has_its_own_archive(a_java: Path) -> None:
    before = java.archive("kafka-1.0")
    assert java.archive("kafka-1.0") == before
    (a_java / "lib" / "modules").unlink()
    assert java.archive("kafka-1.0") != before


def test_an_archive_that_could_not_be_written_is_not_there(a_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str, **options: Sequence[str]) -> None:
        (option,) = [one for one in options["java_options"] if "ArchiveClassesAtExit" in one]
        Path(option.partition("=")[2]).write_bytes(b"half")
        raise RuntimeError("the broker ended")

    monkeypatch.setattr(class_archive, "KafkaCluster", fail)
    with pytest.raises(RuntimeError, match="the broker ended"):
        class_archive.make_kafka_archive("1.0")
    path = java.archive("kafka-1.0")
    assert list(path.parent.iterdir()) == []
