"""Ports for brokers of tests that run side by side: each process gets others."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import probe

ROOT = Path(__file__).parents[2]
PORTS = range(19_000, 19_012)
_OTHER = f"""
import sys
from brokers import probe
probe._PORTS = range({PORTS.start}, {PORTS.stop})
print(*probe.free_ports(5), flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.programs


@pytest.fixture(autouse=True)
def few_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_PORTS", PORTS)
    monkeypatch.setattr(probe, "_taken", set())


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER], cwd=ROOT / "tools", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def test_no_two_processes_get_a_port_while_both_run(other_process: subprocess.Popen[str]) -> None:
    assert other_process.stdout is not None
    others = set(map(int, other_process.stdout.readline().split()))
    assert len(others) == 5
    ours = probe.free_ports(3)
    ours += probe.free_ports(4)
    assert len({*ours, *others}) == 12
    with pytest.raises(OSError, match="0 ports from 19000 to 19011 are free, not 1"):
        probe.free_ports(1)
    other_process.communicate()
    assert set(probe.free_ports(5)) == others


def test_a_port_on_which_a_program_listens_is_not_free() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", PORTS[3]))
        listening.listen()
        assert set(probe.free_ports(len(PORTS) - 1)) == {*PORTS} - {PORTS[3]}
