"""The HTML page: the parts of the page put together, with the data packed by gzip in base64.

The browser unpacks the messages of exchanges when they are looked at, a few hundred at a time. Nothing in the data can
end a script element or become markup: base64 has no such characters, and the script only sets text.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from typing import Any

from kwire.capture.times import utc_text_of_ns
from kwire.protocol import ApiKey
from kwire.timeline.collect import Bar, Lane, Timeline
from kwire.timeline.families import FAMILIES, FETCH
from kwire.version import VERSION

_CHUNK_BARS = 256
_ERROR, _ROUTINE, _UNANSWERED, _WAITS = 1, 2, 4, 8  # the same numbers as in page.js
# A broker may take its time to respond, because the client asked for it.
_WAITING = frozenset({ApiKey.JOIN_GROUP.api_name, ApiKey.SYNC_GROUP.api_name})


def timeline_page(timeline: Timeline) -> str:
    """Return the page, which needs no other file and no network."""
    parts = {name: files("kwire.timeline").joinpath(name).read_text("utf-8") for name in (
        "page.html", "page.css", "filter.js", "page.js")}  # fmt: skip
    details = [
        f'<script type="text/plain" id="details-{number}">{_packed(chunk)}</script>'
        for number, chunk in enumerate(_chunks(timeline.bars))
    ]
    values = {
        "title": escape(f"{timeline.name} - kwire timeline"), "style": parts["page.css"],
        "data": _packed(_page_data(timeline)), "details": "\n".join(details), "filter_script": parts["filter.js"],
        "page_script": parts["page.js"],
    }  # fmt: skip
    page = parts["page.html"]
    head, *rest = page.split("{{")
    found = [head]
    for part in rest:
        name, _, after = part.partition("}}")
        found += [values[name], after]
    return "".join(found)


def _packed(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode()


def _chunks(bars: list[Bar]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(bars), _CHUNK_BARS):
        yield [bar.details for bar in bars[start : start + _CHUNK_BARS]]


def _page_data(timeline: Timeline) -> dict[str, Any]:
    """Return the columns and tables that page.js draws. Times are microseconds from the first exchange."""
    bars, begin = timeline.bars, timeline.begin_ns
    clients = timeline.lanes_by_client()
    lanes = [lane for some in clients.values() for lane in some]
    index = {lane.number: number for number, lane in enumerate(lanes)}
    apis = list(dict.fromkeys(bar.api for bar in bars))

    def us(at_ns: int | None) -> int | None:
        return None if at_ns is None else (at_ns - begin) // 1000

    return {
        "name": timeline.name, "about": about(timeline), "begin_us": begin // 1000, "chunk": _CHUNK_BARS,
        "families": [family.name for family in FAMILIES], "apis": apis,
        "known_apis": [key.api_name for key in ApiKey],
        "lanes": [_lane(lane, us) for lane in lanes],
        "clients": [
            {"name": name, "software": next((one.software for one in some if one.software), ""),
             "lanes": [index[one.number] for one in some]}
            for name, some in clients.items()
        ],
        "ribbons": [
            {"kind": one.kind, "name": one.name,
             "spans": [[us(span.begin_ns), us(span.end_ns), span.state, span.text] for span in one.spans]}
            for one in timeline.ribbons
        ],
        "findings": [
            {"id": one.rule.id, "name": one.rule.name, "level": one.rule.level.label, "subject": one.subject,
             "text": one.text, "fix": one.rule.fix, "packets": one.packets, "at": us(one.at_ns)}
            for one in timeline.findings
        ],
        "at": [us(bar.at_ns) for bar in bars],
        "took": [-1 if bar.end_ns is None else (bar.end_ns - bar.at_ns) // 1000 for bar in bars],
        "lane": [index[bar.lane] for bar in bars], "api": [apis.index(bar.api) for bar in bars],
        "family": [FAMILIES.index(bar.family) for bar in bars], "version": [bar.version for bar in bars],
        "flags": [_flags(bar) for bar in bars], "text": [bar.text for bar in bars],
        "packets": [bar.packets for bar in bars], "asked": [bar.sizes[0] for bar in bars],
        "got": [bar.sizes[1] for bar in bars], "values": [bar.values for bar in bars],
    }  # fmt: skip


def _lane(lane: Lane, us: Any) -> dict[str, Any]:
    return {
        "number": lane.number, "client": lane.client, "software": lane.software, "ends": lane.ends,
        "opened": us(lane.opened_ns), "closed": us(lane.closed_ns), "by": lane.closed_by,
    }  # fmt: skip


def _flags(bar: Bar) -> int:
    waits = bar.family is FETCH or bar.api in _WAITING
    return _ERROR * bar.is_error | _ROUTINE * bar.is_routine | _UNANSWERED * (bar.end_ns is None) | _WAITS * waits


def about(timeline: Timeline) -> list[str]:
    """Return what the page and the text say of the capture: its times, sizes, and what is not shown."""
    seconds = (timeline.end_ns - timeline.begin_ns) / 1e9
    masked = [name for name in ("secrets", "payloads") if getattr(timeline.redaction, name)]
    found = [
        f"{utc_text_of_ns(timeline.begin_ns)} for {seconds:.3f} s" if timeline.bars else "no exchanges",
        f"{_counted(len(timeline.bars), 'exchange')} of {_counted(len(timeline.lanes), 'connection')}, "
        f"{timeline.errors:,} with errors",
    ]
    if timeline.where:
        found.append(f"only {timeline.where} ({timeline.filtered:,} left out)")
    if timeline.left_out:
        found.append(f"{timeline.left_out:,} later exchanges left out: too many for one page")
    lost = sum(remark.is_problem for remark in timeline.remarks)
    if lost:
        found.append(f"{lost:,} places could not be read")
    found += [f"masked: {', '.join(masked)}" if masked else "passwords are not masked", f"kwire {VERSION}"]
    return found


def _counted(number: int, noun: str) -> str:
    """Return "1 exchange", "2 exchanges"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
