"""`kwire produce TOPIC`: send lines, files or JSON records to a topic."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import click

from kwire.cli.arguments import complete_topic
from kwire.cli.connection import ConnectionOptions, producer_options
from kwire.cli.error_report import ExitCode, error_lines, exit_code
from kwire.cli.finite_range import SECONDS_MAX, FiniteRange
from kwire.cli.kcat_format import unescape
from kwire.cli.output import Output, counted, json_line, output_options
from kwire.errors import EncodeError, ErrorCode, KwireError, RequestTimeoutError, TopicError, broker_error

if TYPE_CHECKING:
    from kwire.cli.record_json import Headers, RecordToSend

_READ_BYTES = 1024 * 1024
# The first records are few, and have so long to arrive alone: see `_Delivery._let_first_arrive`.
_FIRST_READ_BYTES = 64 * 1024
_FIRST_SECONDS = 1.0
# How many reasons are shown; a broken topic has one for all its records.
_REASONS_MAX = 10
_OF_THE_CALL = re.compile(r"^record \d+ of the call")
_NUMBER = re.compile(r"\d+")
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
    type=FiniteRange(min=0, min_open=True, max=SECONDS_MAX),
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
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Send all records in one transaction: committed at the end of the input, aborted at an error or Ctrl-C.",
)
@click.option("--no-create", is_flag=True, help="Fail if there is no such topic, instead of letting brokers create it.")
@producer_options
@output_options
def command(
    topic: str, files: tuple[BinaryIO, ...], is_json: bool, has_lines: bool, delimiter: str, key_delimiter: str | None,
    fixed_key: str | None, is_null: bool, headers: tuple[str, ...], partition: int | None, repartition: bool,
    compression: str, acks: str, count: int | None, delivery_timeout: float, has_report: bool, no_create: bool,
    transactional_id: str | None, connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Send lines, files or JSON records to a topic.

    Without FILE, each line of stdin is a record; each FILE is one record. The exit code is 1 if a record was not
    delivered; stderr names each reason once, with the line where it was met first.

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
    with closing(_Delivery(topic, is_json, has_report, output)) as delivery:
        delivery.transactional_id = transactional_id
        delivery.connect(connection, compression, acks, delivery_timeout, not no_create)
        return delivery.run(parser, values, count)


class _Records(Protocol):
    """Records to send together."""

    def __len__(self) -> int: ...

    def send(self, producer: Any, topic: str) -> Any:
        """Send them; return the producer's response for all."""
        ...

    def one(self, index: int) -> _Records:
        """Return one of the records alone."""
        ...

    def size(self, without: Collection[int]) -> int:
        """Return how many bytes the keys and values have, without those of some records."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """The parts of a chunk as values, without an object for each."""

    chunk: _Chunk

    def __len__(self) -> int:
        return self.chunk.count()

    def send(self, producer: Any, topic: str) -> Any:
        response = producer.send_lines(topic, self.chunk.data, self.chunk.delimiter)
        self.chunk.parts = len(response)
        return response

    def one(self, index: int) -> _Columns:
        return _Columns([self.chunk.pieces()[index]])

    def size(self, without: Collection[int]) -> int:
        data, delimiter = self.chunk.data, self.chunk.delimiter
        size = len(data) - len(delimiter) * (self.chunk.count() - (not data.endswith(delimiter)))
        if without:
            pieces = self.chunk.pieces()
            size -= sum(len(pieces[index]) for index in without)
        return size


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Keys, values and more, as `Producer.send_many` takes them."""

    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    headers: list[Headers] | None = None
    timestamps_ms: list[int | None] | None = None
    partitions: list[int | None] | int | None = None

    def __len__(self) -> int:
        return len(self.values)

    def send(self, producer: Any, topic: str) -> Any:
        return producer.send_many(topic, self.values, self.keys, self.headers, self.timestamps_ms, self.partitions)

    def one(self, index: int) -> _Columns:
        partitions = self.partitions
        return _Columns(
            [self.values[index]],
            None if self.keys is None else [self.keys[index]],
            None if self.headers is None else [self.headers[index]],
            None if self.timestamps_ms is None else [self.timestamps_ms[index]],
            [partitions[index]] if isinstance(partitions, list) else partitions,
        )

    def size(self, without: Collection[int]) -> int:
        columns = (self.keys or (), self.values)
        size = sum(sum(map(len, filter(None, column))) for column in columns)
        return size - sum(len(column[index] or b"") for index in without for column in columns if column)


class _RecordParser:
    """How parts of the input become records."""

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
        self._has_only_values = not (
            is_json or self.key_delimiter or is_null or self.headers or fixed_key is not None or partition is not None
        )

    def records(self, chunk: _Chunk, most: int | None) -> tuple[_Records, EncodeError | None]:
        """Return the records of a chunk up to the first that is not a JSON record, and the error about that one.

        `most` is how many records are wanted of it; None: all.
        """
        if self._has_only_values and chunk.delimiter and (most is None or chunk.count() <= most):
            return _Lines(chunk), None
        return self._columns(chunk.pieces()[:most])

    def _columns(self, pieces: list[bytes]) -> tuple[_Columns, EncodeError | None]:
        error: EncodeError | None = None
        columns = _Columns([])
        if self.is_json:
            columns, error = self._of_json(pieces)
        elif self.key_delimiter:
            split = [piece.partition(self.key_delimiter) for piece in pieces]
            columns = _Columns(
                [value if found else key for key, found, value in split],
                [key if found else None for key, found, _ in split],
            )
        else:
            columns = _Columns([*pieces])
        values = columns.values
        keys: list[bytes | None] | None = columns.keys
        if self.fixed_key is not None:
            fixed: bytes | None = self.fixed_key
            keys = [fixed if key is None else key for key in keys or [None] * len(values)]
        if self.is_null:
            values = [value or None for value in values]
            keys = None if keys is None else [key or None for key in keys]
        headers = columns.headers
        if self.headers:
            headers = [one + self.headers for one in headers or [()] * len(values)]
        partitions = columns.partitions if self.partition is None else self.partition
        return _Columns(values, keys, headers, columns.timestamps_ms, partitions), error

    def _of_json(self, pieces: list[bytes]) -> tuple[_Columns, EncodeError | None]:
        from kwire.cli.record_json import record_from_json

        error = None
        records: list[RecordToSend] = []
        for piece in pieces:
            try:
                records.append(record_from_json(piece))
            except EncodeError as wrong:
                error = wrong
                break
        columns = _Columns(
            [one.value for one in records],
            [one.key for one in records],
            [one.headers for one in records],
            [one.timestamp_ms for one in records],
            None if self.repartition else [one.partition for one in records],
        )
        return columns, error


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.UsageError(f"-H {text}: must be NAME=VALUE")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


@dataclass(slots=True, eq=False)
class _Chunk:
    """Consecutive parts of the input, with their delimiters; or, with an empty delimiter, a file that is one record.

    `number` is the line of the first part, `parts` how many there are, once somebody has counted.
    """

    name: str
    number: int
    data: bytes
    delimiter: bytes
    parts: int | None = None

    def count(self) -> int:
        if self.parts is None:
            is_open = not self.data.endswith(self.delimiter)
            self.parts = self.data.count(self.delimiter) + is_open if self.delimiter else 1
        return self.parts

    def pieces(self) -> list[bytes]:
        return split_records(self.data, self.delimiter) if self.delimiter else [self.data]

    def place(self, index: int) -> str:
        """Return where a part is, for messages."""
        return f"{self.name}line {self.number + index}" if self.delimiter else self.name


def _input(files: Iterable[BinaryIO], has_lines: bool, delimiter: bytes) -> Iterator[_Chunk]:
    """Yield the parts of the input, as many at once as are there."""
    files = list(files)
    for file in files or [sys.stdin.buffer]:
        name = str(getattr(file, "name", "-"))
        if files and not has_lines:
            yield _Chunk(name, 1, file.read(), b"")
            continue
        number = 1
        for data in whole_records(file, delimiter):
            chunk = _Chunk(f"{name}, " if files else "", number, data, delimiter)
            yield chunk
            number += chunk.count()


def split_records(data: bytes, delimiter: bytes) -> list[bytes]:
    """Return the parts between delimiters. One at the end adds no empty part."""
    pieces = data.split(delimiter)
    if not pieces[-1]:
        pieces.pop()
    return pieces


def whole_records(stream: Any, delimiter: bytes) -> Iterator[bytes]:
    """Yield what a stream has, in blocks that end with a delimiter; the last one may end without.

    A delimiter that overlaps itself, as "aa" does in "aaa", is found from the left, as by `bytes.split`.
    """
    # read1 returns what is available; read would wait for a full buffer.
    read: Callable[[int], bytes] = stream.read1 if hasattr(stream, "read1") else stream.read
    rest = b""
    size = _FIRST_READ_BYTES
    while chunk := read(size):
        size = _READ_BYTES
        data = rest + chunk  # a delimiter may span two reads
        end = data.rfind(delimiter) + 1 if len(delimiter) == 1 else len(data) - len(data.split(delimiter)[-1])
        rest = data[end:]
        if end:
            yield data[:end]
    if rest:
        yield rest


class _Failures:
    """Records that failed, told on stderr: each reason once, and how many others failed in the same way."""

    def __init__(self, is_json: bool) -> None:
        self.first: KwireError | None = None
        which = "--repartition ignores those of the JSON records" if is_json else "leave out -p"
        self._on_partitions = f"       or let kwire choose the partitions: {which}"
        self._others: dict[str, list[str]] = {}  # by reason: places of those after the first

    def add(self, error: KwireError, place: str) -> None:
        self.first = self.first or error
        first, *others = error_lines(error)
        first = _OF_THE_CALL.sub("the record", first)  # send_many counts from the first of its records
        reason = _NUMBER.sub("", first)
        if reason in self._others:
            self._others[reason].append(place)
        elif len(self._others) < _REASONS_MAX:
            self._others[reason] = []
            if isinstance(error, TopicError) and "partition" in error.where:
                others.append(self._on_partitions)
            click.echo("\n".join([f"kwire: {place}: {first}", *others]), err=True)
        else:
            self._others.setdefault("", []).append(place)

    def summarise(self) -> None:
        """Say how many records failed like those that were shown."""
        for reason, places in self._others.items():
            if places:
                named = ", ".join(places[:3]) + (", ..." if len(places) > 3 else "")
                how = "in the same way" if reason else "in other ways"
                click.echo(f"kwire: {counted(len(places), 'more record')} failed {how} ({named})", err=True)


class _Delivery:
    """A producer and the results of its records. The callback thread changes the counts under the condition."""

    def __init__(self, topic: str, is_json: bool, has_report: bool, output: Output) -> None:
        self.topic = topic
        self.has_report = has_report
        self.output = output
        self.cluster: Any = None
        self.producer: Any = None
        self.transactional_id: str | None = None
        self.changed = threading.Condition()
        self.accepted = self.delivered = self.delivered_bytes = self.failed = 0
        self.failures = _Failures(is_json)
        self.stdout_closed = False

    def connect(
        self, connection: ConnectionOptions, compression: str, acks: str, delivery_timeout: float, may_create: bool
    ) -> None:
        """Reach a broker before the first record is read, so that a wrong address fails at once."""
        from kwire.cli.metadata import begin_metadata
        from kwire.cluster import ClientConfig, Cluster, open_loop_thread

        options = connection.client_options()
        options["compression"] = compression
        options["acks"] = acks if acks == "all" else int(acks)
        options["delivery_timeout_ms"] = max(1, round(delivery_timeout * 1000))
        if self.transactional_id is not None:
            options["transactional_id"] = self.transactional_id
        options.update(connection.extra)
        shared = options.keys() & ClientConfig.option_names()
        self.cluster = Cluster(**{name: options.pop(name) for name in shared})
        with closing(open_loop_thread("kwire produce", self.cluster, {}, "metadata")) as loop_thread:
            found_by = begin_metadata(loop_thread, [self.topic], connection.timeout)
            from kwire.producer import Producer  # takes 30 ms: meanwhile the broker responds

            self.producer = Producer(self.cluster, **options)
            found = found_by()
        if any(one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in found.topics):
            if not may_create:
                raise broker_error(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "and --no-create was given", topic=self.topic,
                    remedy=f"check the name, or create it: kwire topics create {self.topic}",
                )  # fmt: skip
            self.output.note(f"there is no topic {self.topic} yet: it is created if the brokers are set to do so")

    def run(self, parser: _RecordParser, chunks: Iterator[_Chunk], count: int | None) -> ExitCode:
        status = ExitCode.OK
        left = count
        is_complete = False
        if self.transactional_id is not None:
            self.producer.begin()
        try:
            for chunk in chunks:
                records, error = parser.records(chunk, left)
                if error is None or len(records):
                    is_first = not self.accepted
                    self._send(records, chunk)
                    if is_first:
                        self._let_first_arrive()
                if error is not None:
                    raise _at(error, chunk.place(len(records))) from None
                left = None if left is None else left - len(records)
                if left == 0 or self.stdout_closed:
                    break
            is_complete = not self.stdout_closed
        except KeyboardInterrupt:
            self.output.note("interrupted; delivering what was read (Ctrl-C again: exit at once)")
            status = ExitCode.INTERRUPTED
        finally:
            # Also after a wrong line: the lines before it were accepted.
            self.producer.flush()
            with self.changed:
                # Every record is resolved; the callback thread may still be counting.
                self.changed.wait_for(lambda: self.delivered + self.failed >= self.accepted)
            if self.transactional_id is not None:
                self._end_transaction(is_complete and self.failures.first is None)
            self._summarise()
        if self.stdout_closed:
            raise BrokenPipeError
        if self.failures.first is not None and status is ExitCode.OK:
            return exit_code(self.failures.first)
        return status

    def _end_transaction(self, is_commit: bool) -> None:
        if is_commit:
            self.producer.commit()
        else:
            self.producer.abort()
            self.output.note("the transaction was aborted: readers with --isolation read_committed see none of it")

    def _let_first_arrive(self) -> None:
        """Wait, but not long, until the first records have a result.

        To append records keeps the interpreter busy: the requests that must precede the first records (for the topic,
        a producer id and a connection of its own) take 5 ms while this thread waits, and 40 ms if it goes on.
        """
        with suppress(RequestTimeoutError):
            self.producer.flush(_FIRST_SECONDS)

    def _send(self, records: _Records, chunk: _Chunk) -> None:
        try:
            self._send_together(records, chunk.place)
        except ValueError:
            # None of them was sent. Alone, each says which one cannot be a record, after those before it.
            for index in range(len(records)):
                place = chunk.place(index)
                try:
                    self._send_together(records.one(index), lambda _, place=place: place)  # type: ignore[misc]
                except ValueError as error:
                    raise EncodeError(f"{place}: {error}") from None

    def _send_together(self, records: _Records, place: Callable[[int], str]) -> None:
        try:
            response = records.send(self.producer, self.topic)
        except KwireError as error:
            # Rejected at once, all of them, such as those of a topic whose name is wrong.
            with self.changed:
                for index in range(len(records)):
                    self._failed(error, place(index))
        else:
            response.add_done_callback(lambda response: self._done(response.settled(), records, place))
        self.accepted += len(records)

    def _done(self, result: Any, records: _Records, place: Callable[[int], str]) -> None:
        errors: dict[int, KwireError] = dict(result.errors)
        with self.changed:
            for index, error in errors.items():
                self._failed(error, place(index))
            self.delivered += len(result) - len(errors)
            self.delivered_bytes += records.size(without=errors)
            if self.has_report:
                for index in range(len(result)):
                    if index in errors:
                        continue
                    metadata = result[index]
                    self._write(
                        {"input": place(index), "topic": metadata.topic, "partition": metadata.partition,
                         "offset": metadata.offset, "timestamp_ms": metadata.timestamp_ms}
                    )  # fmt: skip
            self.changed.notify()

    def _failed(self, error: KwireError, place: str) -> None:
        """Count a failure. The caller holds the condition."""
        self.failed += 1
        self.failures.add(error, place)
        if self.has_report:
            possibly = getattr(error, "possibly_persisted", False)
            self._write({"input": place, "error": str(error), "possibly_persisted": possibly})

    def _write(self, line: dict[str, Any]) -> None:
        try:
            sys.stdout.write(json_line(line) + "\n")
        except BrokenPipeError:
            self.stdout_closed = True

    def _summarise(self) -> None:
        with self.changed:
            self.failures.summarise()
            summary = f"{counted(self.delivered, 'record')}, {counted(self.delivered_bytes, 'byte')} to {self.topic}"
            self.output.note(f"{summary}; {self.failed} failed" if self.failed else summary)

    def close(self) -> None:
        if self.producer is not None:
            self.producer.close(0)
        if self.cluster is not None:
            self.cluster.close(0)


def _at(error: EncodeError, input_name: str) -> EncodeError:
    return EncodeError(f"{input_name}: {error.message}", remedy=error.remedy).at(**error.where)
