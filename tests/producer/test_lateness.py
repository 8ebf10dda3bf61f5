"""Timeout errors on the embedded cluster: what is awaited, where, the last failure, and the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster, Mute, Refuse
from kwire.broker.faults import Effect
from kwire.errors import BrokerError, ConnectError, ErrorCode, RequestTimeoutError
from kwire.protocol import ApiKey
from tests.net.harness import closed_port

SECONDS = 0.2
TRIES = 50


class Case(NamedTuple):
    """`step` is repeated with a short timeout until its error has the expected reason."""

    name: str
    fault: tuple[Effect, ApiKey] | None
    step: Callable[[kwire.Producer], object]
    says: str
    where: dict[str, object]
    cause: object
    is_transactional: bool = True


def begun(step: Callable[[kwire.Producer], object], *, delivers: bool = False) -> Callable[[kwire.Producer], object]:
    """Return the step in a transaction with one record."""

    def act(producer: kwire.Producer) -> object:
        if producer not in _BEGUN:
            producer.begin(30)
            response = producer.send("t", b"v")
            if delivers:
                response.result(30)
            _BEGUN.append(producer)
        return step(producer)

    return act


def send_and_flush(producer: kwire.Producer) -> None:
    producer.send("t", b"v")
    producer.flush(SECONDS)


_BEGUN: list[kwire.Producer] = []

LOADING, BUSY = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS
CASES = [
    Case(
        "no coordinator", (Refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE), ApiKey.FIND_COORDINATOR),
        lambda producer: producer.init_transactions(SECONDS),
        "init_transactions() is not done after 0.2 s: awaited is the producer id of 'x': the coordinator of "
        "transaction 'x', which would get InitProducerId, is not found or not reached; "
        "the last failure was: COORDINATOR_NOT_AVAILABLE",
        {"api": "InitProducerId"}, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    Case(
        "no broker", None, lambda producer: producer.begin(SECONDS),
        "is not found or not reached; the last failure was: ", {"api": "InitProducerId"}, ConnectError,
    ),
    Case(
        "id refused for now", (Refuse(ErrorCode.CONCURRENT_TRANSACTIONS), ApiKey.INIT_PRODUCER_ID),
        lambda producer: producer.begin(SECONDS),
        "the last failure was: CONCURRENT_TRANSACTIONS (51)", {}, ErrorCode.CONCURRENT_TRANSACTIONS,
    ),
    Case(
        "offsets", (Refuse(LOADING), ApiKey.TXN_OFFSET_COMMIT),
        begun(lambda producer: producer.send_offsets({("t", 0): 1}, "group", SECONDS)),
        "send_offsets() is not done after 0.2 s: awaited is ", {}, LOADING,
    ),
    Case(
        "commit without a response", (Mute(), ApiKey.END_TXN), begun(lambda producer: producer.commit(SECONDS)),
        "commit() is not done after 0.2 s: awaited is the transaction's end: the response of the coordinator of "
        "transaction 'x' to EndTxn", {"api": "EndTxn", "version": 5}, None,
    ),
    Case(
        "commit behind records", (Refuse(BUSY), ApiKey.PRODUCE), begun(lambda producer: producer.commit(SECONDS)),
        "awaited is the delivery of records: 1 of topic t (back-off: ", {"topic": "t"}, BUSY,
    ),
    Case(
        "abort without a response", (Mute(), ApiKey.END_TXN),
        begun(lambda producer: producer.abort(SECONDS), delivers=True),
        "abort() is not done after 0.2 s: awaited is the transaction's end: the response of the coordinator of "
        "transaction 'x' to EndTxn", {"api": "EndTxn"}, None,
    ),
    Case(
        "flush", (Refuse(BUSY), ApiKey.PRODUCE), send_and_flush,
        " of topic t (back-off: ", {"api": "Produce", "topic": "t", "partition": 0}, BUSY, False,
    ),
    Case(
        "flush without a broker", None, send_and_flush,
        " of topic t (metadata: ", {}, ConnectError, False,
    ),
]  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 1}) as one:
        yield one


def outcome(case: Case, act: Callable[[], object]) -> RequestTimeoutError:
    """Return the timeout error once it has the expected reason."""
    for _ in range(TRIES):
        with pytest.raises(RequestTimeoutError) as caught:
            act()
        cause = caught.value.__cause__
        if case.says in caught.value.message and is_expected(cause, case.cause):
            break
    return caught.value


def is_expected(cause: object, expected: object) -> bool:
    if isinstance(expected, ErrorCode):
        return isinstance(cause, BrokerError) and cause.code == expected
    return isinstance(cause, expected) if isinstance(expected, type) else True


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_step_says_what_it_waited_for(cluster: Cluster, case: Case) -> None:
    if case.fault is not None:
        cluster.add_fault(case.fault[0], api=case.fault[1], times=None)
    bootstrap = cluster.bootstrap if case.fault is not None else "{}:{}".format(*closed_port())
    options: dict[str, Any] = {"transactional_id": "x"} if case.is_transactional else {}
    producer = kwire.Producer(bootstrap, linger_ms=0, retry_backoff_ms=50, retry_backoff_ms_max=50, **options)
    error = outcome(case, lambda: case.step(producer))
    assert case.says in error.message
    assert is_expected(error.__cause__, case.cause), repr(error.__cause__)
    assert case.where.items() <= error.where.items()
    assert error.remedy is not None
    assert "it goes on all the same: call " in error.remedy
    assert cluster.failures == ()
    cluster.clear_faults()
    producer.close(timeout=0)


def test_the_same_in_asyncio(cluster: Cluster) -> None:
    async def main() -> list[str]:
        cluster.add_fault(Mute(), api=ApiKey.END_TXN, times=None)
        producer = kwire.aio.Producer(cluster.bootstrap, transactional_id="x")
        await producer.begin()
        await (await producer.send("t", b"v"))
        messages = []
        for step in (producer.commit, producer.commit):
            with pytest.raises(RequestTimeoutError) as caught:
                await step(SECONDS)
            messages.append(str(caught.value))
        cluster.clear_faults()
        await producer.close(timeout=0)
        return messages

    for message in asyncio.run(main()):
        assert message.startswith("commit() is not done after 0.2 s: awaited is the transaction's end")
        assert "EndTxn" in message
