"""`kwire produce TOPIC`: send lines, files or JSON records to a topic."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, BinaryIO

import click

from kwire.cli.arguments import complete_topic
from kwire.cli.connection import ConnectionOptions, producer_options
from kwire.cli.error_report import ExitCode, error_lines, exit_code
from kwire.cli.kcat_format import unescape
from kwire.cli.output import Output, counted, json_line, output_options
from kwire.cli.record_json import RecordToSend, record_from_json
from kwire.errors import EncodeError, KwireError

_READ_BYTES = 64 * 1024
# A broken topic fails every record in the same way: after these, only count.
_ERRORS_SHOWN_MAX = 10
_CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.File("rb"))
@click.option("-J", "--json", "is_json", is_flag=True, help="Each line is a JSON record as `kwire consume` prints it.")
@click.option("-l", "--lines", "has_lines", is_flag=True, help="Each line of the FILEs is a record, not each FILE.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="What ends each record of the input.")
@click.option(
    "-K", "--key-delimiter", help="What separates key and value; a record without it has no key. Default: no keys."
)
@click.option("-k", "--fixed-key", help="The key of every record without one.")
@click.option("-Z", "--null", "is_null", is_flag=True, help="Send an empty key or value as null.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Add a header to every record; without =, its value is null.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="The partition of every record. Default: by key, else balanced.",
)
@click.option("--repartition", is_flag=True, help="Ignore the partitions of JSON records.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(_CODECS),
    default="none",
    show_default=True,
    help="Compression of the batches.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Replicas that must store a record: all in sync, the leader, or none.",
)
@click.option(
    "-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N records. Default: at the end of the input."
)
@click.option(
    "--delivery-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Time to deliver a record, retries included; then it fails.",
)
@click.option(
    "--report",
    "has_report",
    is_flag=True,
    help="Write a JSON line to stdout for each record: its offset, or its error.",
)
@producer_options
@output_options
def command(
    topic: str, files: tuple[BinaryIO, ...], is_json: bool, has_lines: bool, delimiter: str, key_delimiter: str | None,
    fixed_key: str | None, is_null: bool, headers: tuple[str, ...], partition: int | None, repartition: bool,
    compression: str, acks: str, count: int | None, delivery_timeout: float, has_report: bool,
    connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Send lines, files or JSON records to a topic.

    Without FILE, each line of stdin is a record; each FILE is one record. The exit code is 1 if a record was not
    delivered; stderr names the first ten failures.

    \b
        echo 'k1:hello' | kwire produce orders -K :
        kwire produce blobs picture.jpg -H type=image/jpeg
        kwire consume orders -e | kwire produce copy --json
    """
    parser = _RecordParser(is_json, key_delimiter, fixed_key, is_null, headers, partition, repartition)
    ends = unescape(delimiter)
    if not ends:
        raise click.UsageError("--delimiter must not be empty")
    values = _input(files, has_lines or is_json, ends)
    if not files and sys.stdin.isatty():
        output.note("Reading records from this terminal: one per line, Ctrl-D ends.")
    with closing(_Delivery(topic, has_report, output)) as delivery:
        delivery.connect(connection, compression, acks, delivery_timeout)
        return delivery.run(parser, values, count)


class _RecordParser:
    """How a part of the input becomes a record."""

    def __init__(
        self, is_json: bool, key_delimiter: str | None, fixed_key: str | None, is_null: bool, headers: Iterable[str],
        partition: int | None, repartition: bool,
    ) -> None:  # fmt: skip
        self.is_json = is_json
        self.key_delimiter = None if key_delimiter is None else unescape(key_delimiter)
        self.fixed_key = None if fixed_key is None else fixed_key.encode("utf-8", "surrogateescape")
        self.is_null = is_null
        self.headers = tuple(_header(text) for text in headers)
        self.partition = partition
        self.repartition = repartition

    def record(self, piece: bytes) -> RecordToSend:
        """Return the record of a part. Raises EncodeError for a line that is not a JSON record."""
        if self.is_json:
            record = record_from_json(piece)
            if self.repartition:
                record = record._replace(partition=None)
        else:
            record = self._of_line(piece)
        if record.key is None and self.fixed_key is not None:
            record = record._replace(key=self.fixed_key)
        if self.is_null:
            record = record._replace(key=record.key or None, value=record.value or None)
        if self.partition is not None:
            record = record._replace(partition=self.partition)
        return record._replace(headers=record.headers + self.headers) if self.headers else record

    def _of_line(self, piece: bytes) -> RecordToSend:
        if self.key_delimiter:
            key, found, value = piece.partition(self.key_delimiter)
            if found:
                return RecordToSend(key, value)
        return RecordToSend(None, piece)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.UsageError(f"-H {text}: must be NAME=VALUE")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def _input(files: Iterable[BinaryIO], has_lines: bool, delimiter: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (input name, bytes) of each record."""
    files = list(files)
    if not files:
        for number, piece in enumerate(split_records(sys.stdin.buffer, delimiter), 1):
            yield f"line {number}", piece
    for file in files:
        name = getattr(file, "name", "-")
        if has_lines:
            for number, piece in enumerate(split_records(file, delimiter), 1):
                yield f"{name}, line {number}", piece
        else:
            yield str(name), file.read()


def split_records(stream: Any, delimiter: bytes) -> Iterator[bytes]:
    """Yield the parts of a stream between delimiters, each as soon as it is read.

    A delimiter at the end adds no empty part.
    """
    # read1 returns what is available; read would wait for a full buffer.
    read: Callable[[int], bytes] = stream.read1 if hasattr(stream, "read1") else stream.read
    rest = b""
    while chunk := read(_READ_BYTES):
        # A delimiter may span two chunks, so the rest is split again.
        *pieces, rest = (rest + chunk).split(delimiter)
        yield from pieces
    if rest:
        yield rest


class _Delivery:
    """A producer and the results of its records. The callback thread changes the counts under the condition."""

    def __init__(self, topic: str, has_report: bool, output: Output) -> None:
        self.topic = topic
        self.has_report = has_report
        self.output = output
        self.producer: Any = None
        self.changed = threading.Condition()
        self.accepted = self.delivered = self.delivered_bytes = self.failed = 0
        self.first_error: KwireError | None = None
        self.stdout_closed = False

    def connect(self, connection: ConnectionOptions, compression: str, acks: str, delivery_timeout: float) -> None:
        """Reach a broker before the first record is read, so that a wrong address fails at once."""
        from kwire.cli.metadata import request_metadata
        from kwire.cluster import ClientConfig, LoopThread
        from kwire.producer import Producer

        options = connection.client_options()
        options["compression"] = compression
        options["acks"] = acks if acks == "all" else int(acks)
        options["delivery_timeout_ms"] = max(1, round(delivery_timeout * 1000))
        options.update(connection.extra)
        self.producer = Producer(**options)
        known = ClientConfig.option_names()
        with closing(
            LoopThread(ClientConfig(**{name: options[name] for name in options if name in known}))
        ) as loop_thread:
            request_metadata(loop_thread, [], connection.timeout)

    def run(self, parser: _RecordParser, values: Iterator[tuple[str, bytes]], count: int | None) -> ExitCode:
        status = ExitCode.OK
        sent = 0
        try:
            for input_name, piece in values:
                try:
                    self._send(parser.record(piece), input_name)
                except EncodeError as error:
                    raise _at(error, input_name) from None
                sent += 1
                if sent == count or self.stdout_closed:
                    break
        except KeyboardInterrupt:
            self.output.note("interrupted; delivering what was read (Ctrl-C again: exit at once)")
            status = ExitCode.INTERRUPTED
        finally:
            # Also after a wrong line: the lines before it were accepted.
            self.producer.flush()
            with self.changed:
                # Every record is resolved; the callback thread may still be counting.
                self.changed.wait_for(lambda: self.delivered + self.failed >= self.accepted)
            self._summarise()
        if self.stdout_closed:
            raise BrokenPipeError
        if self.first_error is not None and status is ExitCode.OK:
            return exit_code(self.first_error)
        return status

    def _send(self, record: RecordToSend, input_name: str) -> None:
        size = len(record.key or b"") + len(record.value or b"")
        try:
            self.producer.send(
                self.topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms,
                on_delivery=lambda response: self._done(response, input_name, size),
            )  # fmt: skip
        except KwireError as error:
            # Rejected at once, such as a record that is too large: only this record fails.
            self._failed(error, input_name)
        except ValueError as error:
            raise EncodeError(str(error)) from None
        self.accepted += 1

    def _done(self, response: Any, input_name: str, size: int) -> None:
        error = response.exception(0)
        if error is not None:
            self._failed(error, input_name)
            return
        metadata = response.result(0)
        with self.changed:
            self.delivered += 1
            self.changed.notify()
            self.delivered_bytes += size
            if self.has_report:
                self._write(
                    {"input": input_name, "topic": metadata.topic, "partition": metadata.partition,
                     "offset": metadata.offset, "timestamp_ms": metadata.timestamp_ms}
                )  # fmt: skip

    def _failed(self, error: KwireError, input_name: str) -> None:
        with self.changed:
            self.failed += 1
            self.changed.notify()
            self.first_error = self.first_error or error
            if self.failed <= _ERRORS_SHOWN_MAX:
                first, *others = error_lines(error)
                click.echo("\n".join([f"kwire: {input_name}: {first}", *others]), err=True)
            if self.has_report:
                possibly = getattr(error, "possibly_persisted", False)
                self._write({"input": input_name, "error": str(error), "possibly_persisted": possibly})

    def _write(self, line: dict[str, Any]) -> None:
        try:
            sys.stdout.write(json_line(line) + "\n")
        except BrokenPipeError:
            self.stdout_closed = True

    def _summarise(self) -> None:
        with self.changed:
            summary = f"{counted(self.delivered, 'record')}, {counted(self.delivered_bytes, 'byte')} to {self.topic}"
            self.output.note(f"{summary}; {self.failed} failed" if self.failed else summary)

    def close(self) -> None:
        if self.producer is not None:
            self.producer.close(0)


def _at(error: EncodeError, input_name: str) -> EncodeError:
    return EncodeError(f"{input_name}: {error.message}", remedy=error.remedy).at(**error.where)
