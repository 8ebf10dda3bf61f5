"""The data directory and Kafka: its tools read what the embedded broker wrote, and the other way round."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from brokers.cluster import KafkaCluster

import kwire
from kwire.broker import Cluster
from kwire.consumer import Consumer
from tests.broker.test_data_directory import abort, problems

pytestmark = pytest.mark.live

DUMP = "org.apache.kafka.tools.DumpLogSegments"


def write(bootstrap: str) -> None:
    """Write 200 records of several segments, and a transaction that is aborted."""
    with kwire.Producer(bootstrap) as producer:
        for number in range(200):
            producer.send("t", b"%d" % number * 40, key=b"k%d" % (number % 5)).result(timeout=60)
    with kwire.Producer(bootstrap, transactional_id="tx") as producer, pytest.raises(ZeroDivisionError):
        abort(producer, "t")


def read(bootstrap: str, last: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    with Consumer(bootstrap, isolation="read_committed") as consumer:
        consumer.assign([("t", 0, "earliest")])
        for record in consumer:
            found.append((record.offset, record.value))
            if record.offset >= last:
                return found
    return found


def test_both_directions(tmp_path: Path) -> None:
    configs = {"internal.segment.bytes": "20000"}
    with Cluster(1, data_dir=tmp_path / "ours") as embedded:
        embedded.create_topic("t", 1, configs=configs)
        write(embedded.bootstrap)
        expected = read(embedded.bootstrap, 199)
    with KafkaCluster("4.3.1") as real:
        files = sorted(str(path) for path in (tmp_path / "ours" / "t-0").iterdir() if path.name[:20].isdigit())
        logs = [file for file in files if file.endswith(".log")]
        assert len(logs) > 1
        dump = real.run(DUMP, ["--files", ",".join(files), "--verify-index-only"]).decode()
        assert not [line for line in dump.splitlines() if "mismatch" in line.lower() or "exception" in line.lower()]
        printed = real.run(DUMP, ["--files", ",".join(logs), "--print-data-log"]).decode()
        assert printed.count(" payload: ") >= 201
        assert "isvalid: false" not in printed

        real.commands.create_topic("t", configs=configs)
        write(real.bootstrap)
        theirs = read(real.bootstrap, 199)
        folder = next(real.directory.rglob("t-0"))
        shutil.copytree(folder, tmp_path / "theirs" / "t-0")
    with Cluster(1, data_dir=tmp_path / "theirs") as embedded:
        assert read(embedded.bootstrap, 199) == theirs
        assert [value for _, value in theirs] == [value for _, value in expected]
        log = embedded.log("t")
        assert log.last_stable_offset == log.end_offset >= 202
        with kwire.Producer(embedded.bootstrap) as producer:
            assert producer.send("t", b"more").result(timeout=60).offset == log.end_offset
    assert problems(tmp_path / "theirs" / "t-0") == []
