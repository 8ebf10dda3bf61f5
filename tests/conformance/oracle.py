"""Kafka's own message classes and schemas, out of the kafka-clients jars that `tools/jars` fetches.

A version of a message is judged by the newest release that still has it: 4.x dropped old versions, and 3.x older ones.
"""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

RELEASES = ("4.4.0", "3.9.1", "2.8.2")  # newest first
_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 300


@functools.cache
def jars(release: str) -> Path:
    """The folder with the kafka-clients jar of a release and what it needs. Skips the test where it cannot be had."""
    needed("mvn")
    command = [sys.executable, str(_ROOT / "tools" / "jars"), "kafka-clients", release]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        unavailable(f"kafka-clients {release} could not be fetched: {done.stderr.strip()}")
    return Path(done.stdout.strip())


def needed(program: str) -> str:
    """The path of a program without which the test means nothing."""
    path = shutil.which(program)
    if path is None:
        unavailable(f"{program} is not on PATH: tools/env java maven")
    assert path
    return path


def unavailable(reason: str) -> None:
    """A skip on a laptop; in CI what is missing is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@functools.cache
def schemas(release: str) -> dict[str, Any]:
    """Kafka's schemas of a release by message name, those without any version left out."""
    found = {}
    with zipfile.ZipFile(jars(release) / f"kafka-clients-{release}.jar") as jar:
        for name in jar.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                schema = _parse(jar.read(name).decode())
                if versions(schema.get("validVersions", "none")):
                    found[schema["name"]] = schema
    return found


def _parse(text: str) -> Any:
    without_comments = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE).lstrip()
    return json.JSONDecoder(strict=False).raw_decode(without_comments)[0]


def versions(text: str | None, valid: range = range(2**15)) -> range:
    """"3+", "1-4", "2" or "none", cut to what is valid."""
    if text is None or text == "none":
        return range(0)
    first, dash, last = text.rstrip("+").partition("-")
    stop = valid.stop if text.endswith("+") else int(last if dash else first) + 1
    return range(max(int(first), valid.start), min(stop, valid.stop))


def release_of(name: str, version: int) -> str | None:
    """The newest release whose schema of the message has the version."""
    for release in RELEASES:
        schema = schemas(release).get(name)
        if schema and version in versions(schema["validVersions"]):
            return release
    return None


@dataclass(frozen=True)
class Question:
    """A message as JSON text or as hex, to be read by Kafka's class."""

    kind: str
    name: str
    version: int
    text: str


@dataclass(frozen=True)
class Answer:
    """What Kafka's class wrote after reading it: bytes and JSON, or why it would not."""

    data: bytes
    obj: Any
    error: str | None = None


def ask(release: str, questions: Sequence[Question]) -> list[Answer]:
    """Have one JVM answer all questions."""
    lines = [f"{q.kind}\t{_java_class(release, q.name)}\t{q.version}\t{q.text}" for q in questions]
    return [_answer(line) for line in _run(release, lines)]


def header_versions(release: str, apis: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The versions of the request's and the response's header, for each (API key, version)."""
    answers = _run(release, [f"header\t{key}\t{version}\t" for key, version in apis])
    found = []
    for answer in answers:
        status, *versions_found = answer.split("\t")
        assert status == "ok", answer
        found.append((int(versions_found[0]), int(versions_found[1])))
    return found


def _run(release: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    command = [needed("java"), "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{jars(release)}/*"]
    done = subprocess.run(
        [*command, str(Path(__file__).with_name("Oracle.java"))],
        input="".join(f"{line}\n" for line in lines).encode(), capture_output=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    answers = done.stdout.decode().split("\n")[:-1]
    assert len(answers) == len(lines)
    return answers


def _answer(line: str) -> Answer:
    status, *rest = line.split("\t")
    if status != "ok":
        return Answer(b"", None, rest[0])
    return Answer(bytes.fromhex(rest[0]), json.loads(rest[1]))


def _java_class(release: str, name: str) -> str:
    return name if schemas(release)[name]["type"] == "data" else f"{name}Data"
