"""The verdict of a storm, and its members on the embedded broker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from storm_runs.main import described
from storm_runs.member import Settings
from storm_runs.members import Member
from storm_runs.storm import Outcome, Plan

from kwire import Admin, Consumer, NewTopic, Producer
from kwire.broker import Cluster

RECORDS = 300


@pytest.mark.parametrize(
    ("exactly_once", "found", "holds"),
    [
        (False, {}, True),
        (False, {"duplicated": 5}, True),
        (True, {"duplicated": 5}, False),
        (True, {"lost": 1}, False),
        (True, {"static": 1}, False),
        (True, {"complaints": ["member-1 ended with 1"]}, False),
    ],
)
def test_verdict(exactly_once: bool, found: dict[str, Any], holds: bool) -> None:
    plan = Plan("4.3.1", 20, 10, 1000, exactly_once, "seed")
    outcome = Outcome(plan, **{"lost": 0, "duplicated": 0, "seconds": 1.0, "stall": 0.5, "after": 0.0, **found})
    assert outcome.holds == holds
    assert described(outcome).splitlines()[-1] == ("holds" if holds else "FAILED")


@pytest.mark.parametrize("exactly_once", [False, True])
def test_killed_members_lose_nothing(tmp_path: Path, exactly_once: bool) -> None:
    with Cluster(1, default_replication_factor=1, group_min_session_timeout_ms=1_000) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions=2) for name in ("in", "out")])
        members = [
            Member(
                Settings(cluster.bootstrap, "in", "out", "g", f"m-{n}", exactly_once, 1_000, True), tmp_path / f"{n}"
            )
            for n in (0, 1)
        ]
        try:
            for member in members:
                member.start()
            seen: Counter[int] = Counter()
            with Producer(cluster.bootstrap) as producer, reader(cluster) as consumer:
                send(producer, range(RECORDS // 2))
                while len(seen) < RECORDS // 4:
                    seen.update(int(record.value or b"") for record in consumer.poll())
                members[0].kill()
                members[1].freeze()
                send(producer, range(RECORDS // 2, RECORDS))
                members[0].start()
                members[1].thaw()
                while len(seen) < RECORDS:
                    seen.update(int(record.value or b"") for record in consumer.poll())
            for member in members:
                member.leave()
            assert [text for member in members for text in member.complaints] == []
            assert not exactly_once or seen.total() == RECORDS
        finally:
            for member in members:
                if member.is_running:
                    member.kill()


def send(producer: Producer, numbers: range) -> None:
    for number in numbers:
        producer.send("in", b"%d" % number, key=b"%d" % number)


def reader(cluster: Cluster) -> Consumer:
    consumer = Consumer(cluster.bootstrap, isolation="read_committed")
    consumer.assign([("out", 0, "earliest"), ("out", 1, "earliest")])
    return consumer


def test_a_member_that_ends_by_itself_is_a_complaint(tmp_path: Path) -> None:
    member = Member(Settings("nowhere", "in", "out", "g", "m", False, 0, True), tmp_path / "log")
    member.start()
    assert member.process is not None
    member.process.join(60)
    member.settings = Settings("127.0.0.1:1", "in", "out", "g", "m", False, 1_000, True)
    member.check()
    assert "session_timeout_ms" in member.complaints[0]
    member.kill()
