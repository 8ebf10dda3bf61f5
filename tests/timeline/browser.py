"""A Chromium without a window, driven through its DevTools protocol over two pipes: no other package is needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ANSWER_SECONDS = 60.0


def find_browser() -> str | None:
    return next((path for path in map(shutil.which, _PROGRAMS) if path), None)


class Browser:
    """One page in a browser of its own, with its own profile in `folder`. Raises AssertionError if a script fails."""

    def __init__(self, program: str, folder: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def adopt() -> None:  # the browser reads from 3 and writes to 4
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [
                program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
                "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
                "--disable-component-update", "--hide-scrollbars", f"--user-data-dir={folder}",
                "--window-size=1400,900",
            ],
            close_fds=False, preexec_fn=adopt, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self.requested: list[str] = []  # addresses that the page asked for
        self.complaints: list[str] = []  # of its scripts
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for pipe in (self._out, self._in):
            os.close(pipe)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                result: dict[str, Any] = found["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + _ANSWER_SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        params = found.get("params", {})
        if found.get("method") == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif found.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(str(details.get("exception", details).get("description", details)))
        elif found.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])
        return found

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a page, and wait until its script says that it is ready."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=page.as_uri() + fragment)
        self.wait_for("window.kwireReady === true")

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; waits for a promise."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true, which the page checks with each frame."""
        until = time.monotonic() + _ANSWER_SECONDS
        while not self.run(condition):
            assert time.monotonic() < until, (condition, self.complaints)
            self.run("new Promise((resolve) => setTimeout(resolve, 20))")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key as a person does; one character types it."""
        extra = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0, **extra)
            extra = {}

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Send mouseMoved, mousePressed or mouseReleased at a place of the window."""
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def prefer(self, scheme: str) -> None:
        """Prefer a colour scheme: dark or light."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> bytes:
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(data)
        return data
