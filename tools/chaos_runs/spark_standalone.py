"""A cluster of Spark's own (standalone) on this machine: a master and two workers, each with one executor of one core.

The workers have different addresses of the loopback device, since Spark runs a second attempt of a task only on another
host.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from brokers.probe import free_ports, wait_for_port

_HOSTS = ("127.0.0.1", "127.0.0.2")
_START_TIMEOUT_S = 120
_DEPLOY = "org.apache.spark.deploy"
SESSION = {
    "spark.executor.memory": "500m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.task.maxFailures": "4",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.efficiency.enabled": "false",
}


@contextlib.contextmanager
def standalone(folder: Path, environment: Mapping[str, str], python: str = sys.executable) -> Iterator[str]:
    """Start it, and yield the master's URL. Tasks see `environment`. `python` has the PySpark whose Spark it is."""
    home = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__path__[0])"], check=True, capture_output=True, text=True
    ).stdout.strip()
    master, web = free_ports(2)
    url = f"spark://{_HOSTS[0]}:{master}"
    running: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "cluster.log").open("ab") as log:

            def start(host: str, name: str, *arguments: str) -> None:
                own = {
                    "SPARK_HOME": home, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_WORKER_DIR": str(folder / "work"),
                }  # fmt: skip
                command = [f"{home}/bin/spark-class", f"{_DEPLOY}.{name}", "--host", host, *arguments]
                running.append(
                    subprocess.Popen(
                        command, env={**environment, **own}, stdout=log, stderr=log, start_new_session=True
                    )
                )

            start(_HOSTS[0], "master.Master", "--port", str(master), "--webui-port", str(web))
            wait_for_port(master, timeout_s=_START_TIMEOUT_S, check=lambda: None)
            for host in _HOSTS:
                start(host, "worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", url)
            _wait_for_workers(folder / "cluster.log")
        yield url
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for_workers(log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while log.read_text(errors="replace").count("Successfully registered with master") < len(_HOSTS):
        if time.monotonic() > deadline:
            raise RuntimeError(log.read_text(errors="replace")[-2_000:])
        time.sleep(0.1)
