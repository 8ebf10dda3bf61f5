"""Set up all tests: put tools/ on the path, and make missing programs a failure in CI."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from brokers.class_archive import spark_environment
from brokers.jars import fetch_jars
from brokers.java import find_java

from tests.spark_sessions import SparkPython, spark_python, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def missing(what: str) -> NoReturn:
    """Skip the test, because `what` is missing; in CI, fail it."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}, and CI skips nothing", pytrace=False)
    pytest.skip(what)


def fetched(artifact: str, version: str) -> Path:
    """Return the folder of an artifact's jars; if Maven cannot fetch them, they are missing."""
    try:
        return fetch_jars(artifact, version)
    except SystemExit as error:
        missing(f"{artifact} {version} could not be fetched: {error}")


def pytest_collection_finish() -> None:
    # The collected tests, hundreds of thousands of objects, live to the end: exclude them from garbage collection.
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    # A shell makes background programs and their children ignore SIGINT, but some tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if find_java() is not None:
        os.environ.update(spark_environment())


@pytest.fixture(scope="session")
def python_with_spark() -> Iterator[SparkPython]:
    with spark_python() as python:
        yield python


@pytest.fixture(scope="session")
def strike_order(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file that says at which step a worker of the session `spark` is killed."""
    return tmp_path_factory.mktemp("strike") / "order"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, strike_order: Path) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("warehouse"), strike_order) as session:
        yield session
