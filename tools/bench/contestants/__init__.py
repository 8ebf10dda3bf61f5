"""List what each client runs in each bench. A name is "client" or "client, manner"; `bench.settings` has the options.

A contestant is a function of a Task and a Coordination that returns a Sample. It runs in its own process with the
environment given here: kwire's two implementations are two contestants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bench.task import Coordination, Sample, Task

Run = Callable[["Task", "Coordination"], "Sample"]

_C: Mapping[str, str] = {"KWIRE_IMPL": "c"}
_PYTHON: Mapping[str, str] = {"KWIRE_IMPL": "python"}


class Contestant(NamedTuple):
    """Name the module and function of a contestant, and its environment."""

    place: str
    environment: Mapping[str, str] = {}


def _kwire(function: str) -> dict[str, Contestant]:
    manner = {"iterate": ", iteration", "send_many": ", send_many", "send_arrow": ", send_arrow"}
    manner |= {"poll_batch": ", poll_batch", "poll_arrow": ", poll_arrow"}
    place, said = f"kwire_client:{function}", manner.get(function, "")
    return {f"kwire C{said}": Contestant(place, _C), f"kwire Python{said}": Contestant(place, _PYTHON)}


CONTESTANTS: Mapping[str, Mapping[str, Contestant]] = {
    "produce": {
        **_kwire("produce"),
        "confluent-kafka": Contestant("confluent:produce"),
        "Java": Contestant("java:produce"),
        "aiokafka": Contestant("asyncio_client:produce"),
        "kafka-python": Contestant("kafka_python:produce"),
    },
    "consume": {
        **_kwire("consume"),
        **_kwire("iterate"),
        "confluent-kafka": Contestant("confluent:consume"),
        "confluent-kafka, poll": Contestant("confluent:poll"),
        "Java": Contestant("java:consume"),
        "aiokafka": Contestant("asyncio_client:consume"),
        "kafka-python": Contestant("kafka_python:consume"),
    },
    "bulk": {
        **_kwire("send_many"),
        **_kwire("send_arrow"),
        "confluent-kafka, produce": Contestant("confluent:produce"),
        "confluent-kafka, produce without reports": Contestant("confluent:produce_unreported"),
        "confluent-kafka, produce_batch": Contestant("confluent:produce_batch"),
        "Java": Contestant("java:produce"),
        "aiokafka": Contestant("asyncio_client:send_batch"),
    },
    "bulk-consume": {
        **_kwire("poll_batch"),
        **_kwire("poll_arrow"),
        "confluent-kafka": Contestant("confluent:consume"),
        "Java": Contestant("java:consume"),
        "aiokafka": Contestant("asyncio_client:consume"),
        "kafka-python": Contestant("kafka_python:consume"),
    },
    "latency": {
        **_kwire("latency"),
        "confluent-kafka": Contestant("confluent:latency"),
        "aiokafka": Contestant("asyncio_client:latency"),
        "kafka-python": Contestant("kafka_python:latency"),
    },
    "memory": {
        **_kwire("memory"),
        "confluent-kafka": Contestant("confluent:memory"),
        "kafka-python": Contestant("kafka_python:memory"),
    },
    "groups-consume": {
        "kwire C, assign": Contestant("kwire_groups:assigned", _C),
        "kwire C, classic": Contestant("kwire_groups:subscribed", _C),
        "kwire C, 848": Contestant("kwire_groups:subscribed", _C),
        "kwire C, iteration, classic": Contestant("kwire_groups:iterated", _C),
        "kwire C, async iteration, classic": Contestant("kwire_groups:aio_iterated", _C),
        "confluent-kafka, classic": Contestant("peer_groups:confluent_subscribed"),
        "confluent-kafka, 848": Contestant("peer_groups:confluent_subscribed"),
        "aiokafka, classic": Contestant("peer_groups:aiokafka_subscribed"),
    },
    "groups-rebalance": {
        "kwire C": Contestant("kwire_groups:rebalance", _C),
        "kwire C, one Cluster": Contestant("kwire_groups:rebalance_together", _C),
        "confluent-kafka": Contestant("peer_groups:confluent_rebalance"),
        "aiokafka": Contestant("peer_groups:aiokafka_rebalance"),
    },
    "groups-process": {
        "kwire C, threads": Contestant("kwire_groups:process_threads", _C),
        "kwire C, tasks": Contestant("kwire_groups:process_tasks", _C),
        "kwire C, aio.Consumer": Contestant("kwire_groups:process_aio", _C),
    },
    "groups-idle": {
        "kwire C, classic": Contestant("kwire_groups:idle_member", _C),
        "kwire C, 848": Contestant("kwire_groups:idle_member", _C),
        "Java, classic": Contestant("peer_groups:java_idle"),
        "Java, 848": Contestant("peer_groups:java_idle"),
        "confluent-kafka, classic": Contestant("peer_groups:confluent_idle"),
        "aiokafka, classic": Contestant("peer_groups:aiokafka_idle"),
    },
    "groups-share": {
        "kwire C, implicit": Contestant("kwire_groups:share_implicit", _C),
        "kwire C, explicit": Contestant("kwire_groups:share_explicit", _C),
        "kwire C, plain": Contestant("kwire_groups:assigned", _C),
        "Java, implicit": Contestant("peer_groups:java_shared"),
        "Java, plain": Contestant("java:consume"),
    },
    "queues-consume": {
        "queue, receive": Contestant("kwire_queues:receive", _C),
        "queue, receive_many": Contestant("kwire_queues:receive_many", _C),
        "queue, handle": Contestant("kwire_queues:handle", _C),
        "queue, async": Contestant("kwire_queues:aio_receive", _C),
        "queue, transactional": Contestant("kwire_queues:transactional", _C),
        "plain, process": Contestant("kwire_queues:plain_process", _C),
        "plain, next and commit": Contestant("kwire_queues:plain_next", _C),
        "plain, poll and commit": Contestant("kwire_queues:plain_commit", _C),
        "plain, poll": Contestant("kwire_queues:plain_poll", _C),
    },
    "queues-senders": {
        "queue, receive": Contestant("kwire_queues:receive", _C),
        "queue, receive_many": Contestant("kwire_queues:receive_many", _C),
        "plain, poll": Contestant("kwire_queues:plain_poll", _C),
    },
    "queues-work": {
        "queue, handle": Contestant("kwire_queues:handle_work", _C),
        "plain, process": Contestant("kwire_queues:plain_work", _C),
    },
    "queues-send": {
        "queue, send": Contestant("kwire_queues:send", _C),
        "queue, send_many": Contestant("kwire_queues:send_many", _C),
        "queue, async send": Contestant("kwire_queues:aio_send", _C),
        "plain, send": Contestant("kwire_queues:plain_send", _C),
    },
    "queues-many": {"queue, send": Contestant("kwire_queues:send", _C)},
    "queues-latency": {
        "queue": Contestant("kwire_queues:latency", _C),
        "plain": Contestant("kwire_queues:plain_latency", _C),
    },
    "queues-memory": {"queue": Contestant("kwire_queues:memory", _C)},
    "queues-share": {
        "queue, receive": Contestant("kwire_queues:shared", _C),
        "Java, implicit": Contestant("peer_groups:java_shared"),
    },
    "spark": {
        "kwire": Contestant("pyspark_job:kwire", _C),
        "Spark's connector": Contestant("pyspark_job:kafka"),
        "nothing": Contestant("pyspark_job:nothing"),
    },
    "spark-batches": {
        "kwire, exactly once": Contestant("pyspark_job:exactly_once", _C),
        "kwire, at least once": Contestant("pyspark_job:kwire", _C),
    },
}


def contestant(name: str) -> Run:
    """Return the function of a contestant, named "bench/name" as in tasks."""
    bench, _, own = name.partition("/")
    module, _, function = CONTESTANTS[bench][own].place.partition(":")
    run: Run = getattr(import_module(f"bench.contestants.{module}"), function)
    return run
