"""The command line: `kwire ...`.

Owns what a person or a script sees: options, tables, JSON lines, exit codes. Refuses to know the protocol, to open a
socket or to retry: a command is a thin reading of the rooms below, one file each, and `kwire --help` imports none.

    app.py          the group, its lazy table of commands, and what an error becomes on the way out
    connection.py   the options of every command that talks to brokers
    output.py       tables on a terminal, JSON lines in a pipe
    failures.py     exit codes, and an error written for a person

Imports: broker, consumer, producer, cluster, net, session, protocol, records, wire.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

# The packages of the extra `cli` (and of `zstd`), and what brings each.
_EXTRAS = {"click": "cli", "rich": "cli", "zstandard": "zstd"}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The entry point of the `kwire` script. Exits: 0 ok, 1 Kafka said no, 2 usage, 3 no connection, 4 undecodable."""
    try:
        from kwire.cli.app import kwire

        kwire.main(argv)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        print(f"kwire: this needs the package {package}: pip install 'kwire[{_EXTRAS[package]}]'", file=sys.stderr)
        sys.exit(2)
    raise AssertionError("the group always exits")
