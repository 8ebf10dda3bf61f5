"""`kwire queue` against an embedded cluster."""

from __future__ import annotations

import signal
import subprocess
import sys

from kwire.broker import Cluster
from kwire.queue import Service
from tests.cli.running import run


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


def test_an_id_is_of_one_message() -> None:
    ran = run("queue", "send", "jobs", "-b", "localhost:1", "--id", "x", stdin="one\ntwo\n")
    assert ran.code == 2
    assert "2 lines" in ran.stderr


def test_a_tracker_process_redelivers_and_ends_on_sigterm() -> None:
    with Cluster(brokers=1) as cluster, Service(cluster.bootstrap, partitions=2) as service:
        with service.queue("jobs").producer() as producer:
            producer.send(b"hi").result(10)
        process = subprocess.Popen(
            [sys.executable, "-m", "kwire", "queue", "tracker", "-b", cluster.bootstrap],
            stderr=subprocess.PIPE,
            text=True,
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
