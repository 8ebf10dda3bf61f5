"""kwire on clusters where it is not installed: from a zip in --py-files, without its C part; and by Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest
from chaos_runs.spark_job import SETTINGS

from kwire.broker import Cluster
from tests.conftest import missing
from tests.spark import cluster_job
from tests.spark.cluster_job import ROWS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(240, func_only=True),  # a JVM may need long to start
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 1}) as cluster:
        yield cluster


def test_from_a_zip_without_a_compiler(cluster: Cluster, tmp_path: Path) -> None:
    archive = tmp_path / "kwire.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for path in sorted((ROOT / "kwire").rglob("*.py")):
            made.write(path, path.relative_to(ROOT))
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [
            submit, "--master", "local[1]", "--py-files", archive, *options, cluster_job.__file__, cluster.bootstrap,
            "t",
        ],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(Path(pyspark.__file__).parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["values"] == list(range(ROWS))
    assert not found["has_c"]
    for file in (found["file"], found["driver"]):
        assert file.endswith("kwire.zip/kwire/__init__.py"), "kwire is not that of the zip"


def test_by_spark_connect(cluster: Cluster, tmp_path: Path) -> None:
    """Needs pyspark[connect]. A process of its own: a session of Connect and one without it exclude each other."""
    if find_spec("grpc") is None or find_spec("grpc_status") is None:
        missing("no grpc for Spark Connect: install pyspark[connect]")
    code = """
import json
import sys
from pyspark.sql import SparkSession
from tests.spark.cluster_job import work

builder = SparkSession.builder.remote("local[1]")
for name, value in json.loads(sys.argv[3]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
print(type(spark).__module__)
print(json.dumps(work(spark, sys.argv[1], sys.argv[2])))
spark.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, cluster.bootstrap, "t", json.dumps(SETTINGS)],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    module, text = done.stdout.splitlines()[-2:]
    assert module == "pyspark.sql.connect.session"
    assert json.loads(text)["values"] == list(range(ROWS))
