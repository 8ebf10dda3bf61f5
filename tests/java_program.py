"""A Java program that answers lines with lines, kept running from one question to the next.

To start a JVM and compile the program takes longer than most questions do. Such a program reads its standard input line
by line; the line END it answers with END, and writes out what it has said before.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

END = "==="


class JavaProgram:
    """`source` is one file, compiled when the program is started, by the first `ask`. Close it."""

    def __init__(self, class_path: str, source: Path) -> None:
        self._command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", class_path, str(source)]
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)

    def ask(self, lines: Sequence[str]) -> list[str]:
        """What it says to these lines. AssertionError with its complaints if it ends; the next `ask` starts it anew."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints
            )
        process = self._process
        # It answers while it is asked: who writes everything first may find both pipes full.
        asking = threading.Thread(target=_write, args=(process, [*lines, END]), daemon=True)
        asking.start()
        assert process.stdout
        answers: list[str] = []
        for answer in process.stdout:
            if answer == f"{END}\n".encode():
                asking.join()
                return answers
            answers.append(answer.decode().removesuffix("\n"))
        asking.join()
        self._end()
        self._complaints.seek(0)
        raise AssertionError(f"{self._command[-1]} ended: {self._complaints.read().decode()}")

    def close(self) -> None:
        self._end()
        self._complaints.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


def _write(process: subprocess.Popen[bytes], lines: Sequence[str]) -> None:
    assert process.stdin
    try:
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        process.stdin.flush()
    except BrokenPipeError:
        return  # it ended, which whoever reads its answers finds too
