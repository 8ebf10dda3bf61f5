"""The options that every client shares. Frozen and picklable, because a Spark executor gets its own copy.

Imports: nothing but the two option classes of `net` (Tls) and `session` (Sasl).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from kwire.errors import ConfigurationError
from kwire.net import Tls, show_address
from kwire.session import Sasl

DEFAULT_PORT = 9092


@dataclass(frozen=True)
class ClientConfig:
    """What a client needs to find a cluster and to behave on it. Times are milliseconds.

    bootstrap   "host:port,host:port" or a sequence of such; any of them is enough to discover the rest
    tls         True for the system's certificate authorities, or a `Tls`
    sasl        a `Sasl`, or None
    request_timeout_ms     how long a broker may take to answer one request; then its connection is closed
    metadata_max_age_ms    metadata is refreshed after this even if nothing went wrong
    retry_backoff_ms       first pause before a retry; doubles up to retry_backoff_ms_max, with jitter (KIP-580)
    max_in_flight          requests sent on one connection and not yet answered
    """

    bootstrap: str | Sequence[str]
    client_id: str = "kwire"
    tls: Tls | bool | None = None
    sasl: Sasl | None = None
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    idle_timeout_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_ms_max: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_ms_max: int = 1_000
    max_frame_bytes: int = 100 * 1024 * 1024
    max_in_flight: int = 5
    allow_auto_create_topics: bool = True

    def __post_init__(self) -> None:
        addresses = parse_bootstrap(self.bootstrap)
        object.__setattr__(self, "bootstrap", tuple(show_address(host, port) for host, port in addresses))
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if name.endswith(("_ms", "_ms_max", "_bytes", "_in_flight")) and (
                not isinstance(value, int) or isinstance(value, bool) or value < 1
            ):
                raise ConfigurationError(f"{name} is {value!r}", remedy="give a whole number above 0")
        if self.tls is not None and not isinstance(self.tls, (bool, Tls)):
            raise ConfigurationError(f"tls is {self.tls!r}", remedy="give True or a kwire.Tls")
        if self.sasl is not None and not isinstance(self.sasl, Sasl):
            raise ConfigurationError(
                "sasl is not a kwire.Sasl", remedy='such as kwire.Sasl("PLAIN", "user", "password")'
            )

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return parse_bootstrap(self.bootstrap)

    @property
    def tls_options(self) -> Tls | None:
        """The `Tls` to use, or None for plaintext."""
        if isinstance(self.tls, Tls):
            return self.tls
        return Tls() if self.tls else None

    @classmethod
    def option_names(cls) -> frozenset[str]:
        return frozenset(field.name for field in fields(cls))


def client_config(bootstrap: str | Sequence[str], options: dict[str, object]) -> ClientConfig:
    """Make a `ClientConfig` of keyword options; an unknown one is a ConfigurationError that lists the known."""
    unknown = sorted(options.keys() - ClientConfig.option_names())
    if unknown:
        known = ", ".join(sorted(ClientConfig.option_names() - {"bootstrap"}))
        raise ConfigurationError(f"unknown option {', '.join(unknown)}", remedy=f"the client's options are {known}")
    return ClientConfig(bootstrap, **options)  # type: ignore[arg-type]  # checked in __post_init__


def parse_bootstrap(bootstrap: str | Sequence[str]) -> list[tuple[str, int]]:
    """Split "host:port,[::1]:port,host" into (host, port) pairs; the port defaults to 9092."""
    entries = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = [_parse_address(entry.strip()) for entry in entries if entry.strip()]
    if not addresses:
        raise ConfigurationError("no bootstrap address", remedy='give "host:port" of one or more brokers')
    return addresses


def _parse_address(entry: str) -> tuple[str, int]:
    wrong = ConfigurationError(f"bootstrap address {entry!r} is not host:port")
    host, port_text = entry, str(DEFAULT_PORT)
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise wrong
        port_text = rest[1:] if rest else port_text
    elif entry.count(":") == 1:
        host, _, port_text = entry.partition(":")
    elif ":" in entry:
        raise ConfigurationError(f"bootstrap address {entry!r} is ambiguous", remedy="write IPv6 as [address]:port")
    if not host or "/" in host or not port_text.isascii() or not port_text.isdigit() or not 0 < int(port_text) < 65536:
        raise wrong
    return host, int(port_text)
