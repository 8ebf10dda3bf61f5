"""A Java program that reads lines and writes lines, and keeps running between requests.

Starting a JVM and compiling the program takes longer than most requests. The program reads its standard input line by
line. After the line END it writes END and flushes its output.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from brokers.java import program_command

END = "==="


class JavaProgram:
    """`source` is one file; the first `ask` compiles and starts it. Close it."""

    def __init__(self, jars: Path | Sequence[Path], source: Path) -> None:
        self._command = program_command(jars, source)
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)

    def ask(self, lines: Sequence[str]) -> list[str]:
        """Return its output for these lines. If it ends, raise AssertionError with its stderr."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints
            )
        process = self._process
        # Write and read at the same time: otherwise both pipes may become full.
        writing = threading.Thread(target=_write, args=(process, [*lines, END]), daemon=True)
        writing.start()
        assert process.stdout
        responses: list[str] = []
        for line in process.stdout:
            if line == f"{END}\n".encode():
                writing.join()
                return responses
            responses.append(line.decode().removesuffix("\n"))
        writing.join()
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
        return  # it ended: the reader of its output notices that
