"""Start clusters that outlive the command `tools/kafka`, find them again, and end them.

The file `.cache/kafka/<name>.json` describes a running cluster. A process belongs to it only if its command line
names the cluster's folder, because the system reuses process ids.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brokers.certificates import KEY_PASSWORD, Certificates
from brokers.cluster import NEWEST, KafkaCluster
from brokers.commands import Commands
from brokers.configuration import USERS
from brokers.jars import fetch_jars
from brokers.java import CACHE
from brokers.process import is_alive, kill_group

_STATES = CACHE / "kafka"


@dataclass(frozen=True, slots=True)
class State:
    """Describe one running cluster, as in its file."""

    name: str
    version: str
    directory: str
    pids: Sequence[int]
    addresses: Mapping[str, str]
    zookeeper: str | None

    @property
    def commands(self) -> Commands:
        return Commands(self.version, fetch_jars("kafka", self.version), self.addresses["plaintext"], self.zookeeper)

    @property
    def alive(self) -> int:
        return sum(is_alive(pid, self.directory) for pid in self.pids)

    @property
    def text(self) -> str:
        lines = [f"{self.name}: Kafka {self.version}, {self.alive} of {len(self.pids)} processes running"]
        lines += [f"  {listener:<10} {addresses}" for listener, addresses in self.addresses.items()]
        if self.zookeeper:
            lines.append(f"  zookeeper  {self.zookeeper}")
        if "tls" in self.addresses:
            files = Certificates(Path(self.directory, "tls"))
            lines.append(f"  CA         {files.ca_file}")
            lines.append(f"  client     {files.client_cert_file} {files.client_key_file}")
            lines.append(f"             {files.client_locked_key_file} (password {KEY_PASSWORD})")
        if "sasl" in self.addresses:
            users = ", ".join(f"{name!r} with password {password!r}" for name, password in USERS.items())
            lines.append(f"  users      {users} (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)")
        lines.append(f"  logs       {self.directory}/node-*/server.log")
        return "\n".join(lines)


def load(name: str) -> State | None:
    try:
        return State(**json.loads((_STATES / f"{name}.json").read_text()))
    except FileNotFoundError:
        return None


def running() -> list[State]:
    return [state for path in sorted(_STATES.glob("*.json")) if (state := load(path.stem))]


def start(options: argparse.Namespace) -> int:
    found = load(options.name)
    if found and found.alive:
        print(f"already running; `tools/kafka stop --name {found.name}` ends it\n{found.text}")
        return 1
    settings: dict[str, str] = dict(item.split("=", 1) for item in options.set)
    cluster = KafkaCluster(
        options.version, nodes=options.nodes, tls=options.tls, sasl=options.sasl, partitions=options.partitions,
        heap_mb=options.heap_mb, settings=settings, detached=not options.foreground,
    )  # fmt: skip
    cluster.start()
    state = State(
        name=options.name,
        version=cluster.version,
        directory=str(cluster.directory),
        pids=[process.pid for process in cluster.processes.values()],
        addresses={listener: cluster.addresses(listener) for listener in cluster.listeners},
        zookeeper=cluster.zookeeper,
    )
    print(state.text, flush=True)
    if options.foreground:
        return _stay(cluster)
    _STATES.mkdir(parents=True, exist_ok=True)
    (_STATES / f"{state.name}.json").write_text(json.dumps(asdict(state), indent=1))
    for process in cluster.processes.values():
        process.detach()
    return 0


def _stay(cluster: KafkaCluster) -> int:
    print("Ctrl-C ends it", file=sys.stderr)
    try:
        for process in cluster.processes.values():
            process.wait()
        print("a process ended by itself", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        cluster.stop()


def stop(options: argparse.Namespace) -> int:
    states = running() if options.all else [state for state in [load(options.name)] if state]
    for state in states:
        # Not gracefully: the data is removed too, and the last controller of three would wait for the others.
        for pid in state.pids:
            kill_group(pid, state.directory)
        shutil.rmtree(state.directory, ignore_errors=True)
        (_STATES / f"{state.name}.json").unlink()
        print(f"{state.name}: stopped")
    if not states:
        print("nothing is running")
    return 0


def status(_options: argparse.Namespace) -> int:
    states = running()
    print("\n".join(state.text for state in states) or "nothing is running")
    return 0 if states and all(state.alive for state in states) else 1


def topic(options: argparse.Namespace) -> int:
    print(_the(options.name).commands.topic(options.arguments), end="")
    return 0


def console(options: argparse.Namespace) -> int:
    """Replace this process by Kafka's console producer or consumer, on the same terminal."""
    commands = _the(options.name).commands
    if options.role == "producer":
        main, where = commands.producer_class, commands.producer_where
    else:
        main, where = commands.consumer_class, commands.consumer_where
    log4j = Path(_the(options.name).directory, "console.properties")
    commands.write_log4j(log4j)
    command = commands.java_command(main, [*where, *options.arguments], log4j)
    os.execv(command[0], command)


def _the(name: str) -> State:
    state = load(name)
    if state is None or not state.alive:
        raise SystemExit(f"no cluster {name!r} is running: `tools/kafka start` starts one")
    return state


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="tools/kafka",
        description="Real Kafka brokers on loopback, from Maven's jars: started, inspected and stopped.",
        epilog="Seen to work: 4.3.1, 3.9.1, 2.8.2, 1.1.1, 0.11.0.3, 0.8.2.2. TLS needs 3.3 or newer, SASL 2.0.",
    )
    verbs = top.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, run: Any, help: str) -> argparse.ArgumentParser:
        one = verbs.add_parser(name, help=help, description=help)
        one.set_defaults(run=run)
        one.add_argument("--name", default="kafka", help="the cluster's name, if there are several (default: kafka)")
        return one

    one = verb("start", start, "start a cluster, print its addresses, and leave it running")
    one.add_argument("--version", default=NEWEST, help=f"Kafka's version (default: {NEWEST})")
    one.add_argument("--nodes", type=int, default=1, help="number of brokers (default: 1)")
    one.add_argument("--tls", action="store_true", help="add listeners with TLS, one of them with client certificates")
    one.add_argument("--sasl", action="store_true", help="add listeners with SASL: PLAIN and SCRAM")
    one.add_argument(
        "--partitions", type=int, default=1, help="partitions of an automatically created topic (default: 1)"
    )
    one.add_argument("--heap-mb", type=int, default=320, help="heap of a broker (default: 320)")
    one.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a line of server.properties")
    one.add_argument("--foreground", action="store_true", help="stay in the foreground; Ctrl-C ends the cluster")
    one = verb("stop", stop, "end a cluster and remove its data")
    one.add_argument("--all", action="store_true", help="every cluster that tools/kafka started")
    verb("status", status, "what is running; exit code 1 if nothing or not all of it is")
    one = verb("topic", topic, "kafka-topics on a running cluster: tools/kafka topic -- --create --topic t")
    one.add_argument("arguments", nargs="+", help="arguments of kafka-topics, after --")
    one = verb("console", console, "Kafka's console producer or consumer on a running cluster")
    one.add_argument("role", choices=["producer", "consumer"])
    one.add_argument("arguments", nargs="*", help="its arguments, after --, such as --topic t --from-beginning")
    return top


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    result: int = options.run(options)
    return result
