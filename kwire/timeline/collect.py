"""The exchanges of a capture as a timeline: lanes, bars, ribbons of groups and transactions, findings of the linter."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kwire.capture import Exchange, KeyLog, Remark, read_exchanges
from kwire.capture.filters import Filter, short_values
from kwire.capture.secrets import MASKED, Redaction
from kwire.capture.summary import is_routine, summary
from kwire.lint import Finding, Level, Linter
from kwire.lint.tcp_facts import TcpConnection, read_tcp
from kwire.timeline.details import exchange_details
from kwire.timeline.families import Family, family_of
from kwire.timeline.ribbons import Ribbon, Ribbons

BARS_MAX = 50_000


@dataclass(slots=True)
class Bar:
    """An exchange as it is drawn. Times are nanoseconds since 1970; `end_ns` None: no response is in the capture."""

    at_ns: int
    end_ns: int | None
    lane: int  # the number of its connection
    api: str
    family: Family
    version: int
    is_error: bool
    is_routine: bool  # all its errors belong to normal operation
    text: str
    packets: tuple[int, ...]
    sizes: tuple[int, int]
    values: dict[str, list[Any]] = field(default_factory=dict)  # of the names of filters
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Lane:
    """A connection. `closed_by` is client or broker, empty if its end is not in the capture."""

    number: int
    client: str  # the program, as the linter tells one from another
    software: str
    ends: tuple[str, str]
    opened_ns: int | None = None
    closed_ns: int | None = None
    closed_by: str = ""


@dataclass(slots=True)
class Timeline:
    """What a page or a text shows of a capture."""

    name: str
    bars: list[Bar]
    lanes: dict[int, Lane]
    ribbons: list[Ribbon]
    findings: list[Finding]
    redaction: Redaction
    left_out: int = 0  # exchanges beyond the limit
    filtered: int = 0
    where: str = ""
    remarks: list[Remark] = field(default_factory=list)

    @property
    def begin_ns(self) -> int:
        return min((bar.at_ns for bar in self.bars), default=0)

    @property
    def end_ns(self) -> int:
        return max((bar.end_ns or bar.at_ns for bar in self.bars), default=0)

    @property
    def exchanges(self) -> int:
        """Return how many exchanges are in the capture, drawn or not."""
        return len(self.bars) + self.left_out + self.filtered

    @property
    def errors(self) -> int:
        return sum(bar.is_error and not bar.is_routine for bar in self.bars)

    def lanes_by_client(self) -> dict[str, list[Lane]]:
        """Return the lanes with bars, those of a client together, in the order of their first bar."""
        found: dict[str, dict[int, Lane]] = {}
        for bar in self.bars:
            lane = self.lanes[bar.lane]
            found.setdefault(lane.client, {})[lane.number] = lane
        return {client: list(lanes.values()) for client, lanes in found.items()}


def collect_timeline(
    path: str | Path, *, where: Filter | None = None, ports: tuple[int, ...] = (), redaction: Redaction = MASKED,
    bars_max: int = BARS_MAX, with_details: bool = True, key_log: KeyLog | None = None,
) -> Timeline:  # fmt: skip
    """Read a capture: pcap or pcapng. The linter and the ribbons see all exchanges, whatever `where` accepts.

    `with_details` False leaves out the messages, which the text does not show.
    """
    with open(path, "rb") as file:
        tcp = read_tcp(file)
    linter, ribbons = Linter(tcp=tcp), Ribbons()
    found = Timeline(Path(path).name, [], {}, [], [], redaction, where=where.text if where else "")

    def note(remark: Remark) -> None:
        found.remarks.append(remark)
        linter.world.is_lossy |= remark.is_problem

    for exchange in read_exchanges(path, ports=ports, redaction=redaction, on_remark=note, key_log=key_log):
        linter.add(exchange)
        ribbons.add(exchange)
        if where is not None and not where.accepts(exchange):
            found.filtered += 1
        elif len(found.bars) >= bars_max:
            found.left_out += 1
        else:
            found.bars.append(_bar(exchange, with_details=with_details))
            _add_lane(found, exchange)
    found.bars.sort(key=lambda bar: bar.at_ns)
    found.ribbons = ribbons.all()
    found.findings = [one for one in linter.findings() if one.rule.level > Level.INFO]
    _name_lanes(found, linter, tcp)
    return found


def _bar(exchange: Exchange, *, with_details: bool) -> Bar:
    latency_ns = exchange.pair.response.latency_ns if exchange.pair.response is not None else None
    return Bar(
        exchange.at_ns,
        None if latency_ns is None else exchange.at_ns + latency_ns,
        exchange.connection.number,
        exchange.api_name,
        family_of(exchange.api.key if exchange.api else None, is_token=exchange.pair.frame.is_token),
        exchange.version,
        is_error=bool(exchange.errors or exchange.problems),
        is_routine=is_routine(exchange) and not exchange.problems,
        text=summary(exchange),
        packets=exchange.packets,
        sizes=(exchange.request_bytes, exchange.response_bytes),
        values=short_values(exchange) if with_details else {},
        details=exchange_details(exchange) if with_details else {},
    )


def _add_lane(found: Timeline, exchange: Exchange) -> None:
    connection = exchange.connection
    lane = found.lanes.get(connection.number)
    if lane is None:
        ends = connection.client, connection.broker
        lane = found.lanes[connection.number] = Lane(connection.number, exchange.client_id or ends[0], "", ends)
    lane.software = exchange.software or lane.software


def _name_lanes(found: Timeline, linter: Linter, tcp: list[TcpConnection]) -> None:
    by_ends: dict[tuple[str, str], list[TcpConnection]] = {}
    for connection in tcp:
        by_ends.setdefault((connection.client, connection.broker), []).append(connection)
    programs: dict[str, set[str]] = {}
    clients = {number: linter.world.client_on(number) for number in found.lanes}
    for one in filter(None, clients.values()):
        programs.setdefault(one.program, set()).add(one.use)
    for lane in found.lanes.values():
        client = clients[lane.number]
        if client is not None:
            # Of a program with one group or transactional id, all connections are one client's.
            uses = programs[client.program] - {""}
            lane.client = client.label if len(uses) > 1 else " / ".join([client.name, *uses])
        began = by_ends.get(lane.ends)
        if began:
            first = began.pop(0)
            lane.opened_ns = int(first.began_at * 1e9)
            if first.closed_at is not None:
                lane.closed_ns, lane.closed_by = int(first.closed_at * 1e9), first.closed_by
