"""Make archives of the classes that brokers and Spark load, so that further JVMs start in about half the time.

A JVM that is told to writes the classes it has loaded into an archive when it ends (JEP 350). `java_command` and
`spark_environment` name the archive to every later JVM. Without an archive everything works, only slower.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from brokers.cluster import NEWEST, KafkaCluster
from brokers.java import BRIEF_OPTIONS, archive, reading

# Those of which tests start several brokers.
_VERSIONS = (NEWEST, "3.9.1", "2.8.2")

_SPARK_JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(100).selectExpr("id % 7 AS key", "CAST(id AS STRING) AS text", "CAST('x' AS BINARY) AS bytes")
rows.groupBy("key").count().orderBy("key").collect()
spark.stop()
"""


def make_kafka_archive(kafka: str) -> Path:
    """Return the class archive of a broker's jars. If it does not exist, run a broker to make it."""

    def run(options: Sequence[str]) -> None:
        with KafkaCluster(kafka, sasl=True, java_options=options) as cluster:
            cluster.commands.create_topic("archive")
            cluster.commands.produce("archive", [b"value"])
            cluster.stop_node(1)

    return _make(archive(f"kafka-{kafka}"), run)


def make_spark_archive(python: str = sys.executable) -> Path:
    """Return the class archive of the jars of a Python's pyspark. If it does not exist, run a job to make it."""

    def run(options: Sequence[str]) -> None:
        options = [*BRIEF_OPTIONS, *options]
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": " ".join(options), "PYSPARK_PYTHON": python}
        with tempfile.NamedTemporaryFile("w", suffix=".py") as job:
            job.write(_SPARK_JOB)
            job.flush()
            # spark-submit ends after its JVM; a JVM that Python starts ends some time after Python.
            command = [str(Path(python).with_name("spark-submit")), job.name]
            subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)

    return _make(_spark_archive(python), run)


def spark_environment(python: str = sys.executable) -> dict[str, str]:
    """Return the environment variables that let a Spark of a test start faster."""
    return {"SPARK_SUBMIT_OPTS": " ".join([*BRIEF_OPTIONS, *reading(_spark_archive(python))])}


def spark_version(python: str = sys.executable) -> str:
    """Return the version of a Python's pyspark. Raises CalledProcessError if it has none."""
    if python == sys.executable:
        return version("pyspark")
    command = [python, "-c", "from importlib.metadata import version; print(version('pyspark'))"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _spark_archive(python: str) -> Path:
    return archive(f"spark-{spark_version(python)}")


def _make(path: Path, run: Callable[[Sequence[str]], None]) -> Path:
    """Let `run` start a JVM with options that write `path`. Another process never sees half an archive."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            written = Path(folder, path.name)
            run([f"-XX:ArchiveClassesAtExit={written}", "-Xlog:cds=off,cds+dynamic=off,class+path=off"])
            written.rename(path)
    return path


def main(arguments: Sequence[str]) -> int:
    if any(name.startswith("-") for name in arguments):
        print(
            "usage: python -m brokers.class_archive [spark] [VERSION...]   (default: all that tests profit from)",
            file=sys.stderr,
        )
        return 0 if arguments[0] in ("-h", "--help") else 2
    for name in arguments or ("spark", *_VERSIONS):
        print(make_spark_archive() if name == "spark" else make_kafka_archive(name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
