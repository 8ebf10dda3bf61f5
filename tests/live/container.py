"""Start a Kafka broker in a container with testcontainers, from the image of tools/image.

The engine has no bridge, so the container shares the host's network, and the broker gets free ports of the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brokers.cluster import NEWEST
from brokers.configuration import HOST, Node, Plan, listeners, server_properties
from brokers.probe import free_ports, wait_until_up

IMAGE = f"kwire-kafka:{NEWEST}"
_START_TIMEOUT_S = 60


@contextmanager
def kafka_container(*, partitions: int = 1) -> Iterator[str]:
    """Run a broker in a container and yield its bootstrap address."""
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    # The reaper of testcontainers needs another image from a registry, so this function ends the container.
    testcontainers_config.ryuk_disabled = True
    port, controller_port = free_ports(2)
    node = Node(1, Path("/data"), {"plaintext": port, "controller": controller_port})
    plan = Plan(NEWEST, [node], listeners(NEWEST, tls=False, sasl=False), partitions, zookeeper_port=None)
    container = DockerContainer(IMAGE).with_env("SERVER_PROPERTIES", server_properties(plan, node))
    container.with_kwargs(network_mode="host")
    try:
        container.start()

        def check() -> None:
            wrapped = container.get_wrapped_container()
            wrapped.reload()
            if wrapped.status == "exited":
                out, err = container.get_logs()
                raise RuntimeError(f"the container ended:\n{out.decode()}{err.decode()}")

        wait_until_up([(HOST, port)], {node.id}, timeout_s=_START_TIMEOUT_S, check=check)
        yield f"{HOST}:{port}"
    finally:
        container.stop()
        container.get_docker_client().client.close()
