"""Exchanges on a terminal, for `kwire view` and `kwire tap --ui`: a list, a filter line, both messages as a tree.

Needs the extra `tui` (textual). A tap's thread adds exchanges by `feed`; the screen takes them a few times a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Input, Static, Tree
from textual.widgets.tree import TreeNode

from kwire.capture import Exchange
from kwire.capture.filters import Filter
from kwire.capture.json import batch_to_json, records_to_json
from kwire.capture.summary import is_routine, summary
from kwire.capture.times import utc_text_of_ns
from kwire.cli.output import counted, printable
from kwire.errors import FilterError, KwireError

EXCHANGES_MAX = 50_000
_TAKEN_AT_ONCE = 1000
_PERIOD_SECONDS = 0.05
_CHILDREN_MAX = 500
_SUMMARY_MAX = 200


class Viewer(App[None]):
    """Exchanges of a source, or fed while they happen. Of more than EXCHANGES_MAX the oldest go."""

    TITLE = "kwire"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #list { height: 3fr; overflow-x: hidden; }
    #details { height: 2fr; border-top: solid $panel; }
    #filter { dock: bottom; display: none; }
    #filter.shown { display: block; }
    #status { height: 1; color: $text-muted; }
    #status.wrong { color: $error; height: auto; max-height: 4; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter"), Binding("escape", "leave", "Back"),
        Binding("e", "error(1)", "Next error"),
        Binding("E", "error(-1)", "Previous error", show=False), Binding("f", "follow", "Only this connection"),
        Binding("space", "pause", "Pause"), Binding("G", "last", "Newest"), Binding("g", "first", "Oldest", show=False),
        Binding("tab", "focus_next", "Other pane"), Binding("question_mark", "show_help_panel", "Keys"),
        Binding("q", "quit", "Quit"),
    ]  # fmt: skip

    def __init__(self, source: Iterable[Exchange] = (), *, title: str = "", where: Filter | None = None) -> None:
        super().__init__()
        self._source: Iterator[Exchange] = iter(source)
        self._fed: deque[Exchange] = deque()
        self._all: deque[Exchange] = deque()
        self._first = 0  # the number of the oldest that is kept
        self._where = where
        self._is_paused = False
        self.place = title  # what the status line begins with
        self.shown: list[int] = []  # the numbers of the exchanges in the list
        self._table: DataTable[Text] = DataTable(id="list", cursor_type="row", zebra_stripes=True)
        self._tree: Tree[Any] = Tree("nothing selected", id="details")
        self._status = Static("", id="status", markup=False)
        self._filter_line = Input(placeholder="api == Produce and ms > 100", id="filter")

    def feed(self, exchange: Exchange) -> None:
        """Add an exchange, from any thread."""
        self._fed.append(exchange)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield self._table
            yield self._tree
            yield self._status
        yield self._filter_line
        yield Footer()

    def on_mount(self) -> None:
        for name, width in (
            ("time", 12),
            ("conn", 4),
            ("client", 12),
            ("api", 22),
            ("v", 3),
            ("ms", 9),
            ("details", None),
        ):
            self._table.add_column(name, width=width)
        self._table.focus()
        self._filter_line.value = self._where.text if self._where is not None else ""
        self._take()
        self.set_interval(_PERIOD_SECONDS, self._take)

    # Exchanges

    def _take(self) -> None:
        """Add what came since, unless paused."""
        if not self._table.is_attached:  # the app ends
            return
        new = list(islice(self._source, _TAKEN_AT_ONCE))
        while self._fed and len(new) < _TAKEN_AT_ONCE and not self._is_paused:
            new.append(self._fed.popleft())
        if not new:
            self._tell_status()
            return
        was_at_end = not self.shown or self._table.cursor_row >= len(self.shown) - 1
        is_first = not self._all
        for exchange in new:
            self._all.append(exchange)
            self._add_row(self._first + len(self._all) - 1, exchange)
        self._drop_oldest()
        if was_at_end and not is_first:
            self._table.move_cursor(row=len(self.shown) - 1)
        self._tell_status()

    def _drop_oldest(self) -> None:
        while len(self._all) > EXCHANGES_MAX:
            self._all.popleft()
            if self.shown and self.shown[0] == self._first:
                self._table.remove_row(str(self._first))
                del self.shown[0]
            self._first += 1

    def _add_row(self, number: int, exchange: Exchange) -> None:
        if self._where is not None and not self._where.accepts(exchange):
            return
        style = "red" if exchange.problems else ""
        if exchange.errors:
            style = "dim" if is_routine(exchange) else "yellow"
        latency = "" if exchange.latency_ms is None else f"{exchange.latency_ms:.1f}"
        cells = (
            utc_text_of_ns(exchange.at_ns)[11:23], str(exchange.connection.number), exchange.client_id or "",
            exchange.api_name, str(exchange.version) if exchange.version >= 0 else "", latency,
            summary(exchange)[:_SUMMARY_MAX],
        )  # fmt: skip
        self._table.add_row(*(Text(printable(cell), style) for cell in cells), key=str(number))
        self.shown.append(number)

    @property
    def selected(self) -> Exchange | None:
        row = self._table.cursor_row
        return self._all[self.shown[row] - self._first] if 0 <= row < len(self.shown) else None

    def _tell_status(self) -> None:
        status = self._status
        if status.has_class("wrong"):
            return
        parts = [self.place, f"{len(self.shown):,} of {len(self._all):,} exchanges"]
        if self._first:
            parts.append(f"{self._first:,} older ones are gone")
        if self._where is not None:
            parts.append(f"filter: {self._where.text}")
        if self._is_paused:
            parts.append(f"paused, {len(self._fed):,} new")
        status.update("  ".join(printable(part) for part in parts if part))

    # Details

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        exchange = self.selected
        tree = self._tree
        if exchange is None:
            tree.reset("nothing selected")
            return
        name = f"{exchange.api_name} v{exchange.version}" if exchange.version >= 0 else exchange.api_name
        tree.reset(Text(printable(f"{name}  {summary(exchange)}")))
        packets = ", ".join(map(str, exchange.packets))
        for line in (
            f"connection {exchange.connection.number}: {exchange.connection}",
            exchange.software,
            f"packets {packets}",
        ):
            if line:
                tree.root.add_leaf(Text(printable(line), "dim"))
        for problem in exchange.problems:
            tree.root.add_leaf(Text(printable(problem.message), "red"))
        for side, decoded in (("request", exchange.request), ("response", exchange.response)):
            if decoded is None:
                tree.root.add_leaf(Text(f"{side}: not in the capture", "dim"))
                continue
            node = tree.root.add(Text(side, "bold"), data=decoded.message, expand=True)
            _grow(node, decoded.message)
            for path, batch in decoded.record_batches():
                label = Text(printable(f"{path}: {counted(batch.count, 'record')}, {batch.size_bytes} bytes"))
                node.add(label, data=lambda batch=batch: _batch(batch))
            for path, type_name, inner in decoded.nested():
                _grow(node.add(Text(printable(f"{path}: {type_name}")), data=inner), inner)
        tree.root.expand()

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[Any]) -> None:
        """Build a branch when it is opened: a message can have thousands of fields."""
        if not event.node.children and event.node.data is not None:
            data = event.node.data
            _grow(event.node, data() if callable(data) else data)

    # Keys

    def action_filter(self) -> None:
        self._filter_line.add_class("shown")
        self._filter_line.focus()

    def action_leave(self) -> None:
        """Leave the filter line; from the list, take the filter away."""
        line = self._filter_line
        if line.has_class("shown"):
            line.remove_class("shown")
            self._set_wrong("")
            line.value = self._where.text if self._where is not None else ""
        elif self._where is not None:
            line.value = ""
            self._apply("")
        self._table.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if self._apply(event.value.strip()):
            self._filter_line.remove_class("shown")
            self._table.focus()

    def _apply(self, text: str) -> bool:
        """Filter all exchanges anew. Return False, and say why, if the expression is wrong."""
        try:
            self._where = Filter(text) if text else None
        except FilterError as error:
            self._set_wrong(f"{error.message}\n{error.remedy or ''}".rstrip())
            return False
        self._set_wrong("")
        before = self.shown[self._table.cursor_row] if self.shown else 0
        self._table.clear()
        self.shown.clear()
        for offset, exchange in enumerate(self._all):
            self._add_row(self._first + offset, exchange)
        # The cursor stays as near as the filter allows.
        row = next((row for row, number in enumerate(self.shown) if number >= before), len(self.shown) - 1)
        if self.shown:
            self._table.move_cursor(row=row)
        else:
            self._tree.reset("nothing selected")
        self._tell_status()
        return True

    def _set_wrong(self, text: str) -> None:
        status = self._status
        status.set_class(bool(text), "wrong")
        if text:
            status.update(printable_lines(text))
        else:
            self._tell_status()

    def action_error(self, direction: int) -> None:
        def is_error(row: int) -> bool:
            exchange = self._all[self.shown[row] - self._first]
            return bool(exchange.problems) or (bool(exchange.errors) and not is_routine(exchange))

        self._move_to_next(is_error, direction)

    def _move_to_next(self, is_wanted: Callable[[int], bool], direction: int) -> None:
        row = self._table.cursor_row + direction
        while 0 <= row < len(self.shown):
            if is_wanted(row):
                self._table.move_cursor(row=row)
                return
            row += direction
        self.bell()

    def action_follow(self) -> None:
        exchange = self.selected
        if exchange is not None:
            text = f"conn == {exchange.connection.number}"
            self._filter_line.value = text
            self._apply(text)

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._tell_status()

    def action_last(self) -> None:
        self._table.move_cursor(row=len(self.shown) - 1)

    def action_first(self) -> None:
        self._table.move_cursor(row=0)

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" and self.focused is self._filter_line:
            event.prevent_default()
            self.action_leave()


def _batch(batch: Any) -> dict[str, Any]:
    try:
        return {**batch_to_json(batch), "records": records_to_json(batch)}
    except KwireError as error:
        return {"problem": str(error)}


def _grow(node: TreeNode[Any], value: Any) -> None:
    """Add a node's children. Those with children of their own are built when they are opened."""
    entries: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = [(str(index), inner) for index, inner in enumerate(value)]
    for name, inner in entries[:_CHILDREN_MAX]:
        if isinstance(inner, dict | list) and inner:
            what = f"[{len(inner)}]" if isinstance(inner, list) else "{}"
            node.add(Text(printable(f"{name} {what}")), data=inner)
        else:
            node.add_leaf(Text(printable(f"{name}: {inner!r}")))
    if len(entries) > _CHILDREN_MAX:
        node.add_leaf(Text(f"... {len(entries) - _CHILDREN_MAX} more", "dim"))


def printable_lines(text: str) -> str:
    """Escape control characters but for ends of lines."""
    return "\n".join(printable(line) for line in text.split("\n"))
