"""Kafka's own message classes and schemas, out of the jars of clients and brokers that `tools/jars` fetches.

A version of a message is judged by the newest release that still has it: 4.x dropped old versions, and 3.x older ones.
Requests and responses are in the clients' jar, the records of topics and logs in those of coordinators and controllers.
"""

import functools
import json
import re
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import fetched, missing
from tests.java_program import JavaProgram

RELEASES = ("4.4.0", "3.9.1", "2.8.2")  # newest first
_programs: list[JavaProgram] = []


# The artifacts whose jars have a release's messages. The newest broker is not on Maven as a whole, its parts are.
_ARTIFACTS = {
    "4.4.0": ("kafka-clients", "kafka-group-coordinator", "kafka-share-coordinator", "kafka-transaction-coordinator"),
    "3.9.1": ("kafka-clients", "kafka"),
    "2.8.2": ("kafka-clients", "kafka"),
}

# Where schemas stand in a jar. 2.8's metadata log was an early access, whose records no other release reads; they are
# not declared.
_SCHEMA = re.compile(r"(common/)?message/\w+\.json|common/metadata/\w+\.json")
_NOT_DECLARED = re.compile(r"kafka-metadata-2\.8\.2\.jar")


@functools.cache
def jars(release: str) -> Sequence[Path]:
    """Return the folders with a release's jars and dependencies; skip the test if they are not available."""
    return [_fetched(artifact, release) for artifact in _ARTIFACTS[release]]


def _fetched(artifact: str, release: str) -> Path:
    needed("mvn")
    return fetched(artifact, release)


def needed(program: str) -> str:
    """Return the path of a program that the test requires."""
    path = shutil.which(program)
    if path is None:
        missing(f"{program} is not on PATH: tools/env java maven")
    return path


@functools.cache
def schemas(release: str) -> dict[str, Any]:
    """Return Kafka's schemas of a release by message name, without those that have no version."""
    found = {}
    for jar in _own_jars(release):
        if _NOT_DECLARED.fullmatch(jar.name):
            continue
        with zipfile.ZipFile(jar) as entries:
            for name in filter(_SCHEMA.fullmatch, entries.namelist()):
                schema = _parse(entries.read(name).decode())
                if versions(schema.get("validVersions", "none")):
                    found[schema["name"]] = _with_type_apart(schema)
    return found


@functools.cache
def _classes(release: str) -> dict[str, str]:
    """Return the full names of all Kafka classes with a JSON converter, by simple name."""
    found = {}
    for jar in _own_jars(release):
        with zipfile.ZipFile(jar) as entries:
            for name in entries.namelist():
                path = name.removesuffix("JsonConverter.class")
                if path != name:
                    found[path.rpartition("/")[2]] = path.replace("/", ".")
    return found


def _own_jars(release: str) -> list[Path]:
    """The jars of Kafka itself, each once: the artifacts share some."""
    return sorted({jar.name: jar for folder in jars(release) for jar in folder.glob("kafka*.jar")}.values())


def _with_type_apart(schema: Any) -> Any:
    """Before 4.0 the version of a coordinator's key was what is its type now: give it the key, and version 0."""
    if not schema["name"].endswith("Key") or schema["type"] != "data":
        return schema
    valid = versions(schema["validVersions"])
    fields = [{**field, "versions": "0"} for field in schema["fields"]]
    return {**schema, "validVersions": "0", "apiKey": valid[-1], "type": "coordinator-key-of-old", "fields": fields}


def _parse(text: str) -> Any:
    without_comments = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE).lstrip()
    return json.JSONDecoder(strict=False).raw_decode(without_comments)[0]


def versions(text: str | None, valid: range = range(2**15)) -> range:
    """ "3+", "1-4", "2" or "none", cut to what is valid."""
    if text is None or text == "none":
        return range(0)
    first, dash, last = text.rstrip("+").partition("-")
    stop = valid.stop if text.endswith("+") else int(last if dash else first) + 1
    return range(max(int(first), valid.start), min(stop, valid.stop))


def release_of(name: str, version: int) -> str | None:
    """Return the newest release whose schema of the message has the version."""
    for release in RELEASES:
        schema = schemas(release).get(name)
        if schema and version in versions(schema["validVersions"]):
            return release
    return None


@dataclass(frozen=True)
class Question:
    """A message as JSON text or hex, for Kafka's class to read."""

    kind: str
    name: str
    version: int
    text: str


@dataclass(frozen=True)
class Answer:
    """What Kafka's class wrote after it read the message: bytes and JSON, or its error."""

    data: bytes
    obj: Any
    error: str | None = None


def ask(release: str, questions: Sequence[Question]) -> list[Answer]:
    """Return the results of a release's Kafka classes, one per question."""
    lines = [f"{q.kind}\t{_java_class(release, q.name)}\t{_java_version(release, q)}\t{q.text}" for q in questions]
    return [_answer(line) for line in filtered(release, "Oracle.java", lines)]


def header_versions(release: str, apis: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the header versions of request and response for each (API key, version)."""
    responses = filtered(release, "Oracle.java", [f"header\t{key}\t{version}\t" for key, version in apis])
    found = []
    for response in responses:
        status, *versions_found = response.split("\t")
        assert status == "ok", response
        found.append((int(versions_found[0]), int(versions_found[1])))
    return found


def filtered(release: str, program: str, lines: Sequence[str]) -> list[str]:
    """Return the output lines of a Java program, one for each of `lines`."""
    if not lines:
        return []
    responses = _program(release, program).ask(lines)
    assert len(responses) == len(lines)
    return responses


@functools.cache
def _program(release: str, program: str) -> JavaProgram:
    needed("java")
    _programs.append(JavaProgram(jars(release), Path(__file__).with_name(program)))
    return _programs[-1]


def end_programs() -> None:
    _program.cache_clear()
    while _programs:
        _programs.pop().close()


def _answer(line: str) -> Answer:
    status, *rest = line.split("\t")
    if status != "ok":
        return Answer(b"", None, rest[0])
    return Answer(bytes.fromhex(rest[0]), json.loads(rest[1]))


def _java_class(release: str, name: str) -> str:
    found = _classes(release)
    return found[name] if name in found else found[f"{name}Data"]


def _java_version(release: str, question: Question) -> int:
    schema = schemas(release)[question.name]
    version: int = schema["apiKey"] if schema["type"] == "coordinator-key-of-old" else question.version
    return version
