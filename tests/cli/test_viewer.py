"""`kwire view` and `kwire tap --ui`: the screen by textual's pilot, and once in a real terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static, Tree

from kwire.capture import read_exchanges
from kwire.capture.filters import Filter
from kwire.cli import viewer as viewer_module
from kwire.cli.viewer import Viewer
from tests.cli.running import run
from tests.timeline.traffic import SECRET, everything


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view") / "traffic.pcap"
    path.write_bytes(everything().capture())
    return path


Step = Callable[[Pilot[None], Viewer], Awaitable[None]]


def drive(app: Viewer, step: Step) -> None:
    """Run the app on a screen of 140 x 40, and a test's steps in it."""

    async def main() -> None:
        async with app.run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            await step(pilot, app)

    asyncio.run(main())


def viewing(path: Path, **options: Any) -> Viewer:
    return Viewer(read_exchanges(path), title="traffic.pcap", **options)


def status(app: Viewer) -> str:
    return str(app.query_one("#status", Static).render())


def tree_lines(app: Viewer) -> list[str]:
    """Return the labels of the details, those of closed branches left out."""
    found: list[str] = []

    def walk(node: Any) -> None:
        found.append(str(node.label))
        if node.is_expanded:
            for child in node.children:
                walk(child)

    walk(app.query_one("#details", Tree).root)
    return found


async def until(pilot: Pilot[None], is_so: Callable[[], bool]) -> None:
    for _ in range(500):
        if is_so():
            return
        await pilot.pause(0.02)
    raise AssertionError("it did not come about")


@pytest.mark.slow
def test_a_list_and_both_messages(capture: Path) -> None:
    async def steps(pilot: Pilot[None], app: Viewer) -> None:
        await until(pilot, lambda: len(app.shown) == 41)
        assert status(app) == "traffic.pcap  41 of 41 exchanges"
        assert app.selected is not None
        assert app.selected.api_name == "ApiVersions"
        await pilot.press("e")  # to the next error
        await until(pilot, lambda: app.selected is not None and app.selected.api_name == "Metadata")
        await pilot.press("e")
        await until(pilot, lambda: tree_lines(app)[0].startswith("Produce v9"))
        lines = tree_lines(app)
        assert "NOT_LEADER_OR_FOLLOWER" in lines[0]
        assert {"request", "response", "acks: -1"} <= set(lines)
        assert any(re.search(r"records: 3 records, \d+ bytes$", line) for line in lines), lines
        await pilot.press("E")
        await until(pilot, lambda: app.selected is not None and app.selected.api_name == "Metadata")
        assert "\u202e" not in "".join(tree_lines(app))
        await pilot.press("G")
        await until(pilot, lambda: app.query_one(DataTable).cursor_row == 40)

    drive(viewing(capture), steps)


def test_a_branch_opens(capture: Path) -> None:
    async def steps(pilot: Pilot[None], app: Viewer) -> None:
        await until(pilot, lambda: tree_lines(app)[0].startswith("Produce"))
        tree = app.query_one("#details", Tree)
        node = next(one for one in tree.root.children if str(one.label) == "request")
        batch = next(one for one in node.children if "3 records" in str(one.label))
        batch.expand()
        await until(pilot, lambda: "compression: 'lz4'" in tree_lines(app))
        records = next(one for one in batch.children if str(one.label) == "records [3]")
        records.expand()
        await until(pilot, lambda: "0 {}" in tree_lines(app))

    drive(viewing(capture, where=Filter("api == Produce")), steps)


@pytest.mark.slow
def test_the_filter_line(capture: Path) -> None:
    async def steps(pilot: Pilot[None], app: Viewer) -> None:
        await until(pilot, lambda: len(app.shown) == 41)
        await pilot.press("slash")
        line = app.query_one("#filter", Input)
        assert app.query_one("#filter", Input).has_focus
        line.value = "topc == x"
        await pilot.press("enter")
        assert "did you mean topic?" in status(app)
        assert len(app.shown) == 41
        line.value = "group == g1"
        await pilot.press("enter")
        await until(pilot, lambda: len(app.shown) == 7)
        assert status(app) == "traffic.pcap  7 of 41 exchanges  filter: group == g1"
        assert isinstance(app.focused, DataTable)
        await pilot.press("slash", "escape")  # leaves the line, not the filter
        assert len(app.shown) == 7
        await pilot.press("escape")
        assert len(app.shown) == 41
        await pilot.press("f")
        assert status(app).endswith("filter: conn == 3")

    drive(viewing(capture), steps)


def test_exchanges_that_come_while_it_runs(capture: Path) -> None:
    exchanges = list(read_exchanges(capture))

    async def steps(pilot: Pilot[None], app: Viewer) -> None:
        for exchange in exchanges[:10]:
            app.feed(exchange)
        await until(pilot, lambda: len(app.shown) == 10)
        await pilot.press("G")
        app.feed(exchanges[10])
        await until(pilot, lambda: len(app.shown) == 11)
        await until(pilot, lambda: app.query_one(DataTable).cursor_row == 10)  # the newest stays chosen
        await pilot.press("g")
        app.feed(exchanges[11])
        await until(pilot, lambda: len(app.shown) == 12)
        assert app.query_one(DataTable).cursor_row == 0  # one looks at another
        await pilot.press("space")
        app.feed(exchanges[12])
        await until(pilot, lambda: "paused, 1 new" in status(app))
        assert len(app.shown) == 12
        await pilot.press("space")
        await until(pilot, lambda: len(app.shown) == 13)

    drive(Viewer(), steps)


def test_the_oldest_go(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer_module, "EXCHANGES_MAX", 30)

    async def steps(pilot: Pilot[None], app: Viewer) -> None:
        await until(pilot, lambda: len(app.shown) == 30)
        assert "11 older ones are gone" in status(app)
        await pilot.press("G")
        await until(pilot, lambda: tree_lines(app)[0] != "nothing selected")
        assert app.query_one(DataTable).row_count == 30

    drive(viewing(capture), steps)


def test_the_tap_has_no_other_use_of_the_terminal() -> None:
    for options in (["--exec", "true"], ["-q"]):
        ran = run("tap", "-b", "127.0.0.1:1", "--ui", *options)
        assert ran.code == 2
        assert "--ui has the terminal for itself" in ran.stderr


@pytest.mark.programs
def test_in_a_real_terminal(capture: Path) -> None:
    """It draws, takes keys, and leaves the terminal as it was."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    before = termios.tcgetattr(slave)
    environment = {**os.environ, "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "kwire", "view", str(capture)]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    seen = ""

    def read_until(text: str) -> None:
        nonlocal seen
        end = time.monotonic() + 60
        while text not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen):
            assert time.monotonic() < end, (text, seen[-2000:])
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 65536).decode(errors="replace")

    try:
        read_until("41 of 41 exchanges")
        assert SECRET not in seen
        seen = ""
        os.write(master, b"e")
        read_until("INVALID_TOPIC_EXCEPTION at")
        os.write(master, b"q")
        end = time.monotonic() + 60
        while process.poll() is None:  # its last bytes must be read, or it could not end
            assert time.monotonic() < end
            if select.select([master], [], [], 0.2)[0]:
                seen += os.read(master, 65536).decode(errors="replace")
        assert process.returncode == 0
        assert "\x1b[?1049l" in seen  # back on the normal screen
        assert termios.tcgetattr(slave) == before
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
        os.close(slave)
