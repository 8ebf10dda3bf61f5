"""format("kwire.capture") and format("kwire.log") as Spark calls them, without a JVM."""

from __future__ import annotations

import gc
import gzip
import io
import json
import logging
import pickle
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from kwire.errors import ConfigurationError, CorruptRecordsError
from kwire.lint import lint_file
from kwire.logs.files import is_segment
from kwire.records import encode_batch
from kwire.spark.capture_source import CaptureDataSource, CaptureOptions, read_capture_table
from kwire.spark.files import find_files, open_file, paths_of
from kwire.spark.log_source import LogDataSource
from kwire.spark.table import BYTES_MAX, ROWS_MAX, arrow_schema, batches
from tests.cli.running import run
from tests.cli.test_capture_view import CAPTURE
from tests.cli.test_dump_log import LOG, SEGMENT, STARTS
from tests.lint.test_rules import PLANTS
from tests.lint.traffic import Traffic


def read(source: type[Any], options: Mapping[str, str], schema: StructType | None = None) -> list[dict[str, Any]]:
    """Read a data source as Spark does: the schema, the partitions on the driver, pickled readers in tasks."""
    created = source(dict(options))
    wanted = schema or created.schema()
    reader = created.reader(wanted)
    found: list[dict[str, Any]] = []
    for partition in reader.partitions():
        task, where = pickle.loads(pickle.dumps((reader, partition)))
        for batch in task.read(where):
            assert batch.schema == arrow_schema(wanted)
            found += batch.to_pylist()
    return found


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    folder = tmp_path / "captures"
    (folder / "day=1").mkdir(parents=True)
    (folder / "one.pcap").write_bytes(CAPTURE)
    (folder / "day=1" / "two.pcapng.gz").write_bytes(gzip.compress(CAPTURE))
    (folder / "notes.txt").write_text("no capture")
    (folder / "_hidden.pcap").write_bytes(CAPTURE)
    return folder


def test_captures_are_read_as_decode_reads_them(captures: Path) -> None:
    rows = read(CaptureDataSource, {"path": str(captures)})
    assert {row["file"] for row in rows} == {str(captures / "one.pcap"), str(captures / "day=1" / "two.pcapng.gz")}
    for file in {row["file"] for row in rows}:
        decoded = run("decode", "-f", "json", file).lines()
        own = [row for row in rows if row["file"] == file]
        assert len(own) == len(decoded) == 4
        for row, line in zip(own, decoded, strict=True):
            for name in ("connection", "client", "broker", "api", "version", "latency_ms", "summary", "errors"):
                assert row[name] == line[name], name
            assert json.loads(row["request"]) == line["request"]
            assert json.loads(row["response"]) == line["response"]
            assert row["time"] == datetime.fromisoformat(line["request"]["time"])


def test_only_the_columns_of_a_users_schema(captures: Path) -> None:
    schema = StructType([StructField("error", StringType()), StructField("version", IntegerType())])
    rows = read(CaptureDataSource, {"path": str(captures / "one.pcap")}, schema)
    assert [tuple(row.values()) for row in rows] == [
        (None, 3), ("UNKNOWN_TOPIC_OR_PARTITION", 12), (None, 4), ("REBALANCE_IN_PROGRESS", 4)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (StructField("latency", StringType()), "a capture has no column latency: its columns are file, time"),
        (StructField("version", StringType()), "column version is int, not string"),
        (StructField("version", IntegerType(), nullable=False), "column version may be null"),
    ],
)
def test_a_wrong_schema(captures: Path, field: StructField, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        read(CaptureDataSource, {"path": str(captures)}, StructType([field]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rows": "all"}, "option rows is 'all': give one of exchanges, findings, remarks"),
        ({"prots": "1"}, "option prots is not supported: the options are path"),
        ({"lint": "true", "rows": "remarks"}, "option lint is not for rows=remarks"),
        ({"ports": "9092", "rows": "findings"}, "option ports is not for rows=findings"),
        ({"showSecrets": "true", "redact": "payloads"}, "contradict each other"),
    ],
)
def test_wrong_options(captures: Path, options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        read(CaptureDataSource, {"path": str(captures), **options})


def test_findings_are_those_of_lint(tmp_path: Path) -> None:
    """Both ways: as a table of their own, and beside the exchanges whose packets they name."""
    path = tmp_path / "planted.pcap"
    traffic = Traffic()
    for id in ("G01", "P01"):
        PLANTS[id](traffic, True)
    path.write_bytes(traffic.capture())
    expected = lint_file(str(path)).findings
    assert expected
    rows = read(CaptureDataSource, {"path": str(path), "rows": "findings"})
    assert [(row["rule"], row["subject"], row["text"], row["count"], row["packets"]) for row in rows] == [
        (one.rule.id, one.subject, one.text, one.count, one.packets) for one in expected
    ]
    exchanges = read(CaptureDataSource, {"path": str(path), "lint": "true"})
    beside = {(one["rule"], one["subject"]) for row in exchanges for one in row["findings"]}
    packets = {packet for row in exchanges for packet in (row["request_packet"], row["response_packet"])}
    assert beside == {(one.rule.id, one.subject) for one in expected if packets & set(one.packets)}
    assert beside


def test_what_could_not_be_read_is_told(captures: Path, caplog: pytest.LogCaptureFixture) -> None:
    (captures / "one.pcap").write_bytes(CAPTURE[:-30])
    options = {"path": str(captures / "one.pcap")}
    remarks = [row for row in read(CaptureDataSource, {**options, "rows": "remarks"}) if row["is_problem"]]
    assert remarks
    with caplog.at_level(logging.WARNING, "kwire.spark"):
        assert len(read(CaptureDataSource, options)) == 4
    assert remarks[0]["text"] in caplog.text


def test_a_capture_in_memory() -> None:
    """As binaryFile hands it over."""
    options = CaptureOptions.of({})
    (batch,) = read_capture_table(lambda: io.BytesIO(CAPTURE), "s3://x/one.pcap", options, options.schema())
    assert batch.column("api").to_pylist() == ["ApiVersions", "Metadata", "Heartbeat", "Heartbeat"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("orders-0", "orders-1"):
        (folder / name).mkdir(parents=True)
        (folder / name / f"{SEGMENT}.log").write_bytes(LOG)
        (folder / name / "server.log").write_text("no records")
    return folder


def test_a_log_directory_is_read(data: Path) -> None:
    source = LogDataSource({"path": str(data)})
    assert len(source.reader(source.schema()).partitions()) == 2  # a task a segment
    rows = read(LogDataSource, {"path": str(data)})
    assert len(rows) == 62
    assert {(row["topic"], row["partition"]) for row in rows} == {("orders", 0), ("orders", 1)}
    first = next(row for row in rows if row["partition"] == 1)
    assert (first["offset"], first["key"], first["value"]) == (100, b"k0", b"v" * 50)
    assert first["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    control = [row for row in rows if row["isControl"]]
    assert [json.loads(row["control"])["name"] for row in control] == ["EndTxnMarker"] * 2


@pytest.mark.parametrize(
    "name",
    [
        *(f"orders-0/{SEGMENT}.log.{suffix}" for suffix in ("deleted", "cleaned", "swap")),
        *(f"orders-0.{'a' * 32}-{state}/{SEGMENT}.log" for state in ("future", "delete", "stray")),
    ],
)
def test_what_a_broker_replaces_or_removes_is_read_where_it_is_named(data: Path, name: str) -> None:
    path = data / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(LOG)
    assert len(read(LogDataSource, {"path": str(data)})) == len(read(LogDataSource, {"path": f"{data}/*"})) == 62
    rows = read(LogDataSource, {"path": str(path)})
    assert {(row["topic"], row["partition"]) for row in rows} == {("orders", 0)}


def test_damage_ends_a_read_or_is_skipped(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = bytearray(LOG)
    broken[STARTS[1] + 70] ^= 1
    path = data / "orders-0" / f"{SEGMENT}.log"
    path.write_bytes(broken)
    with pytest.raises(CorruptRecordsError, match=rf"{SEGMENT}\.log: .*set the option onDamage to skip"):
        read(LogDataSource, {"path": str(path)})
    with caplog.at_level(logging.WARNING, "kwire.spark"):
        rows = read(LogDataSource, {"path": str(path), "onDamage": "skip"})
    assert [row["offset"] for row in rows] == [*range(100, 110), *range(125, 136)]
    assert f"{SEGMENT}.log" in caplog.text


def test_a_time_that_spark_cannot_hold(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "orders-0" / f"{0:020}.log"
    path.parent.mkdir()
    too_late = 9_300_000_000_000_000
    path.write_bytes(encode_batch([(ms, None, b"v", ()) for ms in (1, too_late, too_late + 1)], base_offset=0))
    with pytest.raises(ConfigurationError, match=rf"\.log: .* at offset 1 has the time {too_late} ms.*onDamage"):
        read(LogDataSource, {"path": str(path)})
    with caplog.at_level(logging.WARNING, "kwire.spark"):
        rows = read(LogDataSource, {"path": str(path), "onDamage": "skip"})
    assert [(row["offset"], row["timestamp"]) for row in rows] == [
        (0, datetime(1970, 1, 1, 0, 0, 0, 1_000, UTC)), (1, None), (2, None)
    ]  # fmt: skip
    assert caplog.text.count("Spark cannot hold it") == 1
    without = StructType([StructField("offset", LongType())])
    assert len(read(LogDataSource, {"path": str(path)}, without)) == 3


def test_paths(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*paths: str) -> list[str]:
        return [file.path for file in find_files(list(paths), is_segment)]

    both = [str(data / name / f"{SEGMENT}.log") for name in ("orders-0", "orders-1")]
    assert found(str(data)) == found(f"{data}/") == found(f"{data}/*") == found(f"file://{data}") == both
    assert found(f"{data}/orders-[1-9]") == found(f"{data}/orders-{{1,2}}/*.log") == [both[1]]
    assert found(f"{data}/**/{SEGMENT}.log", both[0]) == both
    assert found(f"{data}/orders-?/*.log") == both
    assert found(str(data / "orders-0" / "server.log"))  # named: taken as it is
    monkeypatch.chdir(data)
    assert [PurePosixPath(path).parts[-2] for path in found("orders-*")] == ["orders-0", "orders-1"]
    with pytest.raises(ConfigurationError, match="nowhere has no such files"):
        found(str(data / "nowhere"))
    with pytest.raises(ConfigurationError, match="nosuch://x/y cannot be read"):
        found("nosuch://x/y")
    assert paths_of({"paths": '["a", "b"]'}) == ["a", "b"]
    with pytest.raises(ConfigurationError, match="no path is given"):
        paths_of({})


def test_a_uri_is_opened_as_a_file(data: Path) -> None:
    path = data / "orders-0" / f"{SEGMENT}.log"
    with open_file(f"file://{path}") as file:
        assert file.read(10) == LOG[:10]
        file.seek(0)
        assert file.read() == LOG


def test_batches_are_bounded() -> None:
    schema = pa.schema([("text", pa.string())])
    assert [batch.num_rows for batch in batches((["x"] for _ in range(ROWS_MAX + 1)), schema)] == [ROWS_MAX, 1]
    large = "x" * (BYTES_MAX // 2)
    assert [batch.num_rows for batch in batches(([large] for _ in range(3)), schema)] == [2, 1]


def test_garbage_is_collected_seldom_while_rows_are_made() -> None:
    before = gc.get_threshold()
    during: list[int] = []

    def rows() -> Iterator[list[str]]:
        for _ in range(ROWS_MAX + 1):
            during.append(gc.get_threshold()[0])
            yield ["x"]

    schema = pa.schema([("text", pa.string())])
    assert sum(batch.num_rows for batch in batches(rows(), schema)) == ROWS_MAX + 1
    assert set(during) == {50_000}
    assert gc.get_threshold() == before
    abandoned = batches(rows(), schema)
    next(abandoned)
    del abandoned
    assert gc.get_threshold() == before
