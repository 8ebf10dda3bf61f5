"""Run the command line inside the test process; return its exit code, stdout and stderr."""

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
        """Return the JSON lines of stdout."""
        return [json.loads(line) for line in self.stdout.splitlines()]


def run(*args: str, stdin: str | bytes = b"", env: dict[str, str] | None = None) -> Ran:
    """Run `kwire ARGS`, without the KWIRE_ settings of the environment."""
    hidden = dict.fromkeys(
        ("KWIRE_BOOTSTRAP", "KWIRE_PROFILE", "KWIRE_USERNAME", "KWIRE_PASSWORD", "KWIRE_KEY_PASSWORD")
    )
    result = CliRunner().invoke(kwire, list(args), input=stdin, env={**hidden, **(env or {})})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception  # a bug: the command line must catch every other exception
    return Ran(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)
