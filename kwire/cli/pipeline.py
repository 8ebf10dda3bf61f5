"""`kwire pipeline`: mirror, archive, replay, audit, and a report on captures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kwire.cli.error_report import ExitCode, print_error, writes_file
from kwire.cli.output import Output, counted, output_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.pipeline.audit import AuditReport, Counts
    from kwire.pipeline.mirror import MirrorPlan
    from kwire.pipeline.sides import Cluster, Window

Command = TypeVar("Command", bound=Callable[..., Any])
_FILE = click.Path(exists=True, dir_okay=False, readable=True)
_COLUMNS = ("source", "target", "lost", "behind", "doubled", "foreign", "reordered")


@click.group(no_args_is_help=True)
def command() -> None:
    """Mirror, archive, replay and audit topics; report on captures.

    mirror, archive and replay run on Spark, which needs `pip install 'kwire[spark]'`: on this machine, or on a cluster
    with `spark-submit examples/pipeline.py mirror ...`.

    \b
        kwire pipeline audit broker1:9092/orders broker2:9092/orders
        kwire pipeline mirror -s broker1:9092 -t broker2:9092 --topics orders --checkpoint mirror/
        kwire pipeline archive -s broker1:9092 --topics orders --to archive/ --checkpoint state/
        kwire pipeline replay archive/ -t broker2:9092 --topic orders --write-id first
        kwire pipeline report captures/ -o report.html
    """


def _source_option(command: Command) -> Command:
    return click.option("-s", "--source", required=True, metavar="HOST:PORT,...", help="The cluster to read.")(command)


def _target_option(command: Command) -> Command:
    return click.option("-t", "--target", required=True, metavar="HOST:PORT,...", help="The cluster to write.")(command)


def _config_option(side: str) -> Callable[[Command], Command]:
    return click.option(
        f"--{side}-config", f"{side}_config", type=_FILE,
        help=f"Properties of the {side} by Java's names: TLS, SASL, client.id, ...",
    )  # fmt: skip


def _checkpoint_option(*, required: bool) -> Callable[[Command], Command]:
    return click.option(
        "--checkpoint",
        required=required,
        metavar="PATH",
        help="Where Spark keeps how far it is: one for each pipeline.",
    )


def _every_option(command: Command) -> Command:
    return click.option(
        "--every", metavar="TIME", help="Go on, with a batch every 10s or 1m. Default: end with what there is now."
    )(command)


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


def _cluster(bootstrap: str, config: str | None) -> Cluster:
    from kwire.pipeline.sides import Cluster

    return Cluster(bootstrap, _properties(config))


def _trigger(every: str | None) -> dict[str, Any]:
    from kwire.cli.stats import parse_seconds

    return {"availableNow": True} if every is None else {"processingTime": f"{parse_seconds(every):g} seconds"}


@contextmanager
def _session(name: str, output: Output) -> Iterator[SparkSession]:
    """Yield a session, and raise what ended a job of Spark as an error of kwire.

    On a laptop Spark's own log is shown with -v only: it tells errors in hundreds of lines.
    """
    from kwire.pipeline.session import error_of_job, get_session

    session = get_session(name, log_level="WARN" if output.verbose else "OFF")
    from pyspark.errors import PySparkException  # get_session says what to install if it is missing

    try:
        yield session
    except PySparkException as error:
        raise error_of_job(error) from None


def _await(query: Any, output: Output, noun: str, meanwhile: Callable[[], None] | None = None) -> ExitCode:
    """Wait for the end of a query, and call `meanwhile` once a minute; Ctrl-C stops the query."""
    from kwire.pipeline.session import await_query

    try:
        rows = await_query(query, meanwhile)
    except KeyboardInterrupt:
        query.stop()
        raise
    output.note(f"{counted(rows, 'record')} {noun}")
    return ExitCode.OK


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
@click.option(
    "--processes", type=click.IntRange(min=1), default=1, show_default=True,
    help="How many partitions to compare at once, each in a process of its own.",
)  # fmt: skip
@click.option("--spark", "on_spark", is_flag=True, help="Compare the partitions in Spark's tasks.")
@click.option("--allow-behind", is_flag=True, help="Do not count what comes after the last record that arrived.")
@_window_options
@_config_option("source")
@_config_option("target")
@output_options
def audit_command(
    source: str, target: str, topic: str | None, by: Any, ignored: tuple[str, ...], processes: int,
    on_spark: bool, allow_behind: bool,
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

    if on_spark and (by == "key" or processes > 1):
        raise click.UsageError("--spark compares a partition in each task: leave out --by key and --processes")
    window = _window(since, until)
    named = topic or topic_of(source) or topic_of(target)
    sides = [
        parse_side(text, _properties(config), window=window, topic=named)
        for text, config in ((source, source_config), (target, target_config))
    ]
    try:
        if on_spark:
            with _session("kwire audit", output) as spark:
                report = audit(*sides, ignored=ignored, spark=spark)
        else:
            report = audit(*sides, by=by, ignored=ignored, processes=processes)
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


# -- on Spark


@command.command("mirror")
@_source_option
@_target_option
@click.option("--topics", required=True, metavar="NAME,...", help="Which topics.")
@click.option("--prefix", default="", metavar="TEXT", help="Put before the topics' names on the target.")
@click.option(
    "--partitions", type=click.Choice(["same", "by-key"]), default="same", show_default=True,
    help="same: a record keeps the number of its partition. by-key: its key decides.",
)  # fmt: skip
@click.option(
    "--create-topics", is_flag=True,
    help="Create topics that the target lacks, with the partitions and the configs of the source's.",
)  # fmt: skip
@click.option("--sync-configs", is_flag=True, help="Give topics that exist on the target the source's configs.")
@click.option(
    "--groups", metavar="PATTERN",
    help="Carry the committed offsets of groups: whose whole names match this regular expression.",
)  # fmt: skip
@click.option("--no-records", is_flag=True, help="Carry only what --groups and --sync-configs say, without Spark.")
@click.option("--dry-run", is_flag=True, help="Show what would be created, changed and set, and end.")
@_checkpoint_option(required=False)
@_every_option
@click.option(
    "--max-bytes-per-trigger", type=click.IntRange(min=1), metavar="BYTES",
    help="About as much in a batch, which is one transaction; from Spark 4.2 on. Default: 1 GiB.",
)  # fmt: skip
@_config_option("source")
@_config_option("target")
@output_options
def mirror_command(
    source: str, target: str, topics: str, prefix: str, partitions: str, create_topics: bool, sync_configs: bool,
    groups: str | None, no_records: bool, dry_run: bool, checkpoint: str | None, every: str | None,
    max_bytes_per_trigger: int | None, source_config: str | None, target_config: str | None, output: Output,
) -> ExitCode:  # fmt: skip
    """Copy topics to another cluster, exactly once.

    Keys, values, headers and timestamps stay. Consumers of the target must read committed records. Start it again with
    the same checkpoint after any failure: it goes on where it was. Offsets of groups are carried at the end, and with
    --every once a minute: a group that has members on the target is left alone, and none is set back.
    """
    from kwire.pipeline.mirror import MirrorPlan, prepare_topics

    if checkpoint is None and not (dry_run or no_records):
        raise click.UsageError("--checkpoint is missing: where Spark keeps how far the mirror is")
    names = tuple(filter(None, (name.strip() for name in topics.split(","))))
    plan = MirrorPlan(names, prefix, partitions == "same")
    clusters = _cluster(source, source_config), _cluster(target, target_config)
    made = prepare_topics(plan, *clusters, creates=create_topics, dry_run=dry_run)
    for name in made:
        output.note(f"{'would create' if dry_run else 'created'} topic {name}")
    existing = replace(plan, topics=tuple(name for name in names if not dry_run or plan.target_of(name) not in made))
    if sync_configs and existing.topics:
        _sync_configs(existing, clusters, dry_run, output)
    if dry_run or no_records:
        if groups is not None and existing.topics:
            _sync_groups(existing, clusters, groups, dry_run, output)
        return ExitCode.OK
    assert checkpoint is not None
    read = {} if max_bytes_per_trigger is None else {"maxBytesPerTrigger": str(max_bytes_per_trigger)}
    return _mirror(plan, clusters, checkpoint, every, read, groups, output)


def _mirror(
    plan: MirrorPlan, clusters: tuple[Cluster, Cluster], checkpoint: str, every: str | None, read: dict[str, str],
    groups: str | None, output: Output,
) -> ExitCode:  # fmt: skip
    from kwire.errors import KwireError
    from kwire.pipeline.mirror import start_mirror

    with _session("kwire mirror", output) as spark:
        query = start_mirror(spark, plan, *clusters, checkpoint, trigger=_trigger(every), read=read)
        if groups is None:
            return _await(query, output, "mirrored")

        def carry() -> None:
            _sync_groups(plan, clusters, groups, False, output)

        def try_to_carry() -> None:
            try:
                carry()
            except KwireError as error:  # the records go on, and the next minute may do better
                output.note(f"offsets of groups are not carried now: {error}")

        code = _await(query, output, "mirrored", try_to_carry)
        carry()
        return code


def _sync_configs(plan: MirrorPlan, clusters: tuple[Cluster, Cluster], dry_run: bool, output: Output) -> None:
    from kwire.pipeline.mirror_configs import sync_configs

    for one in sync_configs(plan, *clusters, dry_run=dry_run):
        change = "reset" if one.after is None else f"set to {one.after}"
        was = "" if one.before is None else f", was {one.before}"
        output.note(f"{'would be ' if dry_run else ''}{change}: {one.name} of {one.topic}{was}")


def _sync_groups(
    plan: MirrorPlan, clusters: tuple[Cluster, Cluster], groups: str, dry_run: bool, output: Output
) -> None:
    from kwire.pipeline.mirror_groups import sync_groups

    done = sync_groups(plan, *clusters, groups, dry_run=dry_run)
    for one in done.moves:
        was = "" if one.before is None else f", was {one.before}"
        output.note(
            f"group {one.group}: {one.topic}-{one.partition} {'would be ' if dry_run else ''}set to {one.after} "
            f"({one.of_source} on the source){was}"
        )
    for what, why in done.left_alone:
        output.note(f"left alone: {what}: {why}")


@command.command("archive")
@_source_option
@click.option("--topics", required=True, metavar="NAME,...", help="Which topics.")
@click.option("--pattern", "is_pattern", is_flag=True, help="--topics is a regular expression.")
@click.option("--to", "path", required=True, metavar="PATH", help="The archive: a folder on any file system of Spark.")
@_checkpoint_option(required=True)
@_every_option
@_config_option("source")
@output_options
def archive_command(
    source: str, topics: str, is_pattern: bool, path: str, checkpoint: str, every: str | None,
    source_config: str | None, output: Output,
) -> ExitCode:  # fmt: skip
    """Append topics to Parquet files, partitioned by topic, date and hour."""
    from kwire.pipeline.archive import start_archive

    with _session("kwire archive", output) as spark:
        query = start_archive(
            spark, _cluster(source, source_config), topics, path, checkpoint, is_pattern=is_pattern,
            trigger=_trigger(every),
        )  # fmt: skip
        return _await(query, output, "archived")


@command.command("replay")
@click.argument("archive", metavar="ARCHIVE")
@_target_option
@click.option("--topic", required=True, metavar="NAME", help="Which topic of the archive.")
@click.option("--to", metavar="NAME", help="The topic to write. Default: of the same name.")
@click.option(
    "--partitions", type=click.Choice(["same", "by-key"]), default="same", show_default=True,
    help="same: a record keeps the number of its partition. by-key: its key decides.",
)  # fmt: skip
@click.option(
    "--create-topic", is_flag=True,
    help="Create the topic if the target lacks it, with as many partitions as the archive has records of.",
)  # fmt: skip
@click.option("--write-id", metavar="ID", help="Write exactly once; again with this id after a failure.")
@_window_options
@_config_option("target")
@output_options
def replay_command(
    archive: str, target: str, topic: str, to: str | None, partitions: str, create_topic: bool, write_id: str | None,
    since: str | None, until: str | None, target_config: str | None, output: Output,
) -> ExitCode:  # fmt: skip
    """Write a topic of an archive to a topic, with its timestamps, in its order."""
    from kwire.pipeline.replay import replay

    with _session("kwire replay", output) as spark:
        count = replay(
            spark, archive, _cluster(target, target_config), topic=topic, to=to, creates=create_topic,
            window=_window(since, until), keeps_partitions=partitions == "same", write_id=write_id,
        )  # fmt: skip
    output.note(f"{counted(count, 'record')} written")
    return ExitCode.OK


# -- captures


@command.command("report")
@click.argument("paths", metavar="CAPTURE...", nargs=-1, required=True)
@click.option("-o", "--output", "target", metavar="FILE", required=True, type=click.Path(dir_okay=False, writable=True),
              help="The page to write.")  # fmt: skip
@click.option("--title", default="Kafka traffic", show_default=True, help="Its heading.")
@click.option("--processes", type=click.IntRange(min=1), help="How many files to read at once. Default: one a core.")
@click.option("--spark", "on_spark", is_flag=True, help="Read the files in Spark's tasks.")
@output_options
def report_command(
    paths: tuple[str, ...], target: str, title: str, processes: int | None, on_spark: bool, output: Output
) -> ExitCode:
    """Write latency and errors of captures, by client and API, as one HTML page.

    CAPTURE is a file, a folder or a quoted glob. The page needs no other file.
    """
    from kwire.pipeline.report import measure_files, measure_on_spark, to_html

    if on_spark:
        with _session("kwire report", output) as spark:
            traffic = measure_on_spark(spark, list(paths))
    else:
        traffic = measure_files(_captures(paths), processes or os.cpu_count() or 1)
    with writes_file(f"the page {target}"):
        Path(target).write_text(to_html(traffic, title), "utf-8")
    for problem in traffic.problems:
        print_error(problem)
    output.note(f"{counted(traffic.requests, 'request')} of {counted(traffic.files, 'file')}")
    return ExitCode.OK if traffic.requests and not traffic.problems else ExitCode.UNDECODABLE


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
