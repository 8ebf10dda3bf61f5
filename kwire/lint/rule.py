"""A rule: what it looks for, and how it tells. Findings about the same subject are one, with their packets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, TypeVar

from kwire.protocol import ApiKey

if TYPE_CHECKING:
    from kwire.lint.world import Seen, World

K = TypeVar("K")
V = TypeVar("V")
# Of each finding; the count goes on.
PACKETS_MAX = 8
KEYS_MAX = 10_000


class Level(IntEnum):
    """How bad a finding is. `info` is worth knowing, and true of many healthy clients."""

    INFO = 0
    WARN = 1
    ERROR = 2

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(slots=True)
class Finding:
    """What a rule found about a subject: a client, a group, a transactional id, a broker.

    `packets` are the numbers of the first packets that show it. `because_of` is the finding that explains this one.
    """

    rule: type[Rule]
    subject: str
    text: str
    at_ns: int
    packets: list[int] = field(default_factory=list)
    count: int = 0
    clients: set[str] = field(default_factory=set)
    because_of: Finding | None = None


class PerKey(dict[K, V]):
    """A value for each key, made when the key is new. Of more than KEYS_MAX keys the oldest is dropped."""

    def __init__(self, make: Callable[[], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        if len(self) >= KEYS_MAX:
            del self[next(iter(self))]
        value = self[key] = self._make()
        return value


class Window:
    """The newest events, as many as matter: whether so many came within a time."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def add(self, at: float, count: float, seconds: float) -> bool:
        """Note an event; return whether the newest `count` came within `seconds`."""
        self._times.append(at)
        while len(self._times) > count:
            self._times.popleft()
        return len(self._times) >= count and at - self._times[0] <= seconds


def thresholds(**limits: float) -> dict[str, float]:
    """Return the limits of a rule by name."""
    return limits


class Rule:
    """One instance per run. `apis` are those whose exchanges `see` gets; all, if there are none.

    `limits` are the thresholds by name, which a rule file may change; `explanation` and `fix` are for `--explain`.
    `counts` has events by subject, for rules that need no other memory.
    """

    id: ClassVar[str]
    name: ClassVar[str]
    level: ClassVar[Level]
    title: ClassVar[str]
    explanation: ClassVar[str]
    fix: ClassVar[str]
    apis: ClassVar[tuple[ApiKey, ...]] = ()
    limits: ClassVar[dict[str, float]] = {}

    def __init__(self, world: World, limits: dict[str, float]) -> None:
        self.world = world
        self.limit = {**self.limits, **limits}
        self.findings: dict[str, Finding] = {}
        self.counts: PerKey[str, int] = PerKey(int)

    def see(self, seen: Seen) -> None:
        """Look at an exchange."""

    def end(self) -> None:
        """Look back at the end of the capture."""

    def report(
        self, subject: str, text: str, seen: Seen | None = None, *, packets: Iterable[int] = (), at_ns: int = 0,
        client: str = "",
    ) -> None:  # fmt: skip
        """Add to the finding about a subject; the newest text stays."""
        if subject not in self.findings and len(self.findings) >= KEYS_MAX:
            return
        first = seen.at_ns if seen is not None else at_ns
        found = self.findings.setdefault(subject, Finding(type(self), subject, text, first))
        found.text = text
        found.count += 1
        found.clients.add(seen.client.key if seen is not None else client or subject)
        for number in [*packets, *((seen.packet,) if seen is not None else ())]:
            if number not in found.packets and len(found.packets) < PACKETS_MAX:
                found.packets.append(number)


RULES: dict[str, type[Rule]] = {}


def rule(id: str, name: str, level: Level) -> Callable[[type[Rule]], type[Rule]]:
    """Register a class as the rule with this id. Its docstring has title, explanation and fix, a paragraph each."""

    def register(cls: type[Rule]) -> type[Rule]:
        assert id not in RULES
        title, explanation, fix = (" ".join(part.split()) for part in (cls.__doc__ or "").strip().split("\n\n"))
        cls.id, cls.name, cls.level = id, name, level
        cls.title, cls.explanation, cls.fix = title.rstrip("."), explanation, fix.removeprefix("Fix: ")
        RULES[id] = cls
        return cls

    return register
