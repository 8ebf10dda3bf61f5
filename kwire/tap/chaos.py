"""Rules by which a tap disturbs the traffic: late, lost and throttled responses, connections that end.

    [[rule]]
    api = ["Produce", "Fetch"]   # default: all
    client = "billing-*"         # client id, with * and ?; default: all
    chance = 0.1                 # default: always
    after = 10                   # let so many pass first
    times = 5                    # then disturb so many; default: without end
    delay_ms = 200               # the response comes later; those behind it wait, too
    jitter_ms = 50               # by up to so much more
    mute = true                  # the response never comes
    disconnect = "before"        # the connection ends instead of the request; "after": instead of the response
    throttle_ms = 500            # the response asks the client to wait

The same seed gives the same decisions for the same requests in the same order.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

from kwire.errors import ConfigurationError
from kwire.option_checks import did_you_mean
from kwire.protocol import ApiKey


@dataclass(slots=True)
class Rule:
    """One rule; see the module for its fields. `seen` counts requests that match, `done` disturbed ones."""

    api: frozenset[int] = frozenset()
    client: str = "*"
    chance: float = 1.0
    after: int = 0
    times: int | None = None
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    mute: bool = False
    disconnect: str | None = None
    throttle_ms: int = 0
    seen: int = 0
    done: int = 0

    def is_for(self, key: int, client_id: str | None, random: Random) -> bool:
        """Return whether the rule disturbs this request. Counts it."""
        if (self.api and key not in self.api) or not fnmatchcase(client_id or "", self.client):
            return False
        self.seen += 1
        if self.seen <= self.after or (self.times is not None and self.done >= self.times):
            return False
        if self.chance < 1 and random.random() >= self.chance:
            return False
        self.done += 1
        return True


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What all rules that apply to one request ask for together."""

    delay: float = 0.0  # seconds
    mute: bool = False
    disconnect: str | None = None
    throttle_ms: int = 0


NOTHING = Disturbance()


class Chaos:
    """Decides for each request. Random numbers come from one seed."""

    def __init__(self, rules: Sequence[Rule], seed: int = 0) -> None:
        self.rules = list(rules)
        self._random = Random(seed)

    def decide(self, key: int, client_id: str | None) -> Disturbance:
        met = [rule for rule in self.rules if rule.is_for(key, client_id, self._random)]
        if not met:
            return NOTHING
        return Disturbance(
            sum(rule.delay_ms + self._random.random() * rule.jitter_ms for rule in met) / 1000,
            any(rule.mute for rule in met),
            next((rule.disconnect for rule in met if rule.disconnect), None),
            max(rule.throttle_ms for rule in met),
        )


def load_rules(path: str | Path) -> list[Rule]:
    """Read rules from a TOML file. Raises ConfigurationError that names the rule and the key."""
    try:
        document = tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"the rules in {path} cannot be read: {error}") from None
    listed = document.get("rule")
    if not isinstance(listed, list) or not listed or document.keys() != {"rule"}:
        raise ConfigurationError(f"{path} has no rules", remedy="write each below a line [[rule]]")
    return [_rule(one, f"rule {number} of {path}") for number, one in enumerate(listed, 1)]


_TYPES: dict[str, tuple[type, ...]] = {
    "client": (str,), "chance": (int, float), "after": (int,), "times": (int,), "delay_ms": (int, float),
    "jitter_ms": (int, float), "mute": (bool,), "disconnect": (str,), "throttle_ms": (int,),
}  # fmt: skip
_LARGEST_INT = 2**31 - 1  # of throttle_ms in a response; as a delay it is 24 days
_LARGEST = {"chance": 1}
_EFFECTS = ("delay_ms", "jitter_ms", "mute", "disconnect", "throttle_ms")


def _rule(given: Any, where: str) -> Rule:
    if not isinstance(given, dict):
        raise ConfigurationError(f"{where} is {given!r}", remedy="write each below a line [[rule]]")
    known = [one.name for one in fields(Rule) if one.name not in ("seen", "done")]
    for name, value in given.items():
        if name not in known:
            remedy = did_you_mean(name, known) or f"a rule has {', '.join(known)}"
            raise ConfigurationError(f"{where} has an unknown key {name}", remedy=remedy)
        is_bool = isinstance(value, bool)
        if name != "api" and (not isinstance(value, _TYPES[name]) or (is_bool and bool not in _TYPES[name])):
            raise ConfigurationError(f"{name} of {where} is {value!r}")
        if isinstance(value, int | float) and not 0 <= value <= _LARGEST.get(name, _LARGEST_INT):
            most = _LARGEST.get(name, _LARGEST_INT)
            raise ConfigurationError(f"{name} of {where} is {value!r}", remedy=f"give a number from 0 to {most:,}")
    if given.get("disconnect") not in (None, "before", "after"):
        raise ConfigurationError(f"disconnect of {where} is {given['disconnect']!r}", remedy='give "before" or "after"')
    if not any(given.get(name) for name in _EFFECTS):
        raise ConfigurationError(f"{where} does nothing", remedy=f"give one of {', '.join(_EFFECTS)}")
    apis = given.pop("api", [])
    if not isinstance(apis, str | list):
        raise ConfigurationError(f"api of {where} is {apis!r}", remedy='give a name, or a list: ["Produce", "Fetch"]')
    return Rule(api=frozenset(_key(text, where) for text in ([apis] if isinstance(apis, str) else apis)), **given)


def _key(text: object, where: str) -> int:
    by_name = {key.api_name.lower(): int(key) for key in ApiKey}
    found = by_name.get(str(text).lower())
    if found is None:
        names = [key.api_name for key in ApiKey]
        raise ConfigurationError(f"api of {where}: there is no API {text}", remedy=did_you_mean(str(text), names))
    return found
