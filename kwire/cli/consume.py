"""`kwire consume TOPIC`: print records as text, as JSON lines, or by a format string.

With --group it is a member, and commits what was written to stdout.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from kwire.capture.times import utc_text
from kwire.cli.arguments import complete_topic
from kwire.cli.connection import ConnectionOptions, consumer_options
from kwire.cli.error_report import ExitCode
from kwire.cli.kcat_format import compile_format, unescape
from kwire.cli.output import Output, counted, has_colour, json_line, output_options, printable
from kwire.cli.record_json import json_lines
from kwire.errors import ErrorCode, broker_error

if TYPE_CHECKING:
    from kwire.consumer import Consumer, ConsumerRecord, StartOffset

TopicPartition = tuple[str, int]
Writer = Callable[["list[ConsumerRecord]"], None]
# Records per write, and how long to wait for the first one.
_AT_ONCE_MAX = 20_000
_POLL_SECONDS = 0.5


@click.command()
@click.argument("topics", metavar="TOPIC[:PARTITION,...]...", nargs=-1, required=True, shell_complete=complete_topic)
@click.option(
    "-o",
    "--offset",
    "start",
    default="beginning",
    show_default=True,
    metavar="OFFSET",
    help="beginning, end, a number, -N (N records before the end), or @TIME: ms since 1970, ISO 8601, or @-1h.",
)
@click.option("-g", "--group", metavar="GROUP", help="Read as a member of this consumer group, from where it is.")
@click.option(
    "--group-protocol",
    type=click.Choice(["auto", "classic", "consumer"]),
    default="auto",
    show_default=True,
    help="With --group: consumer is the protocol of KIP-848.",
)
@click.option("--instance-id", metavar="ID", help="With --group: a static member; a restart causes no rebalance.")
@click.option(
    "--commit",
    type=click.Choice(["auto", "manual"]),
    default="auto",
    show_default=True,
    help="With --group: auto commits what was printed, manual commits nothing.",
)
@click.option(
    "--until",
    metavar="@TIME",
    help="Stop before the first record of each partition at or after this time; implies -e. As the times of -o.",
)
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N records. Default: at Ctrl-C.")
@click.option(
    "-e", "--exit", "exit_at_end", is_flag=True, help="Stop at the end that each partition has when the command starts."
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed skips aborted transactions and waits for open ones.",
)
@click.option("-F", "--template", metavar="FORMAT", help="Print each record by kcat's tokens: '%t %p %o %k %s\\n'.")
@click.option("--raw", is_flag=True, help="Print only the bytes of the values.")
@click.option("-D", "--delimiter", default="", help="With --raw: what to print after each value. Default: nothing.")
@click.option(
    "--null", help="With -F and --raw: print this for null. Default: nothing; a null header is its name alone."
)
@consumer_options
@output_options
def command(
    topics: tuple[str, ...], start: str, group: str | None, group_protocol: str, instance_id: str | None, commit: str,
    count: int | None, exit_at_end: bool, isolation: str, template: str | None, raw: bool, delimiter: str,
    null: str | None, until: str | None, connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Print the records of topics.

    Reads all partitions, or those that are named: orders:0,2. Tokens of -F: %s value, %k key, %h headers, %t topic, %p
    partition, %o offset, %T timestamp, %S and %K lengths, %R length as four bytes.

    With --group the members share the partitions, and each goes on where the group has committed; -o is only for
    partitions without a commit. -e then ends at the end of the partitions that this member has. Ctrl-C commits what was
    printed and leaves the group.

    \b
        kwire consume orders -e
        kwire consume orders:0 -o -10 -F '%o %k %s\\n'
        kwire consume orders -o @-15m | jq .value
        kwire consume blobs -c 1 --raw > picture.jpg
        kwire consume orders --group billing
    """
    from kwire.consumer import AtTimestamp, Consumer

    if raw and template is not None:
        raise click.UsageError("give either --raw or -F, not both")
    wanted = [_topic(text) for text in topics]
    start_at = parse_start(start)
    until_at = None if until is None else parse_start(until)
    if until_at is not None and not isinstance(until_at, AtTimestamp):
        raise click.UsageError(f"--until {until}: must be @TIME")
    if until_at is not None and group is not None:
        raise click.UsageError("--until is without --group: a group goes on where it is")
    exit_at_end |= until_at is not None
    write = _writer(output, template, raw, delimiter, null)
    # A wrong topic name should fail soon; brokers know a new topic within a second.
    options = {"isolation": isolation, "unknown_topic_timeout_ms": 1_000, **connection.client_options()}
    if group is not None:
        options |= {"group": group, "group_protocol": group_protocol, "commit": commit}
        if instance_id is not None:
            options["group_instance_id"] = instance_id
        read, status = _read_as_member(options, wanted, start_at, exit_at_end, count, write, connection.timeout)
        if output.is_table:
            output.note(counted(read, "record"))
        return status
    if instance_id is not None:
        raise click.UsageError("--instance-id needs --group")
    with Consumer(**options) as consumer:
        partitions = _partitions(consumer, wanted, connection.timeout)
        ends = (
            consumer.end_offsets(partitions, connection.timeout)
            if exit_at_end or isinstance(start_at, _BeforeEnd)
            else {}
        )
        starts = _starts(consumer, partitions, start_at, ends, connection.timeout)
        if exit_at_end:
            _check_within(starts, ends)
        if until_at is not None:
            found = consumer.offsets_at([(*key, until_at.timestamp_ms) for key in partitions], connection.timeout)
            ends = {key: end if (at := found[key]) is None else min(end, at) for key, end in ends.items()}
        consumer.assign([(*key, starts[key]) for key in partitions])
        if not exit_at_end:
            ends = {}
        read = _read(consumer, ends, count, write)
    if output.is_table:
        output.note(counted(read, "record"))
    return ExitCode.OK


def _topic(text: str) -> tuple[str, list[int] | None]:
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not re.fullmatch(r"\d+(,\d+)*", numbers)):
        raise click.UsageError(f"{text} is not TOPIC or TOPIC:PARTITION,...")
    return topic, [int(number) for number in numbers.split(",")] if colon else None


class _BeforeEnd(int):
    """A number of records before the end."""


def parse_start(text: str, now: datetime | None = None) -> StartOffset | _BeforeEnd:
    """Return what -o says. `now` is for relative times. Raises UsageError."""
    from kwire.consumer import AtTimestamp

    if text in ("beginning", "earliest"):
        return "earliest"
    if text in ("end", "latest"):
        return "latest"
    if re.fullmatch(r"\d+", text):
        return int(text)
    if re.fullmatch(r"-\d+", text):
        return _BeforeEnd(text[1:])
    if text.startswith("@"):
        return AtTimestamp(_time_ms(text[1:], now or datetime.now(UTC)))
    raise click.UsageError(f"-o {text}: must be beginning, end, a number, -N or @TIME")


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _time_ms(text: str, now: datetime) -> int:
    if re.fullmatch(r"\d+", text):
        return int(text)
    if ago := re.fullmatch(r"-(\d+)([smhd])", text):
        try:
            at = now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            return 0  # before the calendar begins, and so before all records
    else:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise click.UsageError(
                f"@{text} is not a time: give ms since 1970, ISO 8601, or -15m (s, m, h, d)"
            ) from None
    # A time without a zone is local time.
    return max(0, round(at.timestamp() * 1000))


def _partitions(
    consumer: Consumer, wanted: Iterable[tuple[str, list[int] | None]], timeout: float
) -> list[TopicPartition]:
    found: dict[TopicPartition, None] = {}
    for topic, numbers in wanted:
        known = consumer.partitions(topic, timeout)
        missing = sorted(set(numbers or []) - set(known))
        if missing:
            raise click.UsageError(f"{topic} has partitions 0 to {len(known) - 1}, not {missing[0]}")
        found.update(dict.fromkeys((topic, number) for number in (known if numbers is None else numbers)))
    return list(found)


def _starts(
    consumer: Consumer, partitions: list[TopicPartition], start_at: StartOffset | _BeforeEnd,
    ends: dict[TopicPartition, int], timeout: float,
) -> dict[TopicPartition, StartOffset]:  # fmt: skip
    if not isinstance(start_at, _BeforeEnd):
        return dict.fromkeys(partitions, start_at)
    begins = consumer.beginning_offsets(partitions, timeout)
    return {key: max(begins[key], ends[key] - int(start_at)) for key in partitions}


def _check_within(starts: dict[TopicPartition, StartOffset], ends: dict[TopicPartition, int]) -> None:
    """Raise OFFSET_OUT_OF_RANGE, as a broker would without -e, if the start is beyond the end of every partition."""
    beyond = [(key, start) for key, start in starts.items() if isinstance(start, int) and start > ends[key]]
    if beyond and len(beyond) == len(starts):
        (topic, partition), start = beyond[0]
        raise broker_error(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"the partition ends at offset {ends[topic, partition]}, before {start}",
            topic=topic, partition=partition, remedy="give -o a smaller offset, or -N for N before the end",
        )  # fmt: skip


def _read(
    consumer: Consumer,
    ends: dict[TopicPartition, int],
    count: int | None,
    write: Writer,
) -> int:
    """Write records until `count` of them, or until all partitions reached their ends; return their number."""
    read = 0
    open_ends = dict(ends)
    while True:
        for key in [key for key, end in open_ends.items() if consumer.position(*key) >= end]:
            del open_ends[key]
        if ends and not open_ends:
            return read
        left = _AT_ONCE_MAX if count is None else min(_AT_ONCE_MAX, count - read)
        records = list(consumer.poll_batch(left, _POLL_SECONDS))
        if ends:
            # Skip what was written after the start.
            records = [one for one in records if one.offset < ends[one.topic, one.partition]]
        if records:
            write(records)
            read += len(records)
        if read == count:
            return read


def _read_as_member(
    options: dict[str, Any], wanted: list[tuple[str, list[int] | None]], start_at: StartOffset | _BeforeEnd,
    exit_at_end: bool, count: int | None, write: Writer, timeout: float,
) -> tuple[int, ExitCode]:  # fmt: skip
    """Write records as a member of a group, until `count`, the end, or a signal; return their number and exit code.

    The consumer commits by itself: each poll says that what was written before is processed.
    """
    from kwire.consumer import Consumer, stop_on_signals

    if any(numbers is not None for _, numbers in wanted):
        raise click.UsageError("the group chooses the partitions: give --group topics without partitions")
    if isinstance(start_at, int):  # a number, or as many before the end
        raise click.UsageError("with --group, -o must be beginning, end or @TIME")
    read = 0
    is_assigned = False

    def on_assigned(partitions: object) -> None:
        nonlocal is_assigned
        is_assigned = True

    chosen: dict[str, Any] = {**options, "on_no_offset": start_at}
    with stop_on_signals() as stop, Consumer(**chosen) as consumer:
        keys = [(topic, number) for topic, _ in wanted for number in consumer.partitions(topic, timeout)]
        ends = consumer.end_offsets(keys, timeout) if exit_at_end else {}
        consumer.subscribe([topic for topic, _ in wanted], on_assigned=on_assigned)
        while not stop.is_set() and read != count:
            if (
                exit_at_end
                and is_assigned
                and all(consumer.position(*key) >= ends[key] for key in consumer.assignment())
            ):
                break
            left = _AT_ONCE_MAX if count is None else min(_AT_ONCE_MAX, count - read)
            records = list(consumer.poll_batch(left, _POLL_SECONDS))
            if records:
                write(records)
                read += len(records)
        if options["commit"] == "auto":
            consumer.commit()  # also what was written last
    return read, ExitCode.INTERRUPTED if stop.is_set() else ExitCode.OK


def _writer(output: Output, template: str | None, raw: bool, delimiter: str, null: str | None) -> Writer:
    """Return a function that writes a group of records to stdout and flushes it."""
    if template is not None or raw:
        null_bytes = None if null is None else null.encode("utf-8", "surrogateescape")
        after = unescape(delimiter)
        render = compile_format("%s" if template is None else template, null=null_bytes)
        stdout = sys.stdout.buffer

        def write_bytes(records: list[ConsumerRecord]) -> None:
            stdout.write(after.join(map(render, records)) + after)
            stdout.flush()

        return write_bytes
    if output.is_table:
        show = _line_formatter(has_colour())

        def lines(records: list[ConsumerRecord]) -> list[str]:
            return [show(record) + "\n" for record in records]

    elif output.fields:

        def lines(records: list[ConsumerRecord]) -> list[str]:
            return [json_line(output.chosen(json.loads(line))) + "\n" for line in json_lines(records)]

    else:
        lines = json_lines

    def write_lines(records: list[ConsumerRecord]) -> None:
        sys.stdout.write("".join(lines(records)))
        sys.stdout.flush()

    return write_lines


def _line_formatter(is_coloured: bool) -> Callable[[ConsumerRecord], str]:
    """Return a function that makes one line of a record: position and time, key, value, headers."""

    def style(text: str, **how: Any) -> str:
        return click.style(text, **how) if is_coloured else text

    def show(record: ConsumerRecord) -> str:
        position = f"{record.topic}:{record.partition} @{record.offset}"
        cells = [style(position, fg="cyan"), style(utc_text(record.timestamp_ms) or "-", dim=True)]
        cells.append(style(bytes_text(record.key), fg="green"))
        cells.append(bytes_text(record.value))
        if record.headers:
            text = " ".join(f"{printable(name)}={bytes_text(value)}" for name, value in record.headers)
            cells.append(style(f"[{text}]", dim=True))
        return "  ".join(cells)

    return show


def bytes_text(data: bytes | None) -> str:
    """Return bytes as text: UTF-8 as it is, other bytes in hex, null as "(null)"."""
    if data is None:
        return "(null)"
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
