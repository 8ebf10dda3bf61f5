"""The command line run inside the test process: arguments and stdin in, exit code, stdout and stderr out."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from click.testing import CliRunner

from kwire.cli.app import kwire


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str
    stdout_bytes: bytes

    def lines(self) -> list[Any]:
        """The JSON lines of stdout."""
        return [json.loads(line) for line in self.stdout.splitlines()]


def run(*args: str, stdin: str | bytes = b"", env: dict[str, str] | None = None) -> Ran:
    """Run `kwire ARGS`. The environment's own KWIRE_ settings are out of sight."""
    hidden = dict.fromkeys(("KWIRE_BOOTSTRAP", "KWIRE_USERNAME", "KWIRE_PASSWORD", "KWIRE_KEY_PASSWORD"))
    result = CliRunner().invoke(kwire, list(args), input=stdin, env={**hidden, **(env or {})})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception  # a bug: nothing else may escape
    return Ran(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)
