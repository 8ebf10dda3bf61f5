"""Write the configuration files of brokers and ZooKeeper for every version, with pure functions.

From 3.3 on every node is both broker and controller (KRaft); older versions have one ZooKeeper for all nodes. A broker
always has a plaintext listener, and may have others with SASL (from 0.11 on) and TLS (from 3.3 on: 2.7 also reads PEM
files, but only keys with an encryption that Java's own library cannot decrypt).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from brokers.certificates import Certificates
from brokers.jars import version_numbers

HOST = "127.0.0.1"
USERS: Mapping[str, str] = {"alice": "alice-secret", "bob": "bob's ünicode"}
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
# The largest batch that a broker accepts: the default since 2.0, set for older versions too.
MAX_MESSAGE_BYTES = 1_048_588

# Listener -> Kafka's name of its security protocol. `mtls` requires a client certificate.
PLAIN_LISTENERS = {"plaintext": "PLAINTEXT"}
TLS_LISTENERS = {"tls": "SSL", "mtls": "SSL"}
SASL_LISTENERS = {"sasl": "SASL_PLAINTEXT"}
# Its tokens are verified by the keys at a URL.
OAUTH_LISTENERS = {"oauth": "SASL_PLAINTEXT"}
OAUTH_TLS_LISTENERS = {"oauth_tls": "SASL_SSL"}
SASL_TLS_LISTENERS = {"sasl_tls": "SASL_SSL"}
# Its clients have tickets (GSSAPI).
KERBEROS_LISTENERS = {"kerberos": "SASL_PLAINTEXT"}
KERBEROS_TLS_LISTENERS = {"kerberos_tls": "SASL_SSL"}
# The `relayed` listener is advertised as the port "relay", where another program listens and forwards the bytes.
RELAYED_LISTENERS = {"relayed": "PLAINTEXT"}
_ADVERTISED_PORTS = {"relayed": "relay"}


@dataclass(frozen=True, slots=True)
class Node:
    """Describe a broker: its id from 1, its folder and its ports by listener (under KRaft also `controller`)."""

    id: int
    directory: Path
    ports: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold everything that the files of a cluster depend on."""

    version: str
    nodes: Sequence[Node]
    listeners: Mapping[str, str]
    partitions: int
    zookeeper_port: int | None
    certificates: Certificates | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    jwks_url: str | None = None
    has_dynamic_quorum: bool = False
    log_dirs: int = 1
    keytab: tuple[str, Path] | None = None  # the brokers' principal in Kerberos, and the file with its keys

    @property
    def is_kraft(self) -> bool:
        return is_kraft(self.version)


def is_kraft(version: str) -> bool:
    return version_numbers(version) >= (3, 3)


def has_sasl(version: str) -> bool:
    return version_numbers(version) >= (0, 11)


def needs_login_file(version: str) -> bool:
    """Return whether SASL is configured in a JAAS file of the JVM and not in server.properties."""
    return version_numbers(version) < (2,)


def listeners(
    version: str, *, tls: bool, sasl: bool, relayed: bool = False, oauth: bool = False, kerberos: bool = False
) -> dict[str, str]:
    if tls and not is_kraft(version):
        raise ValueError(f"TLS listeners need Kafka 3.3 or newer, not {version}")
    if sasl and not has_sasl(version):
        raise ValueError(f"SASL listeners need Kafka 0.11 or newer, not {version}")
    if relayed and version_numbers(version) < (0, 10, 2):
        raise ValueError(f"two listeners of one protocol need Kafka 0.10.2 or newer, not {version}")
    chosen = dict(PLAIN_LISTENERS)
    if tls:
        chosen |= TLS_LISTENERS
    if sasl:
        chosen |= SASL_LISTENERS
    if tls and sasl:
        chosen |= SASL_TLS_LISTENERS
    if oauth:
        chosen |= OAUTH_LISTENERS | (OAUTH_TLS_LISTENERS if tls else {})
    if kerberos:
        chosen |= KERBEROS_LISTENERS | (KERBEROS_TLS_LISTENERS if tls else {})
    if relayed:
        chosen |= RELAYED_LISTENERS
    return chosen


def server_properties(plan: Plan, node: Node) -> str:
    """Return the text of one broker's server.properties."""
    settings = _common(plan, node)
    if version_numbers(plan.version) < (0, 9):
        settings |= {"host.name": HOST, "port": str(node.ports["plaintext"])}
    else:
        settings |= _listeners(plan, node)
    if plan.is_kraft:
        settings |= _kraft(plan, node)
    else:
        settings |= {"broker.id": str(node.id), "zookeeper.connect": f"{HOST}:{plan.zookeeper_port}"}
    if plan.certificates is not None:
        settings |= _tls(plan.certificates)
    if any(protocol.startswith("SASL") for protocol in plan.listeners.values()):
        settings |= _sasl(plan.version, plan.listeners)
    if plan.jwks_url is not None:
        for name in (OAUTH_LISTENERS | OAUTH_TLS_LISTENERS).keys() & plan.listeners.keys():
            settings |= _oauth(name, plan.jwks_url)
    if plan.keytab is not None:
        for name in (KERBEROS_LISTENERS | KERBEROS_TLS_LISTENERS).keys() & plan.listeners.keys():
            settings |= _kerberos(name, *plan.keytab)
    return _properties({**settings, **plan.settings})


def zookeeper_properties(port: int, directory: Path) -> str:
    return _properties(
        {
            "dataDir": str(directory),
            "clientPort": str(port),
            "clientPortAddress": HOST,
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "tickTime": "500",
            "4lw.commands.whitelist": "dump",
        }
    )


def log4j_properties(target: str = "System.out") -> str:
    """Return the logging configuration of a broker, for versions with log4j 1."""
    return _properties(
        {
            "log4j.rootLogger": "WARN, out",
            "log4j.appender.out": "org.apache.log4j.ConsoleAppender",
            "log4j.appender.out.target": target,
            "log4j.appender.out.layout": "org.apache.log4j.PatternLayout",
            "log4j.appender.out.layout.ConversionPattern": "%d %p %c - %m%n",
        }
    )


def log_dirs(plan: Plan, node: Node) -> list[Path]:
    """Return the directories of a broker's logs."""
    return [node.directory / name for name in ("data", *(f"data-{number}" for number in range(2, plan.log_dirs + 1)))]


def _common(plan: Plan, node: Node) -> dict[str, str]:
    copies = str(min(3, len(plan.nodes)))
    return {
        "log.dirs": ",".join(map(str, log_dirs(plan, node))),
        "num.partitions": str(plan.partitions),
        "default.replication.factor": copies,
        "auto.create.topics.enable": "true",
        "delete.topic.enable": "true",
        "message.max.bytes": str(MAX_MESSAGE_BYTES),
        # Before 0.10.1 a follower that cannot fetch the largest message would stop following.
        "replica.fetch.max.bytes": str(2 * MAX_MESSAGE_BYTES),
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "4",
        "num.network.threads": "2",
        "num.io.threads": "4",
        # The default of 128 MiB is half of the heap that a broker gets here.
        "log.cleaner.dedupe.buffer.size": "8388608",
    } | _by_version(plan.version, copies)


def _by_version(version: str, copies: str) -> dict[str, str]:
    """Return the settings that only some versions know; others would log a warning."""
    settings: dict[str, str] = {}
    if version_numbers(version) >= (0, 11):
        settings |= {
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
        }
    if version_numbers(version) >= (4,):
        settings |= {
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "4",
        }
    return settings


def _listeners(plan: Plan, node: Node) -> dict[str, str]:
    addresses = [f"{name.upper()}://{HOST}:{node.ports[name]}" for name in plan.listeners]
    advertised = [f"{name.upper()}://{HOST}:{node.ports[_ADVERTISED_PORTS.get(name, name)]}" for name in plan.listeners]
    settings = {"advertised.listeners": ",".join(advertised)}
    protocols = {name.upper(): protocol for name, protocol in plan.listeners.items()}
    if plan.is_kraft:
        addresses.append(f"CONTROLLER://{HOST}:{node.ports['controller']}")
        protocols["CONTROLLER"] = "PLAINTEXT"
    settings["listeners"] = ",".join(addresses)
    if version_numbers(plan.version) >= (0, 10, 2):
        settings["listener.security.protocol.map"] = ",".join(f"{name}:{is_}" for name, is_ in protocols.items())
        settings["inter.broker.listener.name"] = "PLAINTEXT"
    return settings


def _kraft(plan: Plan, node: Node) -> dict[str, str]:
    addresses = {one.id: f"{HOST}:{one.ports['controller']}" for one in plan.nodes}
    if plan.has_dynamic_quorum:
        quorum = {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
    else:
        quorum = {"controller.quorum.voters": ",".join(f"{id}@{address}" for id, address in addresses.items())}
    return quorum | {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.listener.names": "CONTROLLER",
        # A broker that was killed is fenced sooner than after the default of 9 s.
        "broker.session.timeout.ms": "6000",
        # A controller without anything to do writes a record less often than each 0.5 s: a quarter of its CPU time.
        "metadata.max.idle.interval.ms": "5000",
    }


def _tls(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server_keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca_file),
        "listener.name.mtls.ssl.client.auth": "required",
    }


def login_file() -> str:
    """Return the text of the file java.security.auth.login.config for the JVM of an old broker."""
    return f"KafkaServer {{\n  {_PLAIN_MODULE} required {_users()};\n  {_SCRAM_MODULE} required;\n}};\n"


def _sasl(version: str, listeners: Mapping[str, str]) -> dict[str, str]:
    settings = {"sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM_MECHANISMS))}
    if needs_login_file(version):
        return settings
    for name, protocol in listeners.items():
        if not protocol.startswith("SASL"):
            continue
        if name in (*OAUTH_LISTENERS, *OAUTH_TLS_LISTENERS, *KERBEROS_LISTENERS, *KERBEROS_TLS_LISTENERS):
            continue
        prefix = f"listener.name.{name}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = f"{_PLAIN_MODULE} required {_users()};"
        for mechanism in SCRAM_MECHANISMS:
            settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{_SCRAM_MODULE} required;"
    return settings


def _oauth(listener: str, jwks_url: str) -> dict[str, str]:
    package = "org.apache.kafka.common.security.oauthbearer"
    prefix = f"listener.name.{listener}"
    return {
        f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": jwks_url,
        "sasl.oauthbearer.expected.audience": "kafka",
    }


def _kerberos(listener: str, principal: str, keytab: Path) -> dict[str, str]:
    module = "com.sun.security.auth.module.Krb5LoginModule"
    prefix = f"listener.name.{listener}"
    options = f"useKeyTab=true storeKey=true keyTab={_quoted(str(keytab))} principal={_quoted(principal)}"
    return {
        f"{prefix}.sasl.enabled.mechanisms": "GSSAPI",
        f"{prefix}.gssapi.sasl.jaas.config": f"{module} required {options};",
        "sasl.kerberos.service.name": principal.partition("/")[0],
    }


def _users() -> str:
    return " ".join(f"user_{name}={_quoted(password)}" for name, password in USERS.items())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _properties(settings: Mapping[str, str]) -> str:
    """Return the text of a Java properties file: Latin-1, with escapes for other characters."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    return "".join(char if " " <= char <= "~" else f"\\u{ord(char):04x}" for char in value.replace("\\", "\\\\"))
