"""Run rules over the exchanges of captures, and put the findings in order, each with what explains it."""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

from kwire.capture import Exchange, KeyLog, Remark, is_unreadable, read_exchanges
from kwire.capture.filters import Filter
from kwire.errors import ConfigurationError
from kwire.lint import consume_rules, group_rules, network_rules, other_rules, produce_rules
from kwire.lint.rule import RULES as _REGISTERED
from kwire.lint.rule import Finding, Level, Rule
from kwire.lint.tcp_facts import TcpConnection, read_tcp
from kwire.lint.world import ASSUMED, Seen, World
from kwire.protocol import ApiKey

# Imported for the rules that they register.
_FILES = (produce_rules, consume_rules, group_rules, network_rules, other_rules)
_FAMILIES = "PCGNVQST"
RULES: dict[str, type[Rule]] = dict(
    sorted(_REGISTERED.items(), key=lambda item: (_FAMILIES.index(item[0][0]), item[0]))
)
# A finding of the first rule is explained by one of the others about the same client, group or transactional id.
BECAUSE_OF: Mapping[str, tuple[str, ...]] = {
    "T02": ("T01",), "T03": ("T05",), "G07": ("C07", "G08"), "G01": ("C07", "G08", "G03"), "P07": ("P11", "N07"),
    "N06": ("N08",), "Q02": ("Q01",), "P13": ("P09", "Q01"), "P09": ("Q01",), "N01": ("N03",), "N03": ("S01",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """Which rules run, their thresholds by "P03.requests", and what to assume of clients' configs."""

    rules: tuple[str, ...] = tuple(RULES)
    limits: Mapping[str, float] = field(default_factory=dict)
    assumed: Mapping[str, float] = field(default_factory=dict)
    own: Mapping[str, type[Rule]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, select: Iterable[str] = (), ignore: Iterable[str] = (), *, rule_file: str | None = None,
        assume: Mapping[str, float] | None = None,
    ) -> Settings:  # fmt: skip
        """Make settings of ids or families ("P", "G01"), and of a rule file. Raises ConfigurationError."""
        chosen, dropped = _ids(select) or list(RULES), set(_ids(ignore))
        limits: dict[str, float] = {}
        own: dict[str, type[Rule]] = {}
        assumed = dict(assume or {})
        if rule_file is not None:
            found = _read_rule_file(rule_file)
            own = {id: own_rule(id, given) for id, given in found.get("rule", {}).items()}
            limits = {
                f"{id}.{name}": number
                for id, values in found.get("limits", {}).items()
                for name, number in values.items()
            }
            assumed = {**found.get("assume", {}), **assumed}
        for name, value in (*limits.items(), *assumed.items()):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
                raise ConfigurationError(f"{name} is {value!r}", remedy="give a number of 0 or more")
        for name in limits:
            id, _, limit = name.partition(".")
            if id not in RULES or limit not in RULES[id].limits:
                known = ", ".join(RULES[id].limits) if id in RULES else "`kwire lint --explain all` lists the rules"
                raise ConfigurationError(f"there is no limit {name}", remedy=known or f"{id} has none")
        for name in assumed:
            if name not in ASSUMED:
                raise ConfigurationError(f"{name} cannot be assumed", remedy=f"give one of {', '.join(ASSUMED)}")
        return cls(tuple(id for id in chosen if id not in dropped), limits, assumed, own)


def _ids(texts: Iterable[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        for part in filter(None, (one.strip().upper() for one in text.split(","))):
            matching = [id for id in RULES if id == part or id[0] == part or RULES[id].name.upper() == part]
            if not matching:
                raise ConfigurationError(
                    f"there is no rule {part}", remedy=f"rules are {', '.join(RULES)}, families {', '.join(_FAMILIES)}"
                )
            found += matching
    return list(dict.fromkeys(found))


def _read_rule_file(path: str) -> dict[str, Any]:
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(
            f"{path} is no rule file: {error}", remedy="write TOML: [limits.P03] requests = 50"
        ) from None
    unknown = found.keys() - {"limits", "assume", "rule"}
    if unknown:
        raise ConfigurationError(f"{path} has {', '.join(unknown)}", remedy="a rule file has limits, assume and rule")
    tables = [(name, found[name]) for name in found]
    tables += [(f"{name}.{id}", one) for name, table in tables if name != "assume" and isinstance(table, dict)
               for id, one in table.items()]  # fmt: skip
    for name, table in tables:
        if not isinstance(table, dict):
            raise ConfigurationError(f"{name} in {path} is {table!r}", remedy=f"write a table: [{name}]")
    return found


class _OwnRule(Rule):
    """A rule of a rule file: an exchange that its filter accepts is a finding about the client."""

    accepts: Filter
    text: str

    def see(self, seen: Seen) -> None:
        if self.accepts.accepts(seen.exchange):
            self.report(seen.client.key, self.text, seen)


def own_rule(id: str, given: Mapping[str, Any]) -> type[Rule]:
    """Return a rule of a rule file: `where` is a filter, `level`, `text` and `fix` are what to tell of it."""
    unknown = given.keys() - {"where", "level", "text", "fix"}
    if unknown or "where" not in given or id in RULES:
        why = (
            f"it has {', '.join(unknown)}"
            if unknown
            else "there is one with this id"
            if id in RULES
            else "it has no where"
        )
        raise ConfigurationError(f"rule {id}: {why}", remedy='give where = "FILTER", and level, text, fix')
    try:
        level = Level[str(given.get("level", "warn")).upper()]
    except KeyError:
        raise ConfigurationError(f"rule {id}: level is {given['level']!r}", remedy="give info, warn or error") from None
    text = str(given.get("text", given["where"]))
    parts = {
        "id": id, "name": id, "level": level, "title": text, "explanation": f"A rule of your own: {given['where']}",
        "fix": str(given.get("fix", "")), "accepts": Filter(str(given["where"])), "text": text,
    }  # fmt: skip
    return type(f"Own{id}", (_OwnRule,), parts)


@dataclass(frozen=True, slots=True)
class LintReport:
    """The findings, worst first; how much was read; what could not be."""

    findings: list[Finding]
    exchanges: int
    connections: int
    remarks: Sequence[Remark] = ()

    @property
    def problems(self) -> list[str]:
        """Return what could not be read."""
        return [str(remark) for remark in self.remarks if remark.is_problem]

    @property
    def is_unreadable(self) -> bool:
        return is_unreadable(self.exchanges, self.remarks)

    def at_least(self, level: Level) -> list[Finding]:
        return [finding for finding in self.findings if finding.rule.level >= level]


class Linter:
    """Rules that are fed exchange by exchange."""

    def __init__(self, settings: Settings | None = None, tcp: Sequence[TcpConnection] = ()) -> None:
        self._settings = settings or Settings()
        self.world = World(list(tcp), self._settings.assumed)
        self._rules = [RULES[id](self.world, self._limits(id)) for id in self._settings.rules]
        self._rules += [own(self.world, {}) for own in self._settings.own.values()]
        self._by_api: dict[ApiKey | None, list[Rule]] = defaultdict(list)
        for key in (*ApiKey, None):
            self._by_api[key] = [rule for rule in self._rules if not rule.apis or key in rule.apis]
        self.exchanges = 0
        self._connections: set[int] = set()
        self._told: Counter[Rule] = Counter()  # how many findings of each rule `news` has returned

    def add(self, exchange: Exchange) -> None:
        """Show an exchange to the rules."""
        self.exchanges += 1
        self._connections.add(exchange.connection.number)
        seen = self.world.learn(exchange)
        for rule in self._by_api[seen.key]:
            rule.see(seen)

    def news(self) -> list[Finding]:
        """Return the findings since the last call, each with what is known of it so far."""
        found = [
            finding
            for rule in self._rules
            if len(rule.findings) > self._told[rule]
            for finding in [*rule.findings.values()][self._told[rule] :]
        ]
        for rule in self._rules:
            self._told[rule] = len(rule.findings)
        return found

    def findings(self) -> list[Finding]:
        """End, and return the findings: errors first, in the order of the rules and of time."""
        for rule in self._rules:
            rule.end()
        order = {id: number for number, id in enumerate([*RULES, *self._settings.own])}
        found = [finding for rule in self._rules for finding in rule.findings.values()]
        _explain(found)
        for finding in found:
            finding.subject = self.world.named(finding.subject)
        return sorted(found, key=lambda one: (-one.rule.level, order[one.rule.id], one.at_ns))

    def report(self, remarks: Sequence[Remark] = ()) -> LintReport:
        return LintReport(self.findings(), self.exchanges, len(self._connections), remarks)

    def _limits(self, id: str) -> dict[str, float]:
        return {
            name.partition(".")[2]: number
            for name, number in self._settings.limits.items()
            if name.startswith(f"{id}.")
        }


def lint_file(path: str, settings: Settings | None = None, *, key_log: KeyLog | None = None) -> LintReport:
    """Lint a capture: pcap or pcapng. It is read twice, first for how connections begin and end."""
    return lint_capture(lambda: open(path, "rb"), settings, key_log=key_log)


def lint_capture(
    opened: Callable[[], BinaryIO], settings: Settings | None = None, *, key_log: KeyLog | None = None
) -> LintReport:
    """Lint a capture that is no file of this machine: `opened` opens it at its beginning, and is called twice."""
    with opened() as file:
        linter = Linter(settings, read_tcp(file))
    remarks: list[Remark] = []

    def note(remark: Remark) -> None:
        remarks.append(remark)
        linter.world.is_lossy = linter.world.is_lossy or remark.is_problem

    with opened() as file:
        for exchange in read_exchanges(file, on_remark=note, key_log=key_log):
            linter.add(exchange)
    return linter.report(remarks)


def _explain(findings: list[Finding]) -> None:
    by_rule: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_rule[finding.rule.id].append(finding)
    for finding in findings:
        causes = [cause for id in BECAUSE_OF.get(finding.rule.id, ()) for cause in by_rule[id]]
        finding.because_of = next(
            (cause for cause in causes if cause.subject == finding.subject or cause.clients & finding.clients), None
        )
