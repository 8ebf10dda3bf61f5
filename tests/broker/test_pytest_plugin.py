"""The fixture `kafka_cluster`, in test files that another pytest runs."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.programs


def run(folder: Path, source: str) -> tuple[dict[str, int], str]:
    """Return how many tests passed, failed and had errors, and the output."""
    (folder / "test_it.py").write_text(source)
    # Load only this plugin, by its module: the installed metadata may be older than setup.cfg.
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-p", "kwire.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--strict-markers", "-q", "test_it.py"], cwd=folder, env=env, capture_output=True, text=True
    )
    last = done.stdout.strip().splitlines()[-1]
    counted = re.findall(r"(\d+) (passed|failed|error)", last)
    return {word: int(number) for number, word in counted}, done.stdout


def test_the_documented_example_works(tmp_path: Path) -> None:
    (example,) = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "howto" / "test.md").read_text(), re.DOTALL)
    counts, printed = run(tmp_path, example)
    assert counts == {"passed": 2}, printed


def test_the_nearest_marker_wins(tmp_path: Path) -> None:
    source = """
import pytest

pytestmark = pytest.mark.kafka_cluster(brokers=2, topics={"t": 2})

def test_of_the_module(kafka_cluster):
    assert len(kafka_cluster.brokers) == 2

@pytest.mark.kafka_cluster(brokers=3)
def test_of_its_own(kafka_cluster):
    assert len(kafka_cluster.brokers) == 3
    assert kafka_cluster.leader("t", 1) in (1, 2, 3)
"""
    counts, printed = run(tmp_path, source)
    assert counts == {"passed": 2}, printed


def test_bugs_of_the_brokers_and_wrong_options_fail_the_test(tmp_path: Path) -> None:
    source = """
import pytest

def test_a_broker_with_a_bug(kafka_cluster):
    kafka_cluster.call(lambda state, now: state.timers.at(now, lambda now: 1 / 0))
    kafka_cluster.call(lambda state, now: None)
    while not kafka_cluster.failures:
        kafka_cluster.call(lambda state, now: None)

@pytest.mark.kafka_cluster(nonsense=1)
def test_an_unknown_option(kafka_cluster):
    pass

@pytest.mark.kafka_cluster(3)
def test_a_positional_argument(kafka_cluster):
    pass
"""
    counts, printed = run(tmp_path, source)
    assert counts == {"passed": 1, "error": 3}, printed
    assert "the embedded brokers failed: ZeroDivisionError('division by zero')" in printed
    assert "unknown option nonsense" in printed
    assert "kafka_cluster takes keyword arguments only, not 3" in printed


def test_pytest_finds_the_plugin() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert "kwire = kwire.pytest_plugin" in setup["options.entry_points"]["pytest11"]


def test_the_plugin_imports_kwire_only_on_use() -> None:
    code = "import sys, kwire.pytest_plugin; print(*[name for name in sys.modules if name.startswith('kwire')])"
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(printed.split()) <= {"kwire", "kwire.pytest_plugin", "kwire.version"}
