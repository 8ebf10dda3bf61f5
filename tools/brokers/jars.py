"""Fetch artifacts of org.apache.kafka and their dependencies by Maven, each into a folder of its own.

A folder is `.cache/jars/<artifact>-<version>`. It is filled under another name and renamed when complete, so it is
either absent or complete, even if two processes fetch it at once. The artifact `kafka` means a broker: the Scala build
that each version is known to run with, and its missing dependencies (`_BROKERS`). `spark-sql-kafka` means Spark's own
connector without Spark, `parallel-consumer-core` Confluent's parallel consumer, `mock-oauth2-server` NAV's OIDC server
for tests. Maven handles checksums, mirrors and proxies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from brokers.java import CACHE

_GROUP = "org.apache.kafka"
_MAVEN_TIMEOUT_S = 900

# The log back end for versions that bring none for slf4j. Old ZooKeepers need the classes of log4j 1.
_SLF4J_SIMPLE = "org.slf4j:slf4j-simple:1.7.36"
_SLF4J_LOG4J = "org.slf4j:slf4j-log4j12:1.7.25"

# By version prefix, the most specific first: the artifact of the broker and its missing dependencies.
_BROKERS: Sequence[tuple[tuple[int, ...], str, tuple[str, ...]]] = (
    ((0, 8), "kafka_2.11", ()),
    ((0, 9), "kafka_2.11", ()),
    ((0, 10), "kafka_2.11", ("javax.xml.bind:jaxb-api:2.3.1",)),
    ((0, 11), "kafka_2.12", ("javax.xml.bind:jaxb-api:2.3.1",)),
    ((1,), "kafka_2.11", ("javax.xml.bind:jaxb-api:2.3.1", _SLF4J_LOG4J)),
    ((2,), "kafka_2.13", (_SLF4J_LOG4J,)),
    ((3,), "kafka_2.13", ("org.apache.kafka:kafka-tools:{version}",)),
    ((4, 4), "kafka_2.13", (_SLF4J_SIMPLE,)),  # its kafka-tools are not published
    ((4,), "kafka_2.13", (_SLF4J_SIMPLE, "org.apache.kafka:kafka-tools:{version}")),
)

# Missing dependencies: kafka-clients has the JSON converters of messages, but not the JSON library.
_BESIDE = {"kafka-clients": ("com.fasterxml.jackson.core:jackson-databind:2.19.4",)}

# Spark's own connector. Maven's repository has its dependency for delegation tokens in this version only.
_SPARK = "org.apache.spark"
_SPARK_TOKENS = f"{_SPARK}:spark-token-provider-kafka-0-10_2.13:4.0.0"

_OIDC_SERVER = "no.nav.security"
_PARALLEL_CONSUMER = "io.confluent.parallelconsumer"

# Never on the class path: kafka-tools depends on all of Kafka Connect and its web server, the old artifacts on JMX jars
# that were never published.
_EXCLUSIONS = (
    (_GROUP, "connect-api"),
    (_GROUP, "connect-json"),
    (_GROUP, "connect-runtime"),
    ("com.sun.jdmk", "jmxtools"),
    ("com.sun.jmx", "jmxri"),
    ("javax.jms", "jms"),
    ("org.apache.hadoop", "*"),  # Spark has its own
    (_SPARK, "spark-token-provider-kafka-0-10_2.13"),  # of another version
)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return a version as a tuple that compares: (0, 8, 2, 2) for "0.8.2.2"."""
    return tuple(int(part) for part in version.split("."))


def coordinates(artifact: str, version: str) -> list[str]:
    """Return `group:artifact:version` of all that an artifact of Kafka needs, itself first."""
    if artifact == "spark-sql-kafka":
        return [f"{_SPARK}:spark-sql-kafka-0-10_2.13:{version}", _SPARK_TOKENS]
    if artifact == "parallel-consumer-core":
        return [f"{_PARALLEL_CONSUMER}:{artifact}:{version}"]
    if artifact == "mock-oauth2-server":
        return [f"{_OIDC_SERVER}:{artifact}:{version}"]
    if artifact != "kafka":
        return [f"{_GROUP}:{artifact}:{version}", *_BESIDE.get(artifact, ())]
    numbers = version_numbers(version)
    for start, name, beside in _BROKERS:
        if numbers[: len(start)] == start:
            return [f"{_GROUP}:{name}:{version}", *(item.format(version=version) for item in beside)]
    raise SystemExit(f"no broker of version {version} is known: add it to _BROKERS in {__file__}")


def fetch_jars(artifact: str, version: str, *, root: Path = CACHE / "jars") -> Path:
    """Return the folder of an artifact's jars; fetch them if absent. Raises SystemExit with Maven's output."""
    return fetch_all([(artifact, version)], root=root)[0]


def fetch_all(wanted: Sequence[tuple[str, str]], *, root: Path = CACHE / "jars") -> list[Path]:
    """Return the folders of several artifacts, (name, version), and fetch those that are absent in one run of Maven.

    Raises SystemExit with Maven's output.
    """
    targets = {(artifact, version): root / f"{artifact}-{version}" for artifact, version in wanted}
    absent = [name for name, target in targets.items() if not target.is_dir()]
    if absent:
        maven = shutil.which("mvn")
        if maven is None:
            raise SystemExit("mvn (Maven) is not on PATH: run `tools/env java maven`, or install it")
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".fetching-") as scratch:
            folders = _run_maven(maven, absent, Path(scratch))
            for name, folder in zip(absent, folders, strict=True):
                try:
                    os.rename(folder, targets[name])
                except OSError:
                    # Another process was faster. A rename cannot replace a folder with files, and theirs is complete.
                    if not targets[name].is_dir():
                        raise
    return [targets[name] for name in wanted]


def _run_maven(maven: str, wanted: Sequence[tuple[str, str]], scratch: Path) -> list[Path]:
    """Let one Maven copy the jars of each artifact to a folder in `scratch`; return these folders."""
    modules = [f"{artifact}-{version}" for artifact, version in wanted]
    for module, name in zip(modules, wanted, strict=True):
        (scratch / module).mkdir()
        (scratch / module / "pom.xml").write_text(_pom(module, _dependencies(coordinates(*name))))
    listed = "".join(f"<module>{module}</module>" for module in modules)
    (scratch / "pom.xml").write_text(_pom("all", f"<packaging>pom</packaging><modules>{listed}</modules>"))
    said = ", ".join(" ".join(name) for name in wanted)
    print(f"fetching {said} by Maven", file=sys.stderr)
    # With the first compiler alone, what comes by TLS would take half as much CPU time again.
    options = f"-XX:+UseSerialGC {os.environ.get('MAVEN_OPTS', '')}"
    done = subprocess.run(
        [maven, "-q", "-B", "-f", str(scratch), "dependency:copy-dependencies", "-DincludeScope=runtime"],
        env={**os.environ, "MAVEN_OPTS": options},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S, check=False,
    )  # fmt: skip
    folders = [scratch / module / "target" / "dependency" for module in modules]
    if done.returncode or not all(any(folder.glob("*.jar")) for folder in folders):
        raise SystemExit(f"Maven could not fetch {said}:\n{done.stdout}{done.stderr}")
    return folders


def _dependencies(wanted: Sequence[str]) -> str:
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        for group, artifact in _EXCLUSIONS
    )
    listed = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
        "<exclusions>{}</exclusions></dependency>".format(*map(escape, item.split(":")), exclusions)
        for item in wanted
    )
    return f"<dependencies>{listed}</dependencies>"


def _pom(name: str, content: str) -> str:
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        f"<groupId>kwire</groupId><artifactId>{name}</artifactId><version>1</version>{content}</project>"
    )


def main(arguments: Sequence[str]) -> int:
    if len(arguments) % 2 or not arguments or arguments[0].startswith("-"):
        print(
            "usage: tools/jars ARTIFACT VERSION [ARTIFACT VERSION]...\n\n"
            "Fetches org.apache.kafka:ARTIFACT:VERSION and what it needs into .cache/jars/ARTIFACT-VERSION by Maven,\n"
            "unless it is there, and prints that folder. To fetch several in one run of Maven saves most of the time.\n"
            "ARTIFACT `kafka` is a broker with what it needs to run:\n"
            "  tools/jars kafka 4.3.1\n  tools/jars kafka-clients 4.4.0",
            file=sys.stderr,
        )
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    print(*fetch_all([*zip(arguments[::2], arguments[1::2], strict=True)]), sep="\n")
    return 0
