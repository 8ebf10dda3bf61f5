"""Topics and archives as sides of an audit, and `kwire pipeline audit` on embedded clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import kwire
from kwire.broker import Cluster
from kwire.errors import ConfigurationError, ErrorCode, TopicError, broker_error
from kwire.pipeline.archive import archived_files, committed
from kwire.pipeline.audit import audit
from kwire.pipeline.sides import ArchiveSide, TopicSide, Window, check_topic, parse_side
from kwire.pipeline.sides import Cluster as Brokers
from tests.cli.running import run

T0 = 1_700_000_000_000
HEADERS = (("trace", b"\x01"), ("empty", None))


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[str, str]]:
    with Cluster() as source, Cluster() as target:
        yield source.bootstrap, target.bootstrap


def send(bootstrap: str, topic: str, numbers: list[int], **options: Any) -> None:
    with kwire.Producer(bootstrap, **options) as producer:
        for number in numbers:
            producer.send(
                topic, b"value %d" % number, key=b"k%d" % (number % 5), partition=number % 2, headers=HEADERS,
                timestamp_ms=T0 + number,
            )  # fmt: skip
        producer.flush()


def create(bootstrap: str, *topics: str, partitions: int = 2) -> None:
    with kwire.Admin(bootstrap) as admin:
        admin.create_topics([kwire.NewTopic(topic, partitions, 1) for topic in topics])


@pytest.mark.parametrize(
    ("topic", "numbers", "code", "expected"),
    [
        ("clean", list(range(100)), 0, {}),
        ("lost", [number for number in range(100) if number != 41], 1, {"lost": 1}),
        ("doubled", [*range(100), 7, 9], 1, {"doubled": 2}),
        ("reordered", [2, 0, *range(1, 2), *range(3, 100)], 1, {"reordered": 1}),
        ("behind", list(range(90)), 1, {"lost": 10, "behind": 10}),
    ],
)
def test_audit_of_two_clusters(
    clusters: tuple[str, str], topic: str, numbers: list[int], code: int, expected: dict[str, int]
) -> None:
    source, target = clusters
    for bootstrap in clusters:
        create(bootstrap, topic)
    send(source, topic, list(range(100)))
    send(target, topic, numbers)
    ran = run("pipeline", "audit", f"{source}/{topic}", f"{target}/{topic}", "-f", "json")
    assert ran.code == code
    *partitions, total = ran.lines()
    found = {name: total[name] for name in ("lost", "behind", "doubled", "foreign", "reordered") if total[name]}
    assert found == expected
    assert (total["source"], total["target"]) == (100, len(numbers))
    assert [one["partition"] for one in partitions] == [0, 1]
    allowed = run("pipeline", "audit", f"{source}/{topic}", f"{target}/{topic}", "--allow-behind")
    assert allowed.code == (0 if topic == "behind" else code)
    # 0 and 2 have different keys.
    by_key = run("pipeline", "audit", f"{source}/{topic}", f"{target}/{topic}", "--by", "key")
    assert by_key.code == (0 if topic == "reordered" else code)


def test_a_table_names_the_first_places(clusters: tuple[str, str]) -> None:
    source, target = clusters
    create(source, "places")
    create(target, "places")
    send(source, "places", list(range(10)))
    send(target, "places", [*range(4), *range(6, 10), 0])
    ran = run("pipeline", "audit", f"{source}/places", f"{target}/places", "-f", "table")
    assert ran.code == 1
    assert "lost: first at partition:offset 0:2, 1:2 of the source" in ran.stdout
    assert "doubled: first at partition:offset 0:4 of the target" in ran.stdout


def test_what_was_aborted_is_no_record(clusters: tuple[str, str]) -> None:
    source, target = clusters
    create(source, "aborted")
    create(target, "aborted")
    send(source, "aborted", [0, 1, 2, 3])
    with kwire.Producer(target, transactional_id="t") as producer:
        producer.init_transactions()
        for numbers in ([0, 1], [0, 1, 2, 3]):
            with suppress(ZeroDivisionError), producer.transaction():
                for number in numbers:
                    producer.send(
                        "aborted", b"value %d" % number, key=b"k%d" % (number % 5), partition=number % 2,
                        headers=HEADERS, timestamp_ms=T0 + number,
                    )  # fmt: skip
                if len(numbers) == 2:
                    raise ZeroDivisionError
    assert run("pipeline", "audit", f"{source}/aborted", f"{target}/aborted").code == 0


def test_only_a_window_of_time(clusters: tuple[str, str]) -> None:
    source, target = clusters
    create(source, "window")
    create(target, "window")
    send(source, "window", list(range(20)))
    send(target, "window", list(range(5, 15)))
    both = (f"{source}/window", f"{target}/window")
    assert run("pipeline", "audit", *both).code == 1
    since = datetime.fromtimestamp((T0 + 5) / 1000, UTC).isoformat()
    ran = run("pipeline", "audit", *both, "--since", since, "--until", str(T0 + 15), "-f", "json")
    assert ran.code == 0
    assert ran.lines()[-1]["source"] == 10
    assert run("pipeline", "audit", *both, "--since", "yesterday").code == 2


def test_partitions_that_do_not_fit(clusters: tuple[str, str]) -> None:
    source, target = clusters
    create(source, "wide")
    create(target, "wide", partitions=1)
    ran = run("pipeline", "audit", f"{source}/wide", f"{target}/wide")
    assert (ran.code, "--by key" in ran.stderr) == (2, True)


def test_a_topic_that_does_not_exist(clusters: tuple[str, str]) -> None:
    side = TopicSide(Brokers(clusters[0]), "nowhere")
    with pytest.raises(TopicError):
        side.partitions()
    side.close()


def archive(root: Path, topic: str, numbers: list[int], name: str = "part-0.parquet") -> Path:
    """Write what Spark writes: a file of a topic, with the offsets that `send` gives to these numbers."""
    headers = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    table = pa.table({
        "key": pa.array([b"k%d" % (number % 5) for number in numbers], pa.binary()),
        "value": pa.array([b"value %d" % number for number in numbers], pa.binary()),
        "partition": pa.array([number % 2 for number in numbers], pa.int32()),
        "offset": pa.array([number // 2 for number in numbers], pa.int64()),
        "timestamp": pa.array([(T0 + number) * 1000 for number in numbers], pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * len(numbers), pa.int32()),
        "headers": pa.array([[{"key": key, "value": value} for key, value in HEADERS]] * len(numbers), headers),
    })  # fmt: skip
    folder = root / f"topic={topic}" / "date=2023-11-14" / "hour=22"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name)
    return folder / name


def test_audit_of_a_topic_and_its_archive(clusters: tuple[str, str], tmp_path: Path) -> None:
    source = clusters[0]
    create(source, "kept")
    send(source, "kept", list(range(30)))
    archive(tmp_path, "kept", list(range(20, 30)), "part-1.parquet")  # files in any order
    archive(tmp_path, "kept", list(range(20)))
    archive(tmp_path, "other", [1])
    assert run("pipeline", "audit", f"{source}/kept", str(tmp_path)).code == 0
    archive(tmp_path, "kept", [4], "part-2.parquet")
    ran = run("pipeline", "audit", f"{source}/kept", str(tmp_path), "-f", "json")
    assert (ran.code, ran.lines()[-1]["doubled"]) == (1, 1)
    ran = run("pipeline", "audit", str(tmp_path), f"{source}/kept", "-f", "json")
    assert (ran.code, ran.lines()[-1]["lost"]) == (1, 1)


def test_an_archive_shows_only_partitions_with_records(clusters: tuple[str, str], tmp_path: Path) -> None:
    source = clusters[0]
    create(source, "half")
    send(source, "half", [0, 2, 4])  # to partition 0 of two
    archive(tmp_path, "half", [0, 2, 4])
    assert run("pipeline", "audit", f"{source}/half", str(tmp_path)).code == 0
    send(source, "half", [1, 3])
    ran = run("pipeline", "audit", f"{source}/half", str(tmp_path), "-f", "json")
    assert (ran.code, ran.lines()[-1]["lost"]) == (1, 2)


def note(root: Path, name: str, *files: Path, below: str = "file:///elsewhere") -> None:
    log = root / "_spark_metadata"
    log.mkdir(exist_ok=True)
    lines = [json.dumps({"path": f"{below}/{file.relative_to(root).as_posix()}", "action": "add"}) for file in files]
    (log / name).write_text("\n".join(["v1", *lines]))


def test_files_of_a_killed_run_do_not_count(tmp_path: Path) -> None:
    files = [archive(tmp_path, "kept", [number], f"part-{number}.parquet") for number in range(4)]
    here, root = fs.LocalFileSystem(), str(tmp_path)
    assert archived_files(here, root, "kept") == [str(file) for file in files]
    assert committed(here, root) is None
    note(tmp_path, "0", files[0])
    note(tmp_path, "2.compact", files[0], files[1])
    note(tmp_path, "1", files[2])  # older than the compact file, which does not have it
    note(tmp_path, "3", files[3])
    assert archived_files(here, root, "kept") == [str(files[number]) for number in (0, 1, 3)]
    side = ArchiveSide(str(tmp_path), "kept")
    assert [record[0] for number in side.partitions() for record in side.read(number)] == [0, 0, 1]
    (tmp_path / "_spark_metadata" / "4").write_text("v2\n")
    with pytest.raises(ConfigurationError, match="has version v2"):
        committed(here, root)


def test_nothing_counts_before_the_first_commit(tmp_path: Path) -> None:
    archive(tmp_path, "kept", [0])
    (tmp_path / "_spark_metadata").mkdir()
    with pytest.raises(ConfigurationError, match="has no records of topic kept"):
        ArchiveSide(str(tmp_path), "kept").partitions()


def test_an_archive_at_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [archive(tmp_path / "a", "kept", [number], f"part-{number}.parquet") for number in range(2)]
    note(tmp_path / "a", "0", files[1])
    monkeypatch.chdir(tmp_path)
    for path in (f"file://{tmp_path}/a", f"file://{tmp_path}/a/", f"{tmp_path}/a/", "a", "./a"):
        side = ArchiveSide(path, "kept")
        assert side.partitions() == [1]
        assert [record[1] for record in side.read(1)] == [T0 + 1]
    for path in ("wasbs://box@x/a", "s3a://box/a"):
        with pytest.raises(ConfigurationError, match=rf"{path} cannot be read: .* use a path of this machine, s3://"):
            ArchiveSide(path, "kept").partitions()


def test_an_archive_has_a_window_too(tmp_path: Path) -> None:
    archive(tmp_path, "kept", list(range(10)))
    side = ArchiveSide(str(tmp_path), "kept", Window(T0 + 2, T0 + 6))
    assert [record[1] - T0 for record in side.read(0)] == [2, 4]
    (record, *_) = side.read(0)
    assert record == (1, T0 + 2, b"k2", b"value 2", list(HEADERS))


def test_sides_by_name(tmp_path: Path) -> None:
    side = parse_side("a:9092,b:9092/my.topic", {"sasl.jaas.config": "secret"})
    assert isinstance(side, TopicSide)
    assert side.name == "a:9092,b:9092/my.topic"
    assert "secret" not in repr(Brokers("a:1", {"sasl.jaas.config": "secret"}))
    assert isinstance(parse_side(str(tmp_path), {}, topic="orders"), ArchiveSide)
    with pytest.raises(ConfigurationError, match="which topic of the archive"):
        parse_side(str(tmp_path), {})
    with pytest.raises(ConfigurationError, match="a:9092 names no topic: write HOST:PORT/TOPIC"):
        parse_side("a:9092", {}, topic="orders")
    with pytest.raises(ConfigurationError, match="has no records of topic orders"):
        list(ArchiveSide(str(tmp_path), "orders").read(0))


@pytest.mark.parametrize("name", ["", "a'b", "a/b", "x" * 250, "ü"])
def test_names_of_topics_are_checked(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the name of a topic"):
        check_topic(name)


@pytest.mark.slow
def test_processes_find_the_same(clusters: tuple[str, str]) -> None:
    source, target = clusters
    for bootstrap in clusters:
        create(bootstrap, "parallel", partitions=3)
    send(source, "parallel", list(range(100)))
    send(target, "parallel", [2, 0, 1, *range(3, 40), *range(41, 100), 7, 9])
    sides = [TopicSide(Brokers(bootstrap), "parallel") for bootstrap in clusters]
    one, two = (audit(*sides, processes=number) for number in (1, 2))
    for side in sides:
        side.close()
    assert one == two
    assert (two.total.lost, two.total.doubled, two.total.reordered) == (1, 2, 1)
    ran = run("pipeline", "audit", f"{source}/parallel", f"{target}/parallel", "--processes", "2", "-f", "json")
    assert ran.code == 1
    assert ran.lines()[-1]["lost"] == 1


def test_tasks_of_spark_compare_by_partition(clusters: tuple[str, str]) -> None:
    sides = [f"{bootstrap}/parallel" for bootstrap in clusters]
    for more in (["--by", "key"], ["--processes", "2"]):
        ran = run("pipeline", "audit", *sides, "--spark", *more)
        assert ran.code == 2
        assert "leave out --by key and --processes" in ran.stderr


@pytest.mark.slow
def test_an_error_of_a_process_is_that_of_the_side(clusters: tuple[str, str]) -> None:
    source, _ = clusters
    create(source, "broken")
    send(source, "broken", list(range(10)))
    side = TopicSide(Brokers(source), "broken")
    with pytest.raises(TopicError, match="partition 0"):
        audit(side, Missing(), processes=2)
    side.close()


class Missing:
    """A side with two partitions whose records are gone."""

    has_all_partitions = True
    name = "missing"

    def partitions(self) -> list[int]:
        return [0, 1]

    def read(self, partition: int) -> Iterator[Any]:
        raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic="broken", partition=partition)

    def close(self) -> None:
        """There is nothing to close."""
