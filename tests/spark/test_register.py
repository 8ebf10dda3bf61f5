"""Registration of the data source, without a JVM."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

import kwire.spark
from kwire.errors import ConfigurationError

pytestmark = pytest.mark.programs


class FakeSession:
    """As much of a SparkSession as `register` touches."""

    def __init__(self, error: Exception | None = None) -> None:
        self.dataSource = self
        self.error = error
        self.registered: list[type] = []

    def register(self, source: type) -> None:
        if self.error is not None:
            raise self.error
        self.registered.append(source)


def test_register() -> None:
    session = FakeSession()
    kwire.spark.register(session)  # type: ignore[arg-type]
    assert [source.name() for source in session.registered] == ["kwire", "kwire.capture", "kwire.log"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("condition", "is_shown"), [("DATA_SOURCE_ALREADY_EXISTS", False), ("INVALID_SOURCE", True)])
def test_only_the_error_of_a_second_registration_is_ignored(condition: str, is_shown: bool) -> None:
    """Spark 4.0 refuses a name that it has found by itself."""
    refusal = AnalysisException("no")
    refusal._errorClass = condition  # the constructor takes only known ones
    with pytest.raises(AnalysisException) if is_shown else nullcontext() as caught:
        kwire.spark.register(FakeSession(refusal))  # type: ignore[arg-type]
    assert (caught is not None) == is_shown


def test_spark_looks_for_a_default_source() -> None:
    import pyspark_kwire

    assert pyspark_kwire.DefaultSource is kwire.spark.KwireDataSource


def test_without_pyspark_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kwire.spark.source", None)
    with pytest.raises(ConfigurationError, match=r"needs PySpark 4.0 or later .*: pip install kwire\[spark\]"):
        kwire.spark.register(FakeSession())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "rooms"),
    [
        ("", set()),
        ("source.streamWriter(schema, False)", set()),
        ("source.reader(StructType())", {"kwire.consumer"}),
    ],
)
def test_a_planning_process_imports_no_client_that_it_does_not_need(step: str, rooms: set[str]) -> None:
    """Spark starts a new process for each step of a query; most need no client."""
    code = f"""
import subprocess
import sys
from pyspark.sql.types import StringType, StructType
from kwire.spark import KwireDataSource
schema = StructType().add("value", StringType())
source = KwireDataSource({{"kafka.bootstrap.servers": "b:1", {"'topic'" if "Writer" in step else "'subscribe'"}: "t"}})
{step}
print(*{{"kwire.consumer", "kwire.producer", "kwire.admin"}} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == rooms


def test_the_extra_has_what_python_functions_need() -> None:
    """Spark runs UDFs by Arrow, and says that Arrow failed where pandas is not installed."""
    config = ConfigParser()
    config.read(Path(__file__).parents[2] / "setup.cfg")
    names = {line.split(">")[0] for line in config["options.extras_require"]["spark"].split()}
    assert names == {"pandas", "pyarrow", "pyspark"}
