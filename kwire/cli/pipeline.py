"""`kwire pipeline`: audit topics, and report on captures."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, counted, output_options

if TYPE_CHECKING:
    from kwire.pipeline.audit import AuditReport, Counts
    from kwire.pipeline.sides import Window

Command = TypeVar("Command", bound=Callable[..., Any])
_FILE = click.Path(exists=True, dir_okay=False, readable=True)
_COLUMNS = ("source", "target", "lost", "behind", "doubled", "foreign", "reordered")


@click.group(no_args_is_help=True)
def command() -> None:
    """Audit topics; report on captures.

    \b
        kwire pipeline audit broker1:9092/orders broker2:9092/orders
        kwire pipeline report captures/ -o report.html
    """


def _config_option(side: str) -> Callable[[Command], Command]:
    return click.option(
        f"--{side}-config", f"{side}_config", type=_FILE,
        help=f"Properties of the {side} by Java's names: TLS, SASL, client.id, ...",
    )  # fmt: skip


def _window_options(command: Command) -> Command:
    for name, what in (("until", "before this time"), ("since", "from this time on")):
        command = click.option(
            f"--{name}", metavar="TIME", help=f"Only records {what}, by their timestamps: 2026-01-31T13:00:00Z or ms."
        )(command)
    return command


def _window(since: str | None, until: str | None) -> Window:
    from kwire.pipeline.sides import Window

    return Window(_time_ms(since, "--since"), _time_ms(until, "--until"))


def _time_ms(text: str | None, option: str) -> int | None:
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{option} {text}: write 2026-01-31T13:00:00Z, or milliseconds since 1970") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _properties(path: str | None) -> dict[str, str]:
    from kwire.properties.file import read_properties

    found = {} if path is None else read_properties(Path(path))
    found.pop("bootstrap.servers", None)
    return found


# -- audit


@command.command("audit")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--topic", metavar="NAME", help="The topic in an archive. Default: that of the other side.")
@click.option(
    "--by", type=click.Choice(["partition", "key"]), default="partition", show_default=True,
    help="partition: records keep their partition, and their order there. key: the order of each key counts.",
)  # fmt: skip
@click.option(
    "--ignore", "ignored", multiple=True, type=click.Choice(["timestamp", "key", "value", "headers"]),
    help="What may differ: timestamp, if the target writes its own (LogAppendTime).",
)  # fmt: skip
@click.option("--allow-behind", is_flag=True, help="Do not count what comes after the last record that arrived.")
@_window_options
@_config_option("source")
@_config_option("target")
@output_options
def audit_command(
    source: str, target: str, topic: str | None, by: Any, ignored: tuple[str, ...], allow_behind: bool,
    since: str | None, until: str | None, source_config: str | None, target_config: str | None, output: Output,
) -> ExitCode:  # fmt: skip
    """Count what is lost, doubled or reordered between two sides.

    A side is a topic, HOST:PORT,.../TOPIC, or the folder of an archive. Records are compared by timestamp, key, value
    and headers, since offsets differ. The exit code is 1 if anything is lost, doubled, foreign or reordered.

    \b
        kwire pipeline audit broker1:9092/orders broker2:9092/orders
        kwire pipeline audit broker1:9092/orders archive/ --until 2026-01-31T00:00:00Z
    """
    from kwire.pipeline.audit import audit
    from kwire.pipeline.sides import parse_side, topic_of

    window = _window(since, until)
    named = topic or topic_of(source) or topic_of(target)
    sides = [
        parse_side(text, _properties(config), window=window, topic=named)
        for text, config in ((source, source_config), (target, target_config))
    ]
    try:
        report = audit(*sides, by=by, ignored=ignored)
    finally:
        for side in sides:
            side.close()
    _show_audit(report, output)
    return ExitCode.OK if report.is_clean(allows_behind=allow_behind) else ExitCode.KAFKA


def _show_audit(report: AuditReport, output: Output) -> None:
    if not output.is_table:
        for partition, counts in report.by_partition.items():
            output.json({"partition": partition, **_audit_json(counts)})
        output.json({"partition": None, **_audit_json(report.total)})
        return
    rows = [[partition, *_audit_cells(counts)] for partition, counts in report.by_partition.items()]
    output.table(["partition", *_COLUMNS], [*rows, ["all", *_audit_cells(report.total)]], right=_COLUMNS)
    for what, places in report.total.examples.items():
        where = "source" if what == "lost" else "target"
        shown = ", ".join(f"{place.partition}:{place.offset}" for place in places)
        output.text(f"{what}: first at partition:offset {shown} of the {where}")


def _audit_cells(counts: Counts) -> list[int]:
    return [getattr(counts, name) for name in _COLUMNS]


def _audit_json(counts: Counts) -> dict[str, Any]:
    examples = {
        what: [{"partition": place.partition, "offset": place.offset} for place in places]
        for what, places in counts.examples.items()
    }
    return {**{name: getattr(counts, name) for name in _COLUMNS}, "examples": examples}


# -- captures


@command.command("report")
@click.argument("paths", metavar="CAPTURE...", nargs=-1, required=True)
@click.option("-o", "--output", "target", metavar="FILE", required=True, type=click.Path(dir_okay=False, writable=True),
              help="The page to write.")  # fmt: skip
@click.option("--title", default="Kafka traffic", show_default=True, help="Its heading.")
@click.option("--processes", type=click.IntRange(min=1), help="How many files to read at once. Default: one a core.")
@output_options
def report_command(paths: tuple[str, ...], target: str, title: str, processes: int | None, output: Output) -> ExitCode:
    """Write latency and errors of captures, by client and API, as one HTML page.

    CAPTURE is a file, a folder or a quoted glob. The page needs no other file.
    """
    from kwire.pipeline.report import measure_files, to_html

    traffic = measure_files(_captures(paths), processes or os.cpu_count() or 1)
    Path(target).write_text(to_html(traffic, title), "utf-8")
    for problem in traffic.problems:
        output.note(problem)
    output.note(f"{counted(traffic.requests, 'request')} of {counted(traffic.files, 'file')}")
    return ExitCode.OK if traffic.requests else ExitCode.UNDECODABLE


def _captures(paths: tuple[str, ...]) -> list[str]:
    """Return files, and those in folders; without pyarrow, so that the report needs nothing but kwire."""
    import glob

    found: dict[str, None] = {}
    for text in paths:
        path = Path(text)
        files = (
            sorted(str(one) for one in path.rglob("*") if one.name.endswith(_CAPTURES) and one.is_file())
            if path.is_dir()
            else sorted(glob.glob(text, recursive=True))
        )
        if not files:
            raise click.UsageError(f"{text} has no captures")
        found |= dict.fromkeys(files)
    return list(found)


_CAPTURES = (".pcap", ".pcapng", ".cap", ".pcap.gz", ".pcapng.gz", ".cap.gz")
