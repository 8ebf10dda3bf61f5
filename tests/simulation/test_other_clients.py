"""The bugs that other clients have had with order, loss and duplicates, each as the schedule that shows it.

Ours comes through every one of them without an anomaly. Where the bug can be put into ours in a few lines (`broken`),
the same schedule shows that it is the bug that is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kwire.broker.faults import ApplyLate, Delay, Disconnect, Refuse
from kwire.broker.options import FirstSequence
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.simulation import Plan, run
from kwire.simulation.scenario import FOR_EVER_MS, Client
from kwire.simulation.schedule import (
    Disturbance,
    FailRequests,
    ForgetProducers,
    Hold,
    MoveLeader,
    RefuseConnections,
    Send,
    Transact,
    Work,
)
from tests.simulation import broken

TOPIC = "t"


def send(at: float, count: int = 1, partition: int | None = 0) -> Send:
    return Send(at=at, client="p", topic=TOPIC, partition=partition, count=count)


def produce(effect: Any, *, after: int = 0, times: int = 1, partition: int | None = 0) -> FailRequests:
    topic = None if partition is None else TOPIC
    return FailRequests(
        at=0.0, api=ApiKey.PRODUCE, effect=effect, topic=topic, partition=partition, after=after, times=times
    )


def transact(at: float, count: int, *, is_commit: bool, pause: float = 0.0) -> Transact:
    return Transact(at=at, client="p", sends=(send(at),) * count, pause=pause, is_commit=is_commit)


@dataclass(frozen=True, kw_only=True)
class Case:
    """`breaks` are ways to put the bug into ours, and what that leads to."""

    bug: str
    work: Sequence[Work]
    faults: Sequence[Disturbance]
    partitions: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    delivers: bool = True
    calm_at: float = 6.0
    breaks: tuple[Callable[[pytest.MonkeyPatch], None], frozenset[str]] | None = None

    def plan(self) -> Plan:
        settings = {"linger_ms": 0, "batch_bytes": 100, "delivery_timeout_ms": FOR_EVER_MS, **self.settings}
        config = {"request_timeout_ms": 1_000, "retry_backoff_ms": 10, "retry_backoff_ms_max": 100, **self.config}
        return Plan(
            scenario=self.bug,
            seed=1,
            kafka="newest",
            options={"auto_create_topics": False, **self.options},
            topics={TOPIC: self.partitions},
            clients=(Client(name="p", settings=settings, config=config, delivers=self.delivers),),
            work=tuple(self.work),
            disturbances=tuple(self.faults),
            calm_at=self.calm_at,
        )


_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

CASES = [
    Case(
        bug="KAFKA-15591: of two batches to a new leader the first is refused and the second is taken",
        work=[send(0.1, 10)],
        faults=[produce(Refuse(ErrorCode.NOT_ENOUGH_REPLICAS))],
        options={"first_sequence": FirstSequence.ANY},
        breaks=(broken.no_first_ack_gate, frozenset({"order", "given up", "lost", "stuck"})),
    ),
    Case(
        bug="KAFKA-19012: a batch that expired in flight is still being written when its buffer is used again",
        work=[send(0.1), send(1.0, 5), *(send(1.7, 5, partition=1) for _ in range(4))],
        faults=[Hold(at=0.9, node=node, seconds=2.0, toward="broker") for node in (1, 2, 3)],
        partitions=2,
        settings={"delivery_timeout_ms": 600},
        delivers=False,
    ),
    Case(
        bug="KAFKA-14034, librdkafka#4953: a new epoch for one partition sends another's open batch again as new",
        work=[send(0.1), send(0.1, partition=1), send(1.0, 3), send(1.0, 3, partition=1)],
        faults=[
            produce(Refuse(ErrorCode.INVALID_RECORD), after=1),
            produce(Refuse(ErrorCode.REQUEST_TIMED_OUT, applied=True), after=1, partition=1),
        ],
        partitions=2,
        delivers=False,
        breaks=(broken.new_identity_for_what_may_be_stored, frozenset({"duplicate"})),
    ),
    Case(
        bug="KAFKA-12152: after a new epoch a partition that was idle goes on where it was",
        work=[transact(0.5, 3, is_commit=True), transact(1.0, 3, is_commit=True)],
        faults=[FailRequests(at=0.0, api=ApiKey.END_TXN, effect=Disconnect(applied=True))],
        settings={"transactional_id": "p"},
        delivers=False,
        breaks=(broken.idle_partitions_keep_their_sequence, frozenset({"probe", "stuck", "crash"})),
    ),
    Case(
        bug="KAFKA-8483: sequences are given again in another order than the batches have",
        work=[send(0.1), send(1.0, 12)],
        faults=[produce(Refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), after=1, times=3)],
    ),
    Case(
        bug="franz-go#1217: the sequence of a batch that timed out, and was given up, is used for the next",
        work=[send(0.1), send(1.0), send(2.0), send(2.5, 2)],
        faults=[produce(Refuse(ErrorCode.REQUEST_TIMED_OUT, applied=True), after=1, times=100)],
        settings={"delivery_timeout_ms": 500},
        delivers=False,
        breaks=(broken.sequence_used_again, frozenset({"lost", "offset"})),
    ),
    Case(
        bug="franz-go f29fb7f0: a partition moves, and the answers of its two leaders come in the wrong order",
        work=[send(0.1), send(0.1, partition=1), send(1.0), send(1.3, 5)],  # the second broker names the new leader
        faults=[
            Hold(at=0.95, node=1, seconds=0.6, toward="broker"),
            MoveLeader(at=1.02, topic=TOPIC, partition=0),
        ],
        partitions=2,
        settings={"idempotence": False},
        config={"metadata_max_age_ms": 100},
        breaks=(broken.new_leader_at_once, frozenset({"order"})),
    ),
    Case(
        bug="ours, once: a leader that leads no more by the time its followers answer is taken not to have the batch",
        work=[send(0.1), send(1.0)],
        faults=[
            produce(Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, applied=True), after=1),
            produce(Refuse(ErrorCode.NOT_ENOUGH_REPLICAS), after=1, times=100),
        ],
        settings={"delivery_timeout_ms": 450},  # ends between two retries: one in flight is in doubt
        delivers=False,
        breaks=(broken.not_the_leader_is_taken_for_no, frozenset({"false alarm"})),
    ),
    Case(
        bug="a new leader that has lost what it had appended is taken for one that has not begun: another gets it too",
        work=[send(0.1), send(0.1, partition=1), *(send(at / 2, partition=None) for at in range(2, 8))],
        faults=[produce(Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, applied=True), partition=3)],
        partitions=4,
        breaks=(broken.the_offset_of_a_refusal_is_ignored, frozenset({"duplicate"})),
    ),
    Case(
        bug="librdkafka 1.9.0: a topic vanishes from metadata for a while, and its sequences begin anew",
        work=[send(0.1, 3), send(1.0, 3), send(2.5, 3)],
        faults=[
            produce(Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER), after=3),
            FailRequests(at=0.9, api=ApiKey.METADATA, effect=Refuse(_UNKNOWN), topic=TOPIC, times=4),
        ],
    ),
    Case(
        bug="librdkafka 2.3.0, 2.4.0: a batch that is sent again has other bounds, or counts although it failed",
        work=[send(0.1), send(1.0, 6), send(1.05, 6)],
        faults=[produce(Disconnect(applied=True), after=2, times=2), produce(Delay(1_500, applied=True), after=5)],
    ),
    Case(
        bug="Sarama#2619 and others: what failed comes behind what was sent since",
        work=[send(0.1), send(1.0, 10), send(1.001, 10)],
        faults=[produce(Refuse(ErrorCode.NOT_ENOUGH_REPLICAS), after=2)],
        breaks=(broken.back_of_the_queue, frozenset({"order", "given up", "stuck", "duplicate"})),
    ),
    Case(
        bug="librdkafka#1092: order is lost though only one batch may be out",
        work=[send(0.1), send(1.0, 10), send(1.001, 10)],
        faults=[produce(Refuse(ErrorCode.NOT_ENOUGH_REPLICAS), after=2), produce(Disconnect(), after=4)],
        settings={"idempotence": False},
    ),
    Case(
        bug="redpanda#22670: the broker has forgotten an idle producer, and says that it is out of order",
        work=[send(0.1, 3), send(2.0, 3)],
        faults=[produce(Refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), after=3)],
    ),
    Case(
        bug="KAFKA-15591 again: the broker has forgotten an idle producer, and takes the second of its batches first",
        work=[send(0.1, 3), send(80.0, 5)],
        faults=[
            ForgetProducers(at=70.0, topic=TOPIC, partition=0),
            produce(Refuse(ErrorCode.NOT_ENOUGH_REPLICAS), after=3),
        ],
        breaks=(broken.a_first_ack_gate_that_stays_open, frozenset({"order"})),
        calm_at=90.0,
    ),
    Case(
        bug="librdkafka#3584: one batch out of order ends the producer",
        work=[send(0.1, 3), send(1.0, 3), send(2.0, 3)],
        faults=[produce(Refuse(ErrorCode.UNKNOWN_PRODUCER_ID), after=3)],
    ),
    Case(
        bug="kafka-python 3.0.11: of several batches that expire unsent only the first resolves",
        work=[send(0.1, 1, partition=index) for index in range(3)],
        faults=[RefuseConnections(at=0.0, node=node, seconds=5.0) for node in (1, 2, 3)],
        partitions=3,
        settings={"delivery_timeout_ms": 500},
        delivers=False,
        breaks=(broken.only_the_first_expires, frozenset({"unresolved"})),
    ),
    Case(
        bug="aiokafka#1017: a batch that expires unsent takes a sequence along",
        work=[send(0.1, 2), send(1.2), send(3.5, 3)],
        faults=[RefuseConnections(at=0.5, node=node, seconds=2.0) for node in (1, 2, 3)]
        + [produce(Disconnect(), after=2, partition=None)],
        settings={"delivery_timeout_ms": 700},
        delivers=False,
    ),
    Case(
        bug="KAFKA-17754: an EndTxn that comes late ends the next transaction of the same epoch",
        work=[transact(0.5, 3, is_commit=True), transact(0.6, 3, is_commit=False, pause=0.3)],
        faults=[FailRequests(at=0.0, api=ApiKey.END_TXN, effect=ApplyLate(500))],
        settings={"transactional_id": "p"},
        options={"transaction_version": 1},
        delivers=False,
        breaks=(broken.no_new_epoch_after_doubt, frozenset({"seen", "torn", "hidden"})),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.bug.partition(":")[0])
def test_ours_does_not_have_it(case: Case) -> None:
    report = run(case.plan())
    assert not report.anomalies, "\n".join(map(str, report.anomalies))
    assert report.faults, "nothing went wrong"


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.breaks is not None], ids=lambda case: case.bug.partition(":")[0]
)
def test_the_schedule_shows_it(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert case.breaks is not None
    break_it, kinds = case.breaks
    break_it(monkeypatch)
    assert run(case.plan()).kinds & kinds
