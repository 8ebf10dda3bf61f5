"""The command group: imports the command that runs, and turns exceptions into exit codes."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from types import FrameType
from typing import Any, NoReturn

import click

from kwire.cli.error_report import UNWRITABLE, ExitCode, exit_code, is_utf8, print_error, report_error
from kwire.cli.stderr_log import log_to_stderr
from kwire.errors import KwireError
from kwire.version import VERSION

# Name -> its line in `kwire --help`. kwire/cli/<name>.py holds `command`; a dash is an underscore there.
COMMANDS = {
    "metadata": "Brokers, topics and partitions of a cluster.",
    "versions": "Which versions of each API the brokers have.",
    "produce": "Send lines, files or JSON records to a topic.",
    "consume": "Print the records of topics.",
    "decode": "Explain the bytes of Kafka frames, and network captures.",
    "tap": "Show, record and disturb what clients and brokers say.",
    "record": "Record what clients and brokers say, in a capture.",
    "replay": "Send a capture's requests to a broker, or serve its responses.",
    "diff": "What differs between two captures.",
    "encode": "Make a frame's bytes from JSON.",
    "send": "Send one request, written as JSON, and print the response.",
    "dump-log": "Read and verify the files of a broker's log directory.",
    "schema": "Fields and versions of an API's messages.",
    "error": "What a broker's error code means.",
    "topics": "Topics: list, describe, create, delete, add partitions.",
    "configs": "Configs of topics, brokers, groups: get, set, append, reset.",
    "groups": "Groups of consumers: list, describe, lag, reset, delete.",
    "partitions": "Partitions: reassign, cancel, reassignments, elect.",
    "offsets": "Offsets of logs: list.",
    "records": "Records: delete below an offset, or before a time.",
    "log-dirs": "Log directories of brokers: describe, move.",
    "transactions": "Transactions: list, describe, abort, fence, terminate.",
    "acls": "Access rules (ACLs): list, add, remove.",
    "quotas": "Quotas of users, client ids and addresses: get, set.",
    "users": "SCRAM users: list, set, delete.",
    "tokens": "Delegation tokens: create, list, renew, expire.",
    "client-metrics": "Metrics that clients push: list, set, delete.",
    "cluster": "The cluster: describe, explain, features, quorum, voters.",
    "view": "Look through a capture on the terminal.",
    "stats": "Count a capture: rates, sizes, latencies, errors, records.",
    "timeline": "Draw a capture over time.",
    "lint": "Say what clients and brokers do wrong in captures.",
    "doctor": "Examine a cluster as a client sees it, and say what is wrong.",
    "queue": "Message queues: send, receive, tracker, dead letters.",
    "pipeline": "Mirror, archive, replay and audit topics; report on captures.",
    "broker": "Run a cluster of embedded brokers until Ctrl-C.",
}
# Those that Kafka's system tests run, listed apart.
TEST_CLIENTS = {
    "verifiable-producer": "Produce numbers; report each as JSON.",
    "verifiable-consumer": "Consume as a group's member; report as JSON.",
    "verifiable-share-consumer": "Consume as a share group's member.",
    "transactional-message-copier": "Copy records in transactions.",
}
COMMANDS |= TEST_CLIENTS


class Commands(click.Group):
    """Commands by name, each imported when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"kwire.cli.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from kwire.option_checks import did_you_mean  # only a wrong name pays for it

            hint = did_you_mean(name, COMMANDS, max_names=2) or "`kwire --help` lists them"
            ctx.fail(f"there is no command {name}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click's own method would import every command for its help.
        with formatter.section("Commands"):
            formatter.write_dl([item for item in COMMANDS.items() if item[0] not in TEST_CLIENTS])
        with formatter.section("Clients for Kafka's system tests"):
            formatter.write_dl(list(TEST_CLIENTS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # click's `main` would exit with 1, which here means an error from Kafka.
            _abandon_stdout()
            status = ExitCode.BROKEN_PIPE
        return status

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> NoReturn:
        """Run and exit. Only a bug escapes, with its traceback."""
        options["standalone_mode"] = False
        options.setdefault("prog_name", "kwire")
        if not _open_closed_streams():
            print_error("the output cannot be written: stdout is closed")
            sys.exit(ExitCode.UNWRITABLE)
        _escape_what_stdout_lacks()
        try:
            with _second_signal_is_final():
                status = super().main(args, *more, **options)
        except click.ClickException as error:
            error.show()
            status = ExitCode.USAGE
        except (KeyboardInterrupt, click.Abort):
            status = ExitCode.INTERRUPTED
        except KwireError as error:
            # Before OSError's children below: our NodeErrors are ConnectionErrors too.
            _flush_quietly()
            report_error(error)
            status = exit_code(error)
        except RuntimeError as error:
            # Python 3.11 wraps a KeyboardInterrupt that comes while a class is made, as by the import of a command.
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            status = ExitCode.INTERRUPTED
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            _abandon_stdout()
            print_error(f"the output cannot be written: {error.strerror}")
            status = ExitCode.UNWRITABLE
        sys.exit(int(status or 0))


@contextlib.contextmanager
def _second_signal_is_final() -> Iterator[None]:
    """Turn the first Ctrl-C or SIGTERM into KeyboardInterrupt, so that connections close; end at the second.

    A signal that is ignored stays so, as Ctrl-C in the background; so does a handler that somebody has set.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {
            number: intact
            for number, intact in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL))
            if signal.getsignal(number) is intact
        }

    def interrupted(number: int, frame: FrameType | None) -> None:
        for one in before:
            signal.signal(one, lambda *_: os._exit(ExitCode.INTERRUPTED))
        raise KeyboardInterrupt

    for number in before:
        signal.signal(number, interrupted)
    try:
        yield
    finally:
        for number, intact in before.items():
            signal.signal(number, intact)


def _open_closed_streams() -> bool:
    """Give a stream that the caller has closed (`<&-`) the null device: Python has None there.

    Return whether stdout was open.
    """
    has_stdout = sys.stdout is not None
    for name, flags, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode, closefd=False))  # noqa: SIM115 - it stays open
    return has_stdout


def _escape_what_stdout_lacks() -> None:
    """Let names from the wire that the locale's encoding lacks appear as escapes; Python raises an error for them."""
    if isinstance(sys.stdout, TextIOWrapper) and not is_utf8(sys.stdout):
        sys.stdout.reconfigure(errors="backslashreplace")


def _flush_quietly() -> None:
    """Flush stdout, so that what was found before the error appears before it."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()


def _abandon_stdout() -> None:
    """Redirect stdout to nowhere, or the interpreter reports the error again when it flushes at exit.

    SIGPIPE stays ignored, as Python sets it: otherwise a broker that closes a socket would kill the process.
    """
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _show_version(context: click.Context, option: click.Parameter, is_requested: bool) -> None:
    if is_requested and not context.resilient_parsing:
        from kwire.wire import accel  # loads the accelerator, which --help does not need

        click.echo(f"kwire {VERSION} ({accel.described()})")
        context.exit()


def _show_help_json(context: click.Context, option: click.Parameter, is_requested: bool) -> None:
    if is_requested and not context.resilient_parsing:
        import json

        click.echo(json.dumps(context.command.to_info_dict(context), default=str, ensure_ascii=False))
        context.exit()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and the implementation in use, and exit.",
)
@click.option(
    "--help-json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_help_json,
    help="Print all commands with their options as JSON, and exit.",
)
@click.option("-v", "--verbose", count=True, help="Log connections to stderr; -vv: also each request and response.")
@click.pass_context
def kwire(ctx: click.Context, verbose: int) -> None:
    """Tools for the Kafka protocol.

    Data goes to stdout: tables on a terminal, JSON lines in a pipe. Remarks go to stderr.

    Exit codes: 0 ok, 1 an error from Kafka, 2 usage, 3 no connection or authentication, 4 undecodable or lost
    bytes, 74 the output cannot be written, 130 Ctrl-C or SIGTERM.
    """
    ctx.with_resource(log_to_stderr(verbose))
