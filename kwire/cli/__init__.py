"""The `kwire` command.

Each command is one file; `kwire --help` imports none of them.

    app.py            the group, its table of commands, and how an exception becomes an exit code
    <command>.py      a command: metadata, versions, produce, consume, encode, send, dump_log, schema, error, ...
    decode/           `kwire decode`: frames and captures explained
    arguments.py      names of APIs, versions, topics and error codes: parsing and shell completion
    connection.py     the options of every command that connects to brokers
    output.py         tables on a terminal, JSON lines in a pipe
    stderr_log.py     -v and -vv: kwire's log on stderr, by the handler of stderr_handler.py
    error_report.py   exit codes, and exceptions as text
    message_json.py   messages as Kafka's JSON
    record_json.py    records and batches as JSON
    verifiable.py     what the clients of Kafka's system tests have in common: properties files, events
    profiles.py       connection options under a name
    viewer.py         the screen of `kwire view` and `kwire tap --ui`
    kcat_format.py    the format strings of `kwire consume -F`

Imports: pipeline, timeline, tap, lint, doctor, logs, capture, admin, broker, queue, properties, share, consumer,
producer, cluster, net, session, protocol, records, wire.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

# The packages of the extra `cli` (and of `zstd`), and what brings each.
_EXTRAS = {"click": "cli", "rich": "cli", "textual": "tui", "zstandard": "zstd"}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the `kwire` script and exit: 0 ok, 1 an error from Kafka, 2 usage, 3 no connection, 4 undecodable bytes."""
    # Imports make many objects and no garbage: without these two lines 20 ms of 150 go into looking for it, the last
    # time at exit.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    try:
        with _dies_of_interrupt():
            from kwire.cli.app import kwire

        kwire.main(argv)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        print(f"kwire: this needs the package {package}: pip install 'kwire[{_EXTRAS[package]}]'", file=sys.stderr)
        sys.exit(2)
    raise AssertionError("the group always exits")


@contextmanager
def _dies_of_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process as it ends other programs, not with a traceback out of the imports."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        except ValueError:  # only the main thread may: a program calls `main` in another one
            is_usual = False
    try:
        yield
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
