"""A capture's requests sent to another cluster, and its responses served to clients."""

# ruff: noqa: SIM117 - a tap inside its cluster reads better
from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kwire
from kwire.broker import Cluster
from kwire.capture import Exchange, read_exchanges
from kwire.capture.secrets import Redaction
from kwire.errors import ConfigurationError, ConnectError
from kwire.lint.contents import fetched
from kwire.protocol import ApiKey
from kwire.records import decode_batches, encode_batch
from kwire.session import Sasl
from kwire.tap import Answer, Playback, Replayed, Tap, replay
from kwire.tap.live_values import with_producers
from kwire.tap.playback import differences
from tests.cli.running import run
from tests.lint.traffic import Traffic
from tests.tap.test_tap import read
from tests.timeline.traffic import everything

NUMBER = 60


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a producer, two transactions of which one is aborted, and a group that reads and commits."""
    path = tmp_path_factory.mktemp("replay") / "t.pcapng"
    with Cluster(2, topics={"t": 2, "tx": 1}) as cluster, Tap(cluster.bootstrap.split(",")[0], record=path) as tap:
        with kwire.Producer(tap.address) as producer:
            for index in range(NUMBER):
                producer.send("t", f"v{index}".encode(), key=str(index % 7).encode())
        with kwire.Producer(tap.address, transactional_id="x") as producer:
            for value in (b"kept", b"dropped"):
                try:
                    with producer.transaction():
                        producer.send("tx", value).result(10)
                        if value == b"dropped":
                            raise LookupError
                except LookupError:
                    pass
        with kwire.Consumer(tap.address, group="g") as consumer:
            consumer.subscribe(["t"])
            found = 0
            while found < NUMBER:
                found += sum(1 for _ in consumer.poll(timeout=10))
            consumer.commit()
        values(tap.address, "tx", 1, 2)
        values(tap.address, "tx", 1, 1, isolation="read_committed")
    return path


def unmasked(path: Path) -> Iterator[Exchange]:
    return read_exchanges(path, redaction=Redaction(secrets=False))


def outcomes(found: list[Replayed]) -> Counter[str]:
    return Counter(one.outcome for one in found)


def wrong(found: list[Replayed]) -> list[tuple[str, str]]:
    return [(one.exchange.api_name, one.text) for one in found if one.outcome in ("differs", "unanswered")]


def values(bootstrap: str, topic: str, partitions: int, number: int, **options: Any) -> list[bytes | None]:
    found: list[bytes | None] = []
    with kwire.Consumer(bootstrap, **options) as consumer:
        consumer.assign([(topic, partition, "earliest") for partition in range(partitions)])
        while len(found) < number:
            found += [record.value for record in consumer.poll(timeout=10)]
    return sorted(found, key=str)


def test_everything_again(recorded: Path) -> None:
    """The other cluster gives out other ids of topics, producers and members; its records and offsets are the same."""
    with Cluster(2, topics={"t": 2, "tx": 1}) as cluster:
        for _ in range(3):  # so that its producer ids differ
            with kwire.Producer(cluster.bootstrap) as producer:
                producer.send("t", b"before").result(10)
        found = list(replay(unmasked(recorded), cluster.bootstrap, writes=True))
        assert wrong(found) == []
        assert outcomes(found).keys() == {"same"}
        assert values(cluster.bootstrap, "t", 2, NUMBER + 3) == sorted(
            [b"before"] * 3 + [f"v{index}".encode() for index in range(NUMBER)], key=str
        )
        committed = values(cluster.bootstrap, "tx", 1, 1, isolation="read_committed")
        assert committed == [b"kept"]
        with kwire.Admin(cluster.bootstrap) as admin:
            offsets = admin.groups.offsets("g")
        assert sum(one.offset for one in offsets.values()) == NUMBER
        assert not cluster.failures
    answered = [one for one in found if one.exchange.pair.frame.expects_response]
    assert all(one.latency_ms is not None for one in answered)


def test_without_leave_nothing_is_written(recorded: Path) -> None:
    with Cluster(1, topics={}, auto_create_topics=True) as cluster:
        found = list(replay(unmasked(recorded), cluster.bootstrap))
        sent = {one.exchange.api_name for one in found if one.outcome != "skipped"}
        assert "Metadata" in sent
        assert not {"Produce", "InitProducerId", "JoinGroup", "OffsetCommit", "EndTxn"} & sent
        with kwire.Admin(cluster.bootstrap) as admin:
            assert not [name for name in admin.topics.list() if not name.startswith("__")]
    assert {one.text for one in found if one.outcome == "skipped"} == {"it writes"}


def test_a_topic_under_another_name(recorded: Path) -> None:
    with Cluster(2, topics={"t-test": 2, "tx": 1}) as cluster:
        produced = [one for one in unmasked(recorded) if one.api_name not in ("JoinGroup", "SyncGroup", "Heartbeat")]
        found = list(replay(produced, cluster.bootstrap, writes=True, topics={"t": "t-test"}))
        assert not [one for one in found if one.outcome == "differs" and one.exchange.api_name == "Produce"]
        assert len(values(cluster.bootstrap, "t-test", 2, NUMBER)) == NUMBER


def test_other_errors_are_told(recorded: Path) -> None:
    with Cluster(2, topics={"t": 1}) as cluster:  # a partition less, and no topic tx
        found = list(replay(unmasked(recorded), cluster.bootstrap, writes=True, timeout=20))
    assert ("Produce", "UNKNOWN_TOPIC_OR_PARTITION; in the capture no error") in wrong(found)


def test_it_logs_in(recorded: Path) -> None:
    users = {"alice": "hunter2-hunter2"}
    with Cluster(1, topics={"t": 2}, sasl=users) as cluster:
        options: Any = {"sasl": Sasl("SCRAM-SHA-256", "alice", "hunter2-hunter2")}
        found = list(replay(unmasked(recorded), cluster.bootstrap, **options))
        assert outcomes(found)["same"] > 5
        with pytest.raises(ConnectError, match=r"nothing could be replayed to .*alice"):
            list(replay(unmasked(recorded), cluster.bootstrap, sasl=Sasl("SCRAM-SHA-256", "alice", "wrong")))


def test_no_broker(recorded: Path) -> None:
    with pytest.raises(ConnectError, match=r"nothing could be replayed to 127\.0\.0\.1:1: "):
        list(replay(unmasked(recorded), "127.0.0.1:1", timeout=1))


def test_secrets_are_never_sent(tmp_path: Path) -> None:
    path = tmp_path / "t.pcap"
    path.write_bytes(everything().capture())
    with Cluster(1) as cluster:
        found = list(replay(unmasked(path), cluster.bootstrap, writes=True, timeout=5))
    (login,) = [
        one for one in found if one.exchange.api is not None and one.exchange.api.key == ApiKey.SASL_AUTHENTICATE
    ]
    assert (login.outcome, login.text) == ("skipped", "a capture has no secrets to send")


def test_with_producers() -> None:
    """Of two batches one is of a known producer: it changes, with a checksum that fits, and the other does not."""
    known, other = (
        encode_batch([(0, b"k", b"v", ())], producer_id=id, producer_epoch=1, base_sequence=4) for id in (7, 8)
    )
    changed = with_producers(known + other, {(7, 1): (70, 2)})
    assert changed[len(known) :] == other
    first, second = decode_batches(changed)  # checks the checksums
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (70, 2, 4)
    assert (second.producer_id, second.producer_epoch) == (8, 1)
    assert with_producers(b"short", {(7, 1): (70, 2)}) == b"short"


# Serve


def test_clients_meet_the_broker_of_the_capture(recorded: Path) -> None:
    answers: list[Answer] = []
    with Playback(unmasked(recorded), on_answer=answers.append) as playback:
        with kwire.Producer(playback.address) as producer:
            responses = [producer.send("t", f"v{index}".encode(), key=b"1") for index in range(5)]
            assert all(one.result(10).offset >= 0 for one in responses)
        with kwire.Consumer(playback.address, group="g") as consumer:
            consumer.subscribe(["t"])
            found: set[bytes | None] = set()
            while len(found) < NUMBER:
                found |= {record.value for record in consumer.poll(timeout=10)}
    assert found == {f"v{index}".encode() for index in range(NUMBER)}
    hows = Counter(one.how for one in answers)
    assert hows["equal"] > 5
    assert hows["by offset"] >= 2
    assert hows["none"] == 0


def test_aborted_records_stay_out_of_sight(recorded: Path) -> None:
    with Playback(unmasked(recorded)) as playback:
        assert values(playback.address, "tx", 1, 1, isolation="read_committed") == [b"kept"]


@pytest.mark.parametrize("step", [3, NUMBER])
def test_a_fetch_begins_anywhere(recorded: Path, step: int) -> None:
    """Whatever the offset: the first record is the one there, and none is missing."""
    whole = {
        record.offset: record.value
        for exchange in unmasked(recorded) if exchange.api_name == "Fetch"
        for one in fetched(exchange) if (one.topic, one.partition) == ("t", 0)
        for batch in decode_batches(one.struct.records or b"")
        for record in batch.records()
    }  # fmt: skip
    with Playback(unmasked(recorded), strict=True) as playback:
        for offset in range(0, max(whole) + 1, step):
            found: list[Any] = []
            with kwire.Consumer(playback.address) as consumer:
                consumer.assign([("t", 0, offset)])
                while not found or found[-1].offset < max(whole):
                    found += consumer.poll(timeout=10)
            assert {one.offset: one.value for one in found} == {at: whole[at] for at in whole if at >= offset}


def test_strict(recorded: Path) -> None:
    answers: list[Answer] = []
    with Playback(unmasked(recorded), strict=True, on_answer=answers.append) as playback:
        with kwire.Admin(playback.address, request_timeout_ms=2000) as admin:
            with pytest.raises(kwire.errors.KwireError):
                admin.configs.get(topic="other", timeout=3)
    refused = [one for one in answers if one.how == "none"]
    assert {one.text for one in refused} == {"the capture has no DescribeConfigs"}


def test_nothing_to_serve(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(Traffic().capture())
    with pytest.raises(ConfigurationError, match="no exchange whose response could be served"):
        Playback(unmasked(path))


def test_differences_of_requests() -> None:
    asked = {"topics": None, "b": [1, 2], "d": 1}
    assert differences({"topics": [], "b": [1, 3], "c": 1, "d": 1}, asked) == (
        "topics is None, not []; b[1] is 2, not 3; c is 'left out', not 1"
    )
    assert differences(asked, asked) == "only its version"


# The commands


def test_the_command_sends(recorded: Path) -> None:
    with Cluster(2, topics={"t": 2, "tx": 1}) as cluster:
        address = cluster.bootstrap.split(",")[0]
        ran = run("replay", str(recorded), "--to", address, "-f", "table")
        assert (ran.code, ran.stdout) == (0, "")
        assert "left out: it writes, and --yes was not given" in ran.stderr
        ran = run("replay", str(recorded), "--to", address, "--yes")
        assert ran.code == 0
        lines = ran.lines()
        assert {one["outcome"] for one in lines} == {"same"}
        assert "0 with other errors than in the capture, 0 without a response" in ran.stderr
        assert len(read(cluster.bootstrap, NUMBER, 2)) == NUMBER


def test_a_difference_has_two_lines(recorded: Path) -> None:
    with Cluster(1, auto_create_topics=False) as cluster:  # no topic of the capture
        ran = run("replay", str(recorded), "--to", cluster.bootstrap, "-f", "table")
    assert ran.code == 1
    first, second, *_ = ran.stdout.splitlines()
    assert first.startswith("packet ")
    assert second.startswith("    differs: UNKNOWN_TOPIC")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "give either --to HOST:PORT or --serve HOST:PORT"),
        (["--to", "a:1", "--serve", ":0"], "give either --to"),
        (["--to", "a:1", "--map", "t:u"], "write topic=OLD:NEW"),
        (["--serve", "nine"], "is not HOST:PORT"),
    ],
)
def test_wrong_options(recorded: Path, options: list[str], text: str) -> None:
    ran = run("replay", str(recorded), *options)
    assert ran.code == 2
    assert text in ran.stderr


@pytest.mark.parametrize("side", [["--to", "127.0.0.1:1"], ["--serve", ":0"]])
def test_a_file_that_is_no_capture(tmp_path: Path, side: list[str]) -> None:
    path = tmp_path / "broken"
    path.write_bytes(b"no capture")
    ran = run("replay", str(path), *side)
    assert (ran.code, ran.stdout) == (4, "")
    assert "not a pcap or pcapng capture" in ran.stderr


@pytest.mark.programs
def test_the_command_serves(recorded: Path) -> None:
    command = [sys.executable, "-m", "kwire", "replay", str(recorded), "--serve", ":0", "-f", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert " exchanges on 127.0.0.1:" in line, line
        address = line.split()[-1]
        try:
            with kwire.Consumer(address, request_timeout_ms=5000) as consumer:
                consumer.assign([("t", 0, "earliest")])
                assert consumer.poll(timeout=30)
        finally:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert '"api": "Metadata"' in out
    assert "0 that the capture does not answer" in err


@pytest.mark.programs
def test_the_command_records(tmp_path: Path) -> None:
    path = tmp_path / "r.pcapng"
    with Cluster(1, topics={"t": 1}) as cluster:
        program = f"echo hello | {sys.executable} -m kwire produce t -q"
        command = [sys.executable, "-m", "kwire", "record", str(path), "-b", cluster.bootstrap, "--exec", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"exchanges in {path}" in done.stderr
    assert "Produce" in {one.api_name for one in read_exchanges(path)}
