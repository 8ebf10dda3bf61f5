"""Draw results as an SVG: a bar for each contestant's median, and a line between its quartiles."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from bench.contest import Result
from bench.ratios import Spread

WIDTH, LABELS, ROW, TITLE = 760, 190, 24, 40
OURS, THEIRS = "#2563a8", "#9aa5b1"


def write_svg(path: Path, results: Sequence[Result], measure: str, unit: str) -> None:
    path.write_text(svg(results, measure, unit))


def svg(results: Sequence[Result], measure: str, unit: str) -> str:
    """Return the SVG text. `unit` is the unit of the bars."""
    parts: list[str] = []
    top = 0
    for result in results:
        spreads = {name: result.spread(name, measure) for name in result.samples if result.failure(name) is None}
        parts.append(f'<text x="8" y="{top + 24}" font-weight="bold">{escape(result.title)}: {escape(unit)}</text>')
        top += TITLE
        longest = max((spread.high for spread in spreads.values()), default=1.0) or 1.0
        for name, spread in spreads.items():
            parts += _bar(name, spread, top, (WIDTH - LABELS - 90) / longest)
            top += ROW
        top += 12
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" font-family="sans-serif"'
    return "\n".join([f'{head} font-size="13">', '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def _bar(name: str, spread: Spread, top: float, scale: float) -> list[str]:
    middle, colour = top + ROW / 2, OURS if name.startswith("kwire") else THEIRS
    low, median, high = (LABELS + value * scale for value in spread)
    figure = f"{spread.median:,.0f}" if spread.median >= 100 else f"{spread.median:.3g}"
    return [
        f'<text x="{LABELS - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{LABELS}" y="{top + 4}" width="{median - LABELS:.1f}" height="{ROW - 8}" fill="{colour}"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="black" stroke-width="2"/>',
        f'<text x="{max(median, high) + 6:.1f}" y="{middle + 4}">{figure}</text>',
    ]
