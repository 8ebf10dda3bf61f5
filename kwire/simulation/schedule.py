"""What is to go wrong in a run, and when: a list of small values that can be printed, cut down and replayed.

Owns the vocabulary of faults. Carrying them out is `inject`'s, drawing them from a seed `chance`'s. A fault names what
it befalls (a client, a broker, a partition), never an object, so that a list from which some are left out still means
what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kwire.broker.faults import Effect
from kwire.protocol import ApiKey

Toward = Literal["broker", "client", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutConnection:
    """The newest connection between the two ends after so many more bytes in one direction. None: any client."""

    at: float
    node: int
    client: str | None = None
    toward: Toward = "broker"
    after_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """The newest connection stays open at both ends, and nothing gets through any more."""

    at: float
    node: int
    client: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Bytes in that direction wait for `seconds` and then arrive: a pause of the broker's process, a route that flaps.
    When the client gives up meanwhile, they arrive late."""

    at: float
    node: int
    seconds: float
    client: str | None = None
    toward: Toward = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trickle:
    """Bytes in that direction come few at a time."""

    at: float
    node: int
    seconds: float
    client: str | None = None
    toward: Toward = "client"
    chunk_bytes: int = 7
    pause: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseConnections:
    """New connections are refused; with `swallows`, nobody answers at all."""

    at: float
    node: int
    seconds: float
    swallows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopBroker:
    """The broker dies and is back after `seconds`. What followers did not have yet is lost with a leader. `is_silent`:
    its connections do not end."""

    at: float
    node: int
    seconds: float
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLeader:
    """Another broker that is in sync leads from now on. `is_same`: the same one does, in a new epoch."""

    at: float
    topic: str
    partition: int
    is_same: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanElection:
    """A replica that was not in sync becomes the leader: the newest `lost` records are gone, acknowledged or not.

    What Kafka does under `unclean.leader.election.enable`; it may lose records, and must not bring them out of order.
    """

    at: float
    topic: str
    partition: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpClock:
    """The wall clock of all clients is set to another time; their monotonic clock goes on."""

    at: float
    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LagMetadata:
    """One broker tells the metadata of `at` for so long."""

    at: float
    node: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    at: float
    node: int
    ms: int
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FailRequests:
    """See `kwire.broker.faults`. With `after` it is not time that chooses the requests, but their number."""

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
    """A partition no longer knows its producers' sequences."""

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
    """The topic is deleted, and made again after `seconds`. `keeps_leaders`: the same brokers lead its partitions."""

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
    """Another instance with the client's transactional id begins, while the present one goes on."""

    at: float
    client: str


Disturbance = (
    UncleanElection | JumpClock | CutConnection | Silence | Hold | Trickle | RefuseConnections | StopBroker | MoveLeader
    | LagMetadata | Throttle
    | FailRequests | ForgetProducers | CreateTopic | AddPartitions | RecreateTopic | CloseProducer
    | Rival
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """`count` records in one go."""

    at: float
    client: str
    topic: str
    partition: int | None = None
    key: bytes | None = None
    size: int = 0
    count: int = 1
    timeout: float | None = None  # seconds, of the records' own


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    at: float
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transact:
    """A transaction of these sends, `pause` seconds after each."""

    at: float
    client: str
    sends: tuple[Send, ...]
    pause: float
    is_commit: bool


Work = Send | Flush | Transact
