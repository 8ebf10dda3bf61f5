"""The timeline as text: a line for each connection, a column for each span of time.

A cell has the letter of the family with the most requests, or `!` if one of them got an error that matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from kwire.capture.times import utc_text_of_ns
from kwire.timeline.collect import Bar, Lane, Timeline
from kwire.timeline.families import FAMILIES
from kwire.timeline.page import about

_LABEL_WIDTH = 34
_CELLS_MIN = 20
_TICK_CELLS = 15


def timeline_text(timeline: Timeline, width: int = 120, *, label_width: int = _LABEL_WIDTH) -> str:
    """Return the timeline in lines of at most `width` characters, as far as that leaves 20 columns of time."""
    return "\n".join(_lines(timeline, max(_CELLS_MIN, width - label_width - 10), label_width)) + "\n"


def _lines(timeline: Timeline, cells: int, label_width: int) -> Iterator[str]:
    yield printable(timeline.name)
    for line in about(timeline):
        yield f"  {printable(line)}"
    if not timeline.bars:
        return
    begin, end = timeline.begin_ns, max(timeline.end_ns, timeline.begin_ns + 1)

    def cell(at_ns: int) -> int:
        return min(cells - 1, max(0, (at_ns - begin) * cells // (end - begin)))

    yield ""
    yield " " * label_width + _axis(begin, end, cells)
    for ribbon in timeline.ribbons:
        row = [" "] * cells
        for span in ribbon.spans:
            mark = {"stable": "="}.get(span.state, span.state[0])
            first, last = cell(span.begin_ns), cell(span.end_ns if span.end_ns is not None else end)
            row[first : last + 1] = mark * (last + 1 - first)
            number = span.text.rpartition(" ")[2] if span.state == "stable" else ""
            row[first : first + len(number)] = number[: last + 1 - first]
        yield f"{_fitted(f'{ribbon.kind} {ribbon.name}', label_width)}{''.join(row[:cells])}"
    by_lane: dict[int, list[Bar]] = {}
    for bar in timeline.bars:
        by_lane.setdefault(bar.lane, []).append(bar)
    for client, lanes in timeline.lanes_by_client().items():
        software = next((lane.software for lane in lanes if lane.software), "")
        yield printable(f"{client}  {software}".rstrip())
        for lane in lanes:
            yield _lane_line(lane, by_lane[lane.number], cells, cell, label_width)
    yield ""
    yield "  ".join(f"{family.letter} {family.name}" for family in FAMILIES) + "  ! error  - waits for a response"
    if timeline.ribbons:
        yield "groups: j members join, = stable, after its generation"
        yield "transactions: o open, c committed, a aborted, f failed"
    for finding in timeline.findings:
        packets = ", ".join(map(str, finding.packets))
        yield printable(
            f"{finding.rule.level.label:5} {finding.rule.id} {finding.rule.name}  {finding.subject}: {finding.text}"
            f"  (packets {packets})"
        )


def _lane_line(lane: Lane, bars: list[Bar], cells: int, cell: Callable[[int], int], label_width: int) -> str:
    counts: list[Counter[str]] = [Counter() for _ in range(cells)]
    row = [" "] * cells
    failed = set()
    for bar in bars:
        first = cell(bar.at_ns)
        counts[first][bar.family.letter] += 1
        for index in range(first, cell(bar.end_ns if bar.end_ns is not None else bar.at_ns) + 1):
            row[index] = "-"
        if bar.is_error and not bar.is_routine:
            failed.add(first)
    order = [family.letter for family in FAMILIES]
    for index, found in enumerate(counts):
        if found:
            row[index] = min(found, key=lambda letter: (-found[letter], order.index(letter)))
    for index in failed:
        row[index] = "!"
    return f"{_fitted(f'  #{lane.number} > {lane.ends[1]}', label_width)}{''.join(row)} {len(bars):>8}"


def _axis(begin: int, end: int, cells: int) -> str:
    row = ""
    for start in range(0, cells - _TICK_CELLS + 3, _TICK_CELLS):
        row = row.ljust(start) + utc_text_of_ns(begin + (end - begin) * start // cells)[11:23] + " "
    return row[:cells]


def _fitted(text: str, width: int) -> str:
    text = printable(text)
    return f"{text if len(text) < width else text[: width - 3] + '..':<{width}}"


def printable(text: str) -> str:
    """Escape control characters: names come from the wire."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
