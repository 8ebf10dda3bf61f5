"""`kwire queue` against an embedded cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kwire.broker import Cluster, Refuse
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.queue import Service
from tests.cli.running import run
from tests.net.harness import closed_port


def test_send_and_receive() -> None:
    with Cluster(brokers=1) as cluster:
        at = ("-b", cluster.bootstrap, "-X", "partitions=2")
        assert run("queue", "send", "jobs", *at, stdin="one\ntwo\n").code == 0
        assert run("queue", "send", "jobs", *at, "--id", "third", stdin="three\n").code == 0
        got = run("queue", "receive", "jobs", *at, "--count", "3").lines()
        assert sorted(line["payload"] for line in got) == ["one", "three", "two"]
        assert [line["id"] for line in got if line["payload"] == "three"] == ["third"]
        assert {line["deliveries"] for line in got} == {1}
        assert run("queue", "receive", "jobs", *at, "--wait", "0.2").stdout == ""


def test_a_receive_whose_acknowledgements_are_not_stored_in_time_exits_with_an_error() -> None:
    seen: list[float] = []

    def is_refused(request: object) -> bool:
        """Refuse what follows the START, until receive has given up."""
        seen.append(time.monotonic())
        return len(seen) > 1 and seen[-1] < seen[1] + 2.5

    with Cluster(brokers=1) as cluster:
        at = ("-b", cluster.bootstrap, "-X", "partitions=1")
        assert run("queue", "send", "jobs", *at, stdin="one\n").code == 0
        refusal = Refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        cluster.add_fault(refusal, api=ApiKey.PRODUCE, topic="markers", when=is_refused, times=None)
        ran = run("queue", "receive", "jobs", *at, "--count", "1", "--timeout", "1.5")
        assert [line["payload"] for line in ran.lines()] == ["one"]
        assert ran.code == 1
        assert "flush() is not done after 1.5 s" in ran.stderr


def test_an_id_is_of_one_message() -> None:
    ran = run("queue", "send", "jobs", "-b", "localhost:1", "--id", "x", stdin="one\ntwo\n")
    assert ran.code == 2
    assert "2 lines" in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("has_file", [False, True])
def test_a_tracker_process_redelivers_and_ends_on_sigterm(tmp_path: Path, has_file: bool) -> None:
    """A file's address goes before that of the environment, and -X before the file."""
    with Cluster(brokers=1) as cluster, Service(cluster.bootstrap, partitions=2) as service:
        file = tmp_path / "kafka-mq.yaml"
        file.write_text(f"bootstrap-servers: {cluster.bootstrap}\nmarker-topic: elsewhere\n")
        of_file = ("--config", str(file), "-X", "marker_topic=markers")
        with service.queue("jobs").producer() as producer:
            producer.send(b"hi").result(10)
        process = subprocess.Popen(
            [sys.executable, "-m", "kwire", "queue", "tracker", *(of_file if has_file else ("-b", cluster.bootstrap))],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "KWIRE_BOOTSTRAP": "localhost:1"},
        )
        try:
            consumer = service.queue("jobs").consumer()
            message = consumer.receive(10)
            assert message is not None
            message.release()
            again = consumer.receive(20)
            assert again is not None
            assert again.deliveries == 2
            again.ack()
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
        assert "1 redelivered" in errors


def test_dead_letters_redrive_peek_stats_and_explain() -> None:
    with Cluster(brokers=1) as cluster:
        at = ("-b", cluster.bootstrap, "-X", "partitions=2")
        assert run("queue", "send", "jobs", *at, "--id", "one", stdin="hi\n").code == 0
        assert [line["payload"] for line in run("queue", "peek", "jobs", *at).lines()] == ["hi"]
        (stats,) = run("queue", "stats", "jobs", *at).lines()
        assert (stats["waiting"], stats["in_progress"], stats["dead_letters"]) == (1, 0, 0)
        assert run("queue", "stats", "jobs", *at, "--warn-waiting", "1", "--warn-age", "3600").code == 0
        warned = run("queue", "stats", "jobs", "idle", *at, "--warn-waiting", "0", "--warn-age", "0")
        assert (warned.code, len(warned.lines())) == (1, 2)
        assert "queue jobs: 1 of its messages wait, more than 0" in warned.stderr
        assert "queue jobs: a message waits for" in warned.stderr
        assert "idle" not in warned.stderr
        assert run("queue", "explain", "one", *at).lines()[0]["state"] == "waiting"
        assert len(run("queue", "receive", "jobs", *at, "--count", "1", "--nack", "broken").lines()) == 1
        (letter,) = run("queue", "dead-letters", "jobs", *at).lines()
        assert (letter["id"], letter["reason"], letter["payload"]) == ("one", "broken", "hi")
        assert "broken" in run("queue", "dead-letters", *at, "--format", "table").stdout
        assert "one is dead letter in queue jobs" in run("queue", "explain", "one", *at, "--format", "table").stdout
        assert "waiting" in run("queue", "stats", "jobs", *at, "--format", "table").stdout
        assert run("queue", "redrive", *at).code == 2
        sent = run("queue", "redrive", "--id", "one", *at)
        assert (sent.code, sent.stderr) == (0, "1 dead letter sent back.\n")
        assert run("queue", "redrive", "--id", "one", *at).code == 1
        assert [line["id"] for line in run("queue", "receive", "jobs", *at, "--count", "1").lines()] == ["one"]
        gone = run("queue", "explain", "nobody", *at)
        assert (gone.code, gone.lines()[0]["state"]) == (1, "unknown")


def test_queues_on_share_groups() -> None:
    with Cluster(brokers=1) as cluster:
        at = ("-b", cluster.bootstrap, "-X", "partitions=2", "-X", "backend=share")
        assert run("queue", "send", "jobs", *at, stdin="one\ntwo\n").code == 0
        got = run("queue", "receive", "jobs", *at, "--count", "2").lines()
        assert sorted(line["payload"] for line in got) == ["one", "two"]
        ran = run("queue", "tracker", *at)
        assert ran.code == 2
        assert 'trackers are for backend="tracker"' in ran.stderr
        refused = run("queue", "send", "jobs", *at, "--delay", "5", stdin="late\n")
        assert refused.code == 2
        assert 'backend="tracker"' in refused.stderr


@pytest.mark.parametrize("command", [["stats", "jobs"], ["peek", "jobs"], ["dead-letters"], ["redrive", "--all"]])
def test_nothing_answers_within_the_timeout(command: list[str]) -> None:
    host, port = closed_port()
    began = time.monotonic()
    ran = run("queue", *command, "-b", f"{host}:{port}", "--timeout", "0.5")
    assert ran.code == 3
    assert "nothing listens there" in ran.stderr
    assert time.monotonic() - began < 15  # the option's default is 30 s


def test_every_command_has_help() -> None:
    for name in ("send", "receive", "tracker", "stats", "peek", "dead-letters", "redrive", "explain"):
        ran = run("queue", name, "--help")
        assert ran.code == 0
        assert "Usage: kwire queue" in ran.stdout
