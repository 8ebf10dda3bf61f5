"""The vocabulary of a plan: disturbances and work, as small values that can be printed, reduced and replayed.

`run.Injector` carries disturbances out; `scenario.plan` draws them from a seed. A disturbance names its target (a
client, a broker, a partition) and never refers to an object, so it means the same when others are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kwire.broker.faults import Effect
from kwire.protocol import ApiKey

Toward = Literal["broker", "client", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutConnection:
    """Cut the newest connection after `after_bytes` more bytes in one direction. `client` None: of any client."""

    at: float
    node: int
    client: str | None = None
    toward: Toward = "broker"
    after_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Keep the newest connection open at both ends, but deliver nothing any more."""

    at: float
    node: int
    client: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Hold bytes in a direction for `seconds`, then deliver them: a paused broker process, or a flapping route.

    They also arrive if the client has timed out meanwhile.
    """

    at: float
    node: int
    seconds: float
    client: str | None = None
    toward: Toward = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trickle:
    """Deliver bytes in a direction a few at a time."""

    at: float
    node: int
    seconds: float
    client: str | None = None
    toward: Toward = "client"
    chunk_bytes: int = 7
    pause: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseConnections:
    """Refuse new connections; with `swallows` drop their packets instead."""

    at: float
    node: int
    seconds: float
    swallows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopBroker:
    """Stop a broker and start it after `seconds`. What its followers lack is lost where it leads.

    With `is_silent` its connections stay open.
    """

    at: float
    node: int
    seconds: float
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLeader:
    """Move a partition to another in-sync broker; with `is_same` to the same broker in a new epoch."""

    at: float
    topic: str
    partition: int
    is_same: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanElection:
    """Elect a replica that is not in sync: the newest `lost` records are lost, acknowledged or not.

    Kafka does it with `unclean.leader.election.enable`. It may lose records, but must not reorder them.
    """

    at: float
    topic: str
    partition: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpClock:
    """Set the wall clock of all clients; their monotonic clock continues."""

    at: float
    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LagMetadata:
    """Let a broker return the metadata of time `at` for `seconds`."""

    at: float
    node: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Throttle clients in the next `times` produce responses of a broker, or with `is_all` in those to all requests."""

    at: float
    node: int
    ms: int
    times: int = 1
    is_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCoordinators:
    """Let other brokers coordinate all groups and transactions, while all of them run."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailRequests:
    """Add a fault of `kwire.broker.faults`. `after` skips that many requests first."""

    at: float
    api: ApiKey
    effect: Effect
    node: int | None = None
    topic: str | None = None
    partition: int | None = None
    times: int = 1
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetProducers:
    """Drop a partition's producer state."""

    at: float
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    at: float
    topic: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    at: float
    topic: str
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecreateTopic:
    """Delete a topic and create it after `seconds`; with `keeps_leaders` under the same leaders."""

    at: float
    topic: str
    partitions: int
    seconds: float
    keeps_leaders: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseProducer:
    at: float
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Start another instance with the client's transactional id while the present one continues."""

    at: float
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMember:
    """Kill a member's process, and start another after `seconds`. With `is_silent` its connections stay open."""

    at: float
    member: str
    seconds: float
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeMember:
    """Stop a member's process, network included, for `seconds`."""

    at: float
    member: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseMember:
    """Have a member close its consumer and start again. `leave` is the argument of `close`."""

    at: float
    member: str
    leave: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowMember:
    """Have a member work on its next record for `seconds`."""

    at: float
    member: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseInCallback:
    """Have a member raise in its next `times` callbacks."""

    at: float
    member: str
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseMember:
    """Have a member pause all its partitions for `seconds`."""

    at: float
    member: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekMember:
    """Have a member go back a few records in each of its partitions."""

    at: float
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KillAtRequest:
    """Kill a member's process when it sends a request, or has its response; start another after `seconds`."""

    at: float
    member: str
    api: ApiKey
    is_answered: bool
    after: int  # how many such requests come first
    seconds: float
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpBrokerClocks:
    """Let the brokers' clock be another one: new leaders, whose clock is wrong."""

    at: float
    ms: int


MemberDisturbance = KillMember | FreezeMember | CloseMember | SlowMember | RaiseInCallback | PauseMember | SeekMember

Disturbance = (
    UncleanElection | JumpClock | CutConnection | Silence | Hold | Trickle | RefuseConnections | StopBroker | MoveLeader
    | LagMetadata | Throttle | MoveCoordinators
    | FailRequests | ForgetProducers | CreateTopic | AddPartitions | RecreateTopic | CloseProducer
    | Rival
    | MemberDisturbance
    | KillAtRequest | JumpBrokerClocks
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send `count` records at once."""

    at: float
    client: str
    topic: str
    partition: int | None = None
    key: bytes | None = None
    size: int = 0
    count: int = 1
    timeout: float | None = None  # of these records, in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    at: float
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transact:
    """Run a transaction of these sends, with `pause` seconds after each."""

    at: float
    client: str
    sends: tuple[Send, ...]
    pause: float
    is_commit: bool


Work = Send | Flush | Transact
