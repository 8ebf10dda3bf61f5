"""More than one listener for each broker, as Kafka's `listeners` and `advertised.listeners`.

Each has a name, a security protocol, and an address of its own; a client is told the addresses of the listener by which
it came. A cluster's `host`, `ports`, `tls` and `sasl` are its first listener, named after its security protocol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kwire.errors import ConfigurationError
from kwire.net import Tls

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listener of all brokers, for `Cluster(listeners={"EXTERNAL": Listener(...)})`.

    host              the advertised address, by default that of the cluster
    listen_host       where the brokers listen, by default `host`
    ports             ports of brokers 1, 2, ...; by default any free ones
    advertised_ports  the ports that clients are told, if not those: behind a proxy or a container's mapping
    tls, sasl         TLS or not; SASL, with the users of the cluster, or not
    """

    host: str | None = None
    listen_host: str | None = None
    ports: Sequence[int] = ()
    advertised_ports: Sequence[int] = ()
    tls: Tls | None = None
    sasl: bool = False

    @property
    def security_protocol(self) -> str:
        """Return Kafka's name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        return security_protocol(has_tls=self.tls is not None, has_sasl=self.sasl)


def security_protocol(*, has_tls: bool, has_sasl: bool) -> str:
    """Return the name of a security protocol."""
    if has_sasl:
        return "SASL_SSL" if has_tls else "SASL_PLAINTEXT"
    return "SSL" if has_tls else "PLAINTEXT"


def check_listeners(listeners: Mapping[str, Listener], main: str, brokers: int, *, has_users: bool) -> None:
    """Raise ConfigurationError for listeners that a cluster cannot have."""
    for name, listener in listeners.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(f"a listener is called {name!r}", remedy="use capitals, as in EXTERNAL")
        if not isinstance(listener, Listener):
            raise ConfigurationError(f"listener {name} is {listener!r}", remedy="give a kwire.broker.Listener")
        if name == main:
            raise ConfigurationError(f"two listeners are called {name}", remedy="the cluster's first one has that name")
        if listener.sasl and not has_users:
            raise ConfigurationError(
                f"listener {name} has SASL, the cluster no users", remedy="give the cluster `sasl`"
            )
        for ports in (listener.ports, listener.advertised_ports):
            if len(ports) > brokers:
                why = f"listener {name} has {len(ports)} ports, with {brokers} brokers"
                raise ConfigurationError(why, remedy="give one for each broker")
            for port in ports:
                if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65_535:
                    raise ConfigurationError(f"listener {name} has the port {port!r}", remedy="a port is 0 to 65535")
