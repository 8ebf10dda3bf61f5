"""How to greet each broker: with ApiVersions, or, before 0.10, without. Learnt from how its connections end.

A broker before 0.10 closes the connection on a request that it does not know. So does, for other reasons, a newer one
that is being stopped, or a balancer in front of one that is still starting; and whoever takes such a broker for an old
one sends it record formats without sequences from then on, and duplicates with them. Hence the proof:

    UNKNOWN    -- greetings end twice in a row --> a probe: a connection without ApiVersions that asks one question
    UNKNOWN    -- the probe is answered         --> SUSPECTED: it is greeted with ApiVersions once more
    SUSPECTED  -- that ends again               --> OLD: greeted without, until such a connection ends unanswered
    SUSPECTED  -- that is answered              --> UNKNOWN; and so is OLD when nothing is answered any more

Once any broker has answered ApiVersions the cluster is not from before 0.10, and no further one is taken for old.
It makes no connection; `connections` asks it and tells it.
"""

from __future__ import annotations

from enum import Enum, auto

Address = tuple[str, int]

_ENDS_BEFORE_A_PROBE = 2


class Greeting(Enum):
    API_VERSIONS = auto()
    PROBE = auto()
    OLD = auto()


class _Stage(Enum):
    UNKNOWN = auto()
    SUSPECTED = auto()
    OLD = auto()


class _Known:
    """Of one address: what the bootstrap connection learnt holds for the broker that it led to."""

    __slots__ = ("ends", "stage")

    def __init__(self) -> None:
        self.ends = 0  # in a row, of greetings with ApiVersions
        self.stage = _Stage.UNKNOWN


class Greetings:
    def __init__(self) -> None:
        self._known: dict[Address, _Known] = {}
        self._is_cluster_modern = False

    def next(self, address: Address) -> Greeting:
        """How to begin the next connection to this address."""
        known = self._of(address)
        if known.stage is _Stage.OLD:
            return Greeting.OLD
        if known.stage is _Stage.UNKNOWN and known.ends >= _ENDS_BEFORE_A_PROBE and not self._is_cluster_modern:
            return Greeting.PROBE
        return Greeting.API_VERSIONS

    def answered(self, address: Address, greeting: Greeting) -> None:
        """A connection that began like this has got an answer."""
        known = self._of(address)
        if greeting is Greeting.API_VERSIONS:
            known.ends, known.stage = 0, _Stage.UNKNOWN
            self._is_cluster_modern = True
        elif greeting is Greeting.PROBE:
            known.ends, known.stage = 0, _Stage.SUSPECTED

    def ended(self, address: Address, greeting: Greeting) -> None:
        """A connection that began like this was closed by the other end before it had answered anything."""
        known = self._of(address)
        if greeting is not Greeting.API_VERSIONS:
            known.ends, known.stage = 0, _Stage.UNKNOWN
        elif known.stage is _Stage.SUSPECTED:
            known.stage = _Stage.OLD
        else:
            known.ends += 1

    def _of(self, address: Address) -> _Known:
        known = self._known.get(address)
        if known is None:
            known = self._known[address] = _Known()
        return known
