"""Start and stop a cluster of real brokers and its single nodes.

Data and logs are in a temporary folder, which is removed when the cluster stops. If a start fails, the error has the
end of the log of the node that died.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from brokers import configuration
from brokers.certificates import Certificates, make_certificates
from brokers.commands import Commands
from brokers.configuration import HOST, SCRAM_MECHANISMS, USERS, Node, Plan
from brokers.jars import fetch_jars, version_numbers
from brokers.java import java_command
from brokers.kdc import Kdc
from brokers.probe import free_ports, wait_for_port, wait_until_forgotten, wait_until_up
from brokers.process import JavaProcess, run_java

NEWEST = "4.3.1"
_START_TIMEOUT_S = 90
# A broker asks only the URLs that this property of its JVM names.
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
# Any 16 bytes, in URL-safe base64.
_CLUSTER_ID = "a3dpcmUta2Fma2EtdGVzdA"


@dataclass(frozen=True, slots=True)
class Format:
    """Hold the files of a formatted node, for others with the same settings: Kafka's tool takes a JVM for each."""

    node_id: int
    folders: Sequence[Mapping[Path, bytes]]

    @classmethod
    def of(cls, node_id: int, folders: Sequence[Path]) -> Self:
        """Read the files of a node, given its directories of logs."""
        return cls(
            node_id,
            [
                {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
                for folder in folders
            ],
        )

    def write(self, node_id: int, folders: Sequence[Path]) -> None:
        """Write the files of another node. One without a directory.id gives itself one when it starts."""
        for folder, files in zip(folders, self.folders, strict=True):
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            properties = folder / "meta.properties"
            lines = [line for line in properties.read_text().splitlines() if not line.startswith("directory.id=")]
            properties.write_text("\n".join(lines).replace(f"node.id={self.node_id}", f"node.id={node_id}") + "\n")


# The only settings beside the directories that Kafka's tool heeds, by their first part.
_OF_FORMAT = ("unstable.", "metadata.", "process.", "controller.", "inter.broker.protocol.")
# By all that they depend on: the later clusters of a process need no JVM for them.
_formats: dict[tuple[object, ...], Format] = {}


class KafkaCluster:
    """Run `nodes` brokers of a `version`, with ids from 1. Use it as a context manager, or call `start` and `stop`.

    The listener `plaintext` always exists. `tls` adds the listeners `tls` and `mtls` (which requires a client
    certificate), `sasl` adds `sasl`, and both together also add `sasl_tls`. `jwks_url` adds `oauth`, which verifies
    tokens by the keys at that URL, and with `tls` `oauth_tls`. `kdc` adds `kerberos`, whose clients have its tickets,
    and with `tls` `kerberos_tls`.
    `relayed` adds a listener of that name that is advertised as the port "relay": the caller forwards connections from
    there to the port "relayed".

    With `has_dynamic_quorum` node 1 is the only voter of the quorum at first; the others are controllers that can
    become voters (KIP-853). Each broker has `log_dirs` directories for logs.

    `settings` are added to every server.properties. Without `is_brief` a broker starts slowly and then is fast, for
    benchmarks. `java_options` are further ones of the brokers' JVMs, `classes` a folder with the classes of plug-ins.
    All files are in a new folder in `parent`, by default the folder for temporary files. `cluster_id` is that of KRaft,
    16 bytes in URL-safe base64.
    """

    def __init__(
        self,
        version: str = NEWEST,
        *,
        nodes: int = 1,
        tls: bool = False,
        sasl: bool = False,
        relayed: bool = False,
        jwks_url: str | None = None,
        kdc: Kdc | None = None,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        heap_mb: int = 320,
        detached: bool = False,
        is_brief: bool = True,
        java_options: Sequence[str] = (),
        classes: Path | None = None,
        has_dynamic_quorum: bool = False,
        log_dirs: int = 1,
        parent: Path | None = None,
        cluster_id: str = _CLUSTER_ID,
    ) -> None:
        self.version = version
        self._cluster_id = cluster_id
        self.jars = fetch_jars("kafka", version)
        self.directory = Path(tempfile.mkdtemp(prefix="kwire-kafka-", dir=parent))
        self.certificates: Certificates | None = make_certificates(self.directory / "tls") if tls else None
        self._heap_mb = heap_mb
        self._detached = detached
        self._is_brief = is_brief
        self._java_options = java_options
        self._classes = classes
        self._has_dynamic_quorum = has_dynamic_quorum
        self._log_dirs = log_dirs
        chosen = configuration.listeners(
            version, tls=tls, sasl=sasl, relayed=relayed, oauth=jwks_url is not None, kerberos=kdc is not None
        )
        self._jwks_url = jwks_url
        self._kdc = kdc
        self._plan = self._make_plan(nodes, chosen, partitions, settings or {})
        self._processes: dict[int, JavaProcess] = {}
        self._zookeeper: JavaProcess | None = None

    def _make_plan(self, count: int, chosen: Mapping[str, str], partitions: int, settings: Mapping[str, str]) -> Plan:
        names = [*chosen, "controller", *(["relay"] if "relayed" in chosen else [])]
        ports = free_ports(count * len(names) + 1)
        nodes = [
            Node(index + 1, self.directory / f"node-{index + 1}", dict(zip(names, ports[index::count], strict=False)))
            for index in range(count)
        ]
        return Plan(
            version=self.version,
            nodes=nodes,
            listeners=chosen,
            partitions=partitions,
            zookeeper_port=None if configuration.is_kraft(self.version) else ports[-1],
            certificates=self.certificates,
            settings=settings,
            jwks_url=self._jwks_url,
            has_dynamic_quorum=self._has_dynamic_quorum,
            log_dirs=self._log_dirs,
            keytab=(self._kdc.service, self._kdc.keytab) if self._kdc else None,
        )

    @property
    def node_ids(self) -> list[int]:
        return [node.id for node in self._plan.nodes]

    @property
    def listeners(self) -> list[str]:
        return list(self._plan.listeners)

    @property
    def bootstrap(self) -> str:
        """Return the addresses of the plaintext listeners, "host:port,host:port"."""
        return self.addresses("plaintext")

    @property
    def zookeeper(self) -> str | None:
        """Return the address of the ZooKeeper, for versions that have one."""
        return None if self._plan.zookeeper_port is None else f"{HOST}:{self._plan.zookeeper_port}"

    @property
    def processes(self) -> Mapping[int, JavaProcess]:
        """Return the running processes by node id; 0 is ZooKeeper."""
        return self._processes | ({0: self._zookeeper} if self._zookeeper else {})

    @property
    def commands(self) -> Commands:
        return Commands(self.version, self.jars, self.bootstrap, self.zookeeper)

    def addresses(self, listener: str, *, host: str = HOST) -> str:
        return ",".join(f"{host}:{node.ports[listener]}" for node in self._plan.nodes)

    def port(self, node_id: int, listener: str = "plaintext") -> int:
        return self._node(node_id).ports[listener]

    def log_dirs(self, node_id: int) -> list[Path]:
        """Return the directories of a broker's logs."""
        return configuration.log_dirs(self._plan, self._node(node_id))

    def start(self) -> Self:
        try:
            self._write_files()
            if self._plan.is_kraft:
                self._format()
            else:
                self._start_zookeeper()
            for node in self._plan.nodes:
                self._start_process(node)
            self.wait_until_up()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process at once, and remove the folder."""
        for process in [*self._processes.values(), *([self._zookeeper] if self._zookeeper else [])]:
            process.stop()
        self._processes.clear()
        self._zookeeper = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop_node(self, node_id: int, *, graceful: bool = True) -> None:
        """Stop one broker and keep its data. A graceful stop moves its leaderships to other brokers first."""
        self._processes.pop(node_id).stop(graceful=graceful)

    def start_node(self, *node_ids: int) -> None:
        """Start brokers that were stopped, and wait until all that run know each other."""
        if self._plan.zookeeper_port is not None:
            wait_until_forgotten(self._plan.zookeeper_port, set(node_ids), timeout_s=_START_TIMEOUT_S)
        for node_id in node_ids:
            self._start_process(self._node(node_id))
        self.wait_until_up()

    def wait_until_up(self, timeout_s: float = _START_TIMEOUT_S) -> None:
        addresses = [(HOST, self.port(node_id)) for node_id in self._processes]
        topic = "up" if version_numbers(self.version) < (0, 9) else None
        nodes = set(self._processes)
        with self._explained():
            wait_until_up(addresses, nodes, timeout_s=timeout_s, check=self._check_running, topic=topic)

    def run(self, main: str, arguments: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> bytes:
        """Run a class of the broker's jars to its end and return its standard output."""
        command = java_command(self.jars, main, arguments, heap_mb=128, log4j=self._log4j, classes=self._classes)
        return run_java(command, stdin=stdin, timeout_s=timeout_s)

    @property
    def _log4j(self) -> Path:
        return self.directory / "log4j.properties"

    @property
    def _login_file(self) -> Path | None:
        is_needed = "sasl" in self.listeners and configuration.needs_login_file(self.version)
        return self.directory / "login.conf" if is_needed else None

    def _node(self, node_id: int) -> Node:
        return self._plan.nodes[node_id - 1]

    def _write_files(self) -> None:
        self._log4j.write_text(configuration.log4j_properties())
        if self._login_file is not None:
            self._login_file.write_text(configuration.login_file())
        for node in self._plan.nodes:
            node.directory.mkdir()
            text = configuration.server_properties(self._plan, node)
            (node.directory / "server.properties").write_text(text)

    def _format(self) -> None:
        """Format every node's folder for KRaft, with the SCRAM users."""
        scram = []
        if "sasl" in self._plan.listeners:
            for mechanism in SCRAM_MECHANISMS:
                for name, password in USERS.items():
                    scram += ["--add-scram", f'{mechanism}=[name="{name}",password="{password}"]']

        def format_by_kafka(node: Node) -> None:
            arguments = ["format", "-t", self._cluster_id, "-c", str(node.directory / "server.properties"), *scram]
            if self._has_dynamic_quorum:
                arguments.append("--standalone" if node.id == 1 else "--no-initial-controllers")
            self.run("kafka.tools.StorageTool", arguments)

        if self._has_dynamic_quorum:
            for node in self._plan.nodes:
                format_by_kafka(node)
            return
        heeded = sorted(item for item in self._plan.settings.items() if item[0].startswith(_OF_FORMAT))
        key = (self.version, self._cluster_id, self._log_dirs, bool(scram), *heeded)
        nodes = list(self._plan.nodes)
        if key not in _formats:
            first = nodes.pop(0)
            format_by_kafka(first)
            _formats[key] = Format.of(first.id, self.log_dirs(first.id))
        for node in nodes:
            _formats[key].write(node.id, self.log_dirs(node.id))

    def _start_zookeeper(self) -> None:
        assert self._plan.zookeeper_port is not None
        directory = self.directory / "zookeeper"
        directory.mkdir()
        file = directory / "zookeeper.properties"
        file.write_text(configuration.zookeeper_properties(self._plan.zookeeper_port, directory / "data"))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._zookeeper = self._java(main, file, heap_mb=128)
        with self._explained():
            wait_for_port(self._plan.zookeeper_port, timeout_s=_START_TIMEOUT_S, check=self._check_running)
        if "sasl" in self._plan.listeners:
            self._add_scram_users()

    def _add_scram_users(self) -> None:
        assert self.zookeeper is not None
        for name, password in USERS.items():
            credentials = ",".join(f"{mechanism}=[password={password}]" for mechanism in SCRAM_MECHANISMS)
            who = ["--entity-type", "users", "--entity-name", name]
            where = ["--zookeeper", self.zookeeper, "--alter", "--add-config"]
            self.run("kafka.admin.ConfigCommand", [*where, credentials, *who])

    def _start_process(self, node: Node) -> None:
        file = node.directory / "server.properties"
        self._processes[node.id] = self._java("kafka.Kafka", file, heap_mb=self._heap_mb, login_file=self._login_file)

    def _java(self, main: str, file: Path, *, heap_mb: int, login_file: Path | None = None) -> JavaProcess:
        command = java_command(
            self.jars, main, [str(file)], heap_mb=heap_mb, log4j=self._log4j, login_file=login_file,
            is_brief=self._is_brief, classes=self._classes,
            options=[
                *([f"-D{_ALLOWED_URLS}={self._jwks_url}"] if self._jwks_url else []),
                *([f"-Djava.security.krb5.conf={self._kdc.config}"] if self._kdc else []),
                *self._java_options,
            ],
        )  # fmt: skip
        return JavaProcess(command, file.with_suffix(".log"), detached=self._detached)

    def _check_running(self) -> None:
        for node_id, process in self.processes.items():
            if not process.is_running:
                name = f"node {node_id}" if node_id else "ZooKeeper"
                raise RuntimeError(f"{name} of Kafka {self.version} ended:\n{process.log_tail()}")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Add the logs to the error of a timeout, because they are removed with the folder."""
        try:
            yield
        except TimeoutError as error:
            logs = "\n".join(process.log_tail() for process in self.processes.values())
            raise TimeoutError(f"{error} (Kafka {self.version}):\n{logs}") from None
