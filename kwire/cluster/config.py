"""The options that every client shares. Frozen and picklable, because a Spark executor gets its own copy.

The two option classes of other rooms are `net.Tls` and `session.Sasl`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

from kwire.errors import ConfigurationError
from kwire.net import Tls, show_address
from kwire.option_checks import Choice, Flag, Text, Where, Whole, check_names, check_values, option

if TYPE_CHECKING:
    from kwire.session import Sasl

DEFAULT_PORT = 9092
INT32_MAX = 2**31 - 1  # requests carry times and sizes as int32
MS = "milliseconds"

_IPV6 = re.compile(r"[0-9a-fA-F:.]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%\w+)?")
_NO_HOST = re.compile(r"[\s/,;]")  # what no name of a host has

_TLS = Where("True or a kwire.Tls", lambda value: isinstance(value, (bool, Tls)))


def _is_sasl(value: object) -> bool:
    from kwire.session import Sasl  # only those who log in pay for it

    return isinstance(value, Sasl)


_SASL = Where('a kwire.Sasl, such as kwire.Sasl("PLAIN", "user", "password")', _is_sasl)


class ClientKwargs(TypedDict, total=False):
    """The keywords of `ClientConfig`, for the constructors of the clients."""

    client_id: str
    tls: Tls | bool | None
    sasl: Sasl | None
    request_timeout_ms: int
    connect_timeout_ms: int
    idle_timeout_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    metadata_cluster_check: bool
    retry_backoff_ms: int
    retry_backoff_ms_max: int
    reconnect_backoff_ms: int
    reconnect_backoff_ms_max: int
    max_frame_bytes: int
    max_in_flight: int
    allow_auto_create_topics: bool


@dataclass(frozen=True)
class ClientConfig:
    """The options that every client has; `kwire.option_checks` says how an option is declared.

    `bootstrap` is "host:port,host:port" or a sequence of such; any of them is enough to discover the rest.
    """

    bootstrap: str | Sequence[str]
    client_id: str = option("kwire", Text(), "the name in the brokers' logs, metrics and quotas")
    tls: Tls | bool | None = option(
        None, _TLS, "True for TLS with the system's certificate authorities, or a `kwire.Tls`"
    )
    sasl: Sasl | None = option(
        None, _SASL, 'how to log in: `kwire.Sasl("SCRAM-SHA-512", user, password)`', is_secret=True
    )
    request_timeout_ms: int = option(
        30_000, Whole(1, INT32_MAX), "a broker may take this long to respond; then its connection is closed", unit=MS
    )
    connect_timeout_ms: int = option(
        10_000, Whole(1), "a connection may take this long, TLS and SASL included", unit=MS
    )
    idle_timeout_ms: int = option(540_000, Whole(1), "an unused connection is closed after this", unit=MS)
    metadata_max_age_ms: int = option(
        300_000, Whole(1), "metadata is refreshed after this even if nothing went wrong", unit=MS
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        Choice("rebootstrap", "none"),
        'whether to go back to the bootstrap addresses when no known broker helps (KIP-899); "none": never',
    )
    metadata_recovery_rebootstrap_trigger_ms: int = option(
        300_000, Whole(1), "begin again at the bootstrap addresses after this long without metadata (KIP-1102)", unit=MS
    )
    metadata_cluster_check: bool = option(
        False, Flag(), "have each broker check that it is the broker of the cluster that is meant (KIP-1242, Kafka 4.4)"
    )
    retry_backoff_ms: int = option(
        100, Whole(1), "the first pause before a retry; it doubles up to the maximum, with jitter (KIP-580)", unit=MS
    )
    retry_backoff_ms_max: int = option(1_000, Whole(1), "the longest pause before a retry", unit=MS)
    reconnect_backoff_ms: int = option(
        50, Whole(1), "the first pause before connecting to a broker again; it doubles likewise", unit=MS
    )
    reconnect_backoff_ms_max: int = option(1_000, Whole(1), "the longest pause before connecting again", unit=MS)
    max_frame_bytes: int = option(104_857_600, Whole(1), "a larger response is refused", unit="bytes")
    max_in_flight: int = option(5, Whole(1), "requests on one connection without a response yet", unit="requests")
    allow_auto_create_topics: bool = option(True, Flag(), "whether brokers may create a topic that a client requests")

    def __post_init__(self) -> None:
        addresses = parse_bootstrap(self.bootstrap)
        object.__setattr__(self, "bootstrap", tuple(show_address(host, port) for host, port in addresses))
        check_values(self)
        if self.sasl is not None:
            self.sasl.require_package()  # before anything is opened

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return parse_bootstrap(self.bootstrap)

    @property
    def tls_options(self) -> Tls | None:
        """Return the `Tls` to use, or None for plaintext."""
        if isinstance(self.tls, Tls):
            return self.tls
        return Tls() if self.tls else None

    @property
    def principal(self) -> str:
        """Return who the client is for the brokers, as far as it knows: a broker may map that to another name."""
        if self.sasl is not None:
            return self.sasl.principal
        tls = self.tls_options
        if tls is not None and tls.cert_file is not None:
            return f"the owner of {tls.cert_file}"
        return "User:ANONYMOUS"

    @classmethod
    def option_names(cls) -> frozenset[str]:
        return frozenset(field.name for field in fields(cls))


def client_config(
    bootstrap: str | Sequence[str], options: Mapping[str, Any], *, client: str = "a client"
) -> ClientConfig:
    """Make a `ClientConfig` of the keywords of `client`, such as "kwire.Admin", which has no options of its own."""
    check_names(client, bootstrap, options, ClientConfig)
    return ClientConfig(bootstrap, **options)


def parse_bootstrap(bootstrap: object) -> list[tuple[str, int]]:
    """Split "host:port,[::1]:port,host" into (host, port) pairs; the port defaults to 9092.

    Also a sequence of such texts. Raises ConfigurationError for what is no address.
    """
    entries: Sequence[object]
    if isinstance(bootstrap, str):
        entries = bootstrap.split(",")
    elif isinstance(bootstrap, Sequence) and not isinstance(bootstrap, (bytes, bytearray, memoryview)):
        entries = bootstrap
    else:
        raise _no_bootstrap(bootstrap)
    addresses = []
    for entry in entries:
        if not isinstance(entry, str):
            raise _no_bootstrap(bootstrap)
        if entry.strip():
            addresses.append(_parse_address(entry.strip()))
    if not addresses:
        raise ConfigurationError("no bootstrap address", remedy='give "host:port" of one or more brokers')
    return addresses


def _no_bootstrap(bootstrap: object) -> ConfigurationError:
    if type(bootstrap).__module__.startswith("kwire.broker"):
        return ConfigurationError(
            "bootstrap is the embedded kwire.broker.Cluster",
            remedy="give its `bootstrap`; the Cluster that clients can share is kwire.Cluster(cluster.bootstrap)",
        )
    return ConfigurationError(
        f"bootstrap is {bootstrap!r} ({type(bootstrap).__name__})",
        remedy='give "host:port,host:port" as one str, or a list of "host:port"',
    )


def _parse_address(entry: str) -> tuple[str, int]:
    wrong = ConfigurationError(
        f"bootstrap address {entry!r} is not host:port",
        remedy='give "host:port" alone for each broker: with commas between them in a str, or in a list',
    )
    host, port_text = entry, str(DEFAULT_PORT)
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise wrong
        port_text = rest[1:] if rest else port_text
    elif entry.count(":") == 1:
        host, _, port_text = entry.partition(":")
    elif _IPV6.fullmatch(entry):
        raise ConfigurationError(f"bootstrap address {entry!r} is ambiguous", remedy="write IPv6 as [address]:port")
    elif ":" in entry:
        raise wrong
    is_port = port_text.isascii() and port_text.isdigit() and 0 < int(port_text) < 65536
    if not host or _NO_HOST.search(host) or not is_port:
        raise wrong
    return host, int(port_text)
