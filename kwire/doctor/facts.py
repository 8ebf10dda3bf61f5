"""What an examination found: plain data, which the checks judge. A field that is None was not found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kwire.admin import ConfigEntry, Group, GroupLag, Transaction
from kwire.errors import KwireError
from kwire.net import Tls, show_address
from kwire.net.probe import Attempt, Resolved, TlsFacts
from kwire.protocol.messages.metadata import MetadataResponse
from kwire.session import Sasl


@dataclass(frozen=True, slots=True)
class Target:
    """What to examine. `bootstrap` is as the user wrote it, for D02 to judge.

    timeout  seconds for each step
    topic, group, transactional_id  what the client uses, for D24 to D28
    probe    write one record to partition 0 of the topic and read it back (D29)
    environment  the variables of this process, for D03
    """

    bootstrap: str
    tls: Tls | None = None
    sasl: Sasl | None = None
    timeout: float = 5.0
    client_id: str = "kwire-doctor"
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    probe: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Endpoint:
    """A host and port that were visited: from the bootstrap list (`node` is None), or advertised by a broker.

    error           what ended the visit, and `stage`, where: "name", "tcp", "tls", "protocol", "sasl", "metadata"
    mechanisms      those that the listener offers; empty where it does not use SASL
    other_node      the id that the broker has, where it is not the advertised one
    large_bytes     the size of the largest response that arrived; `large_error` why it did not
    speaks          what the port speaks instead of what the client wants, such as "TLS"
    """

    host: str
    port: int
    node: int | None = None
    resolved: Resolved | None = None
    attempts: Sequence[Attempt] = ()
    tls: TlsFacts | None = None
    error: KwireError | None = None
    stage: str = ""
    speaks: str = ""
    versions: Mapping[int, range] | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    mechanisms: tuple[str, ...] | None = None
    is_authenticated: bool = False
    session_lifetime_ms: int = 0
    metadata: MetadataResponse | None = None
    other_node: int | None = None
    large_bytes: int | None = None
    large_error: KwireError | None = None
    seconds: float = 0.0

    @property
    def address(self) -> str:
        return show_address(self.host, self.port)

    @property
    def name(self) -> str:
        """Return how results name it."""
        return self.address if self.node is None else f"broker {self.node} at {self.address}"

    @property
    def is_ok(self) -> bool:
        return self.error is None and self.metadata is not None


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far this machine's clock is ahead of another one (ms), whose clock that is, and the error of this offset."""

    source: str
    ahead_ms: float
    error_ms: float


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The steps of D29 with their seconds. `error` is why it ended early."""

    steps: Mapping[str, float]
    throttle_ms: int = 0
    offset: int | None = None
    error: KwireError | None = None


@dataclass(slots=True)
class Facts:
    """All that was found. `*_error` says why the fact beside it is missing."""

    target: Target
    entries: Sequence[str] = ()
    entry_errors: Mapping[str, str] = field(default_factory=dict)
    interfaces: Sequence[str] = ()
    now_ms: int = 0
    bootstrap: list[Endpoint] = field(default_factory=list)
    advertised: list[Endpoint] = field(default_factory=list)
    tls_config_error: KwireError | None = None
    topic: MetadataResponse.Topic | None = None
    topic_error: KwireError | None = None
    topic_configs: Mapping[str, ConfigEntry] | None = None
    topic_configs_error: KwireError | None = None
    group: Group | None = None
    group_error: KwireError | None = None
    group_operations: int | None = None
    coordinator: int | None = None
    lag: GroupLag | None = None
    lag_error: KwireError | None = None
    log_starts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    transaction: Transaction | None = None
    transaction_error: KwireError | None = None
    probe: ProbeResult | None = None
    controller_error: KwireError | None = None
    clocks: list[ClockOffset] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def endpoints(self) -> list[Endpoint]:
        return [*self.bootstrap, *self.advertised]

    @property
    def first(self) -> Endpoint | None:
        """Return the first endpoint that answered for metadata; bootstrap addresses come first."""
        return next((one for one in self.endpoints if one.is_ok), None)

    @property
    def is_connected(self) -> bool:
        return self.first is not None
