"""Measure consumers of groups: what a subscription costs, rebalances, work in parallel, idle members, share groups."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from bench.contest import Result, Tell, chosen_names, compete, take_turn
from bench.counting import FETCH, HEARTBEATS, CountingRelay
from bench.parts import Part
from bench.report import Column, ratio_columns
from bench.stand import Stand
from bench.task import Sample, Task

_PROTOCOLS = {"classic": "classic", "848": "consumer"}
_REBALANCE_PARTITIONS = 100
_RECORDS_OF_A_PARTITION = 20
_IDLE_PARTITIONS = 1_000
_IDLE_S = 20.0
_SETTLE_S = 9.0
# Members that joined together send their heartbeats, every 3 or 5 s, together: each round begins at another phase.
_PHASE_S = 3.7
_WORK_S = 0.01
_CONCURRENCY = 64
_GROUP_RESOURCE = 32


class _Groups:
    """Give every turn a group of its own."""

    def __init__(self) -> None:
        self._count = 0

    def next(self, topic: str) -> str:
        self._count += 1
        return f"{topic}-group-{self._count}"


_groups = _Groups()


def _protocol(name: str) -> str:
    """Return the protocol that a contestant's name ends with; "classic" if with none."""
    return _PROTOCOLS.get(name.rpartition(", ")[2], "classic")


# -- subscribed consumers


def consume(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    title = f"subscribed: {options.records:,} records of 100 B, partitions: 4"
    case = Task("", stand.bootstrap, "", options.records, 20_000, 100, 4)
    yield _read_all("groups-consume", title, case, options, stand, tell, lambda group: None)


def _read_all(
    bench: str, title: str, case: Task, options: argparse.Namespace, stand: Stand, tell: Tell,
    prepare: Callable[[str], None],
) -> Result:  # fmt: skip
    case = replace(case, topic=stand.new_topic(case.partitions), warm_topic=stand.new_topic(case.partitions))
    tell(f"{title}: filling the topics")
    stand.fill(case.warm_topic, case, case.warmup)
    stand.fill(case.topic, case, case.records)

    def turn(name: str) -> Sample:
        group = _groups.next(case.topic)
        prepare(group)
        return take_turn(bench, replace(case, contestant=name, options={"group": group, "protocol": _protocol(name)}))

    result = compete(title, chosen_names(bench, options.only), options.rounds, turn, tell)
    stand.delete(case.topic, case.warm_topic)
    return result


# -- rebalances


def rebalance(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    for protocol in _PROTOCOLS:
        for members, joining in ((50, 0), (10, 1)):
            yield _storm(options, stand, tell, protocol, members, joining, "")
    if stand.is_given:
        return
    delayed = {"group.initial.rebalance.delay.ms": "3000"}
    with Stand(None, options.files, delayed) as other:
        yield _storm(options, other, tell, "classic", 50, 0, ", which first waits for 3 s, as by default")


def _storm(
    options: argparse.Namespace, stand: Stand, tell: Tell, protocol: str, members: int, joining: int, broker: str
) -> Result:
    what = f"{joining} joins {members} members" if joining else f"{members} members join"
    title = f"{what} at once, {protocol}, {_REBALANCE_PARTITIONS} partitions{broker}"
    case = Task("", stand.bootstrap, stand.new_topic(_REBALANCE_PARTITIONS), 0, 0, 100, _REBALANCE_PARTITIONS)
    stand.fill(case.topic, case, _REBALANCE_PARTITIONS * _RECORDS_OF_A_PARTITION)
    names = [
        name
        for name in chosen_names("groups-rebalance", options.only)
        if protocol == "classic" or not name.startswith("aiokafka")
    ]

    turns: Counter[str] = Counter()

    def turn(name: str) -> Sample:
        settle_s = _SETTLE_S + turns[name] * _PHASE_S
        turns[name] += 1
        group = {"group": _groups.next(case.topic), "protocol": _PROTOCOLS[protocol]}
        chosen = {**group, "members": members, "joining": joining, "settle_s": settle_s}
        return take_turn("groups-rebalance", replace(case, contestant=name, options=chosen))

    result = compete(title, names, options.rounds, turn, tell)
    stand.delete(case.topic)
    return result


# -- parallel processing


def process(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    ideal = _CONCURRENCY / _WORK_S
    for work_s, records, keys in ((_WORK_S, int(4 * ideal), 1_000_000), (0.0, 200_000, 1_000_000), (0.0, 200_000, 0)):
        work = f"{work_s * 1000:.0f} ms of work" if work_s else "no work"
        keyed = "a key each" if keys else "no keys"
        title = f"process: {records:,} records, {keyed}, {work}, concurrency {_CONCURRENCY}, partitions: 4"
        case = Task("", stand.bootstrap, stand.new_topic(4), records, 0, 100, 4, keys=keys)
        stand.fill(case.topic, case, records)

        def turn(name: str, case: Task = case, work_s: float = work_s) -> Sample:
            group = {"group": _groups.next(case.topic), "protocol": "classic"}
            chosen = {**group, "work_s": work_s, "concurrency": _CONCURRENCY}
            sample = take_turn("groups-process", replace(case, contestant=name, options=chosen))
            if sample.failure is not None:
                return sample
            per_second = sample.measure("per_second")
            more = {"us": 1e6 / per_second}
            if work_s:
                more["percent"] = 100 * per_second / ideal
            return replace(sample, measures={**sample.measures, **more})

        yield compete(title, chosen_names("groups-process", options.only), options.rounds, turn, tell)
        stand.delete(case.topic)


# -- nothing to read


def idle(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    """Count on the wire, between the clients and a broker of its own whose advertised address is the relay's."""
    with (
        Stand(None, options.files, relayed=True) as own,
        CountingRelay(own.port("relay"), own.port("relayed")) as relay,
    ):
        for partitions in (1, _IDLE_PARTITIONS):
            title = f"a member that waits for records for {_IDLE_S:.0f} s, partitions: {partitions:,}"
            topic = own.new_topic(partitions)

            def turn(name: str, topic: str = topic, partitions: int = partitions) -> Sample:
                found: dict[str, float] = {}
                words: Mapping[str, Callable[[], object]] = {
                    "count": relay.begin,
                    "stop counting": lambda: found.update(_found(relay)),
                }
                chosen: dict[str, Any] = {"group": _groups.next(topic), "protocol": _protocol(name)}
                chosen |= {"idle_s": _IDLE_S, "settle_s": _SETTLE_S}
                task = Task(name, f"127.0.0.1:{own.port('relay')}", topic, 0, 0, 100, partitions, options=chosen)
                sample = take_turn("groups-idle", task, words)
                return replace(sample, measures={**sample.measures, **found})

            yield compete(title, chosen_names("groups-idle", options.only), options.rounds, turn, tell)
            own.delete(topic)


def _found(relay: CountingRelay) -> dict[str, float]:
    requests, fetched = relay.counted(FETCH)
    _, beaten = relay.counted(*HEARTBEATS)
    return {
        "fetches_s": requests / _IDLE_S, "fetch_bytes_s": fetched / _IDLE_S, "heartbeat_bytes_s": beaten / _IDLE_S,
    }  # fmt: skip


# -- share groups


def share(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    records = min(options.records, 500_000)  # a broker gives out no more than 2,000 records of a partition at once
    title = f"share groups: {records:,} records of 100 B, partitions: 4"
    case = Task("", stand.bootstrap, "", records, 20_000, 100, 4)
    yield _read_all("groups-share", title, case, options, stand, tell, lambda group: from_earliest(stand, group))


def from_earliest(stand: Stand, group: str) -> None:
    """Let a share group begin at the earliest offset, which only its config at the broker can say."""
    from kwire.cluster import ClientConfig
    from kwire.cluster.requests import ToAny
    from kwire.cluster.thread import LoopThread
    from kwire.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    wanted = IncrementalAlterConfigsRequest.Resource.Config(
        name="share.auto.offset.reset", config_operation=0, value="earliest"
    )
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=_GROUP_RESOURCE, resource_name=group, configs=[wanted]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    with closing(LoopThread(ClientConfig(stand.bootstrap))) as runtime:
        response: IncrementalAlterConfigsResponse = runtime.request(
            ToAny(), IncrementalAlterConfigsRequest, lambda _: request
        )
    if response.responses[0].error_code:
        raise RuntimeError(f"the group {group} could not be configured: {response.responses[0].error_message}")


_KWIRE = ("kwire C, classic", "kwire C, 848")
_PER_SECOND = Column("records\na second", "per_second")
_US_CPU = Column("us CPU\na record", "us_cpu")

PARTS: Mapping[str, Part] = {
    "consume": Part(
        consume,
        [
            _US_CPU, *ratio_columns("per_cpu", "records a CPU-second", _KWIRE), _PER_SECOND,
            *ratio_columns("per_second", "records a second", [*_KWIRE, "kwire C, async iteration, classic"]),
        ],
        "subscribed consumers, against assigned ones and peers", 5,
    ),
    "rebalance": Part(
        rebalance,
        [
            Column("seconds until all\nown and read", "seconds"),
            *ratio_columns("seconds", "seconds", ["kwire C"], is_less_better=True),
            Column("CPU seconds", "cpu_seconds"),
        ],
        "members that join, until all own partitions and read", 3,
    ),
    "process": Part(
        process, [_PER_SECOND, Column("% of the\nideal", "percent"), Column("us a record", "us"), _US_CPU],
        "consumer.process, with work and without", 3,
    ),
    "idle": Part(
        idle,
        [
            Column("% of a\nprocessor", "cpu_percent"), Column("fetches\na second", "fetches_s"),
            Column("bytes of fetches\na second", "fetch_bytes_s"),
            *ratio_columns("fetch_bytes_s", "bytes", ["kwire C, classic"], is_less_better=True),
            Column("bytes of heartbeats\na second", "heartbeat_bytes_s"),
        ],
        "members that wait: CPU time, and bytes on the wire", 2,
    ),
    "share": Part(
        share,
        [
            _US_CPU, _PER_SECOND,
            *ratio_columns("per_second", "records a second", ["kwire C, implicit", "kwire C, explicit"]),
        ],
        "a share consumer, against a plain one and Java's", 3,
    ),
}  # fmt: skip
