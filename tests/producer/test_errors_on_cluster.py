"""The errors of `send`, `result`, `flush`, `commit` and the others on the embedded cluster, as a caller sees them.

Each error says where (broker, API, version, topic, partition, as far as there is one) and what to do. Waits that took
too long are in `test_lateness`; errors on virtual time, with their causes, are in `test_errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

import kwire
from kwire.broker import Cluster, Disconnect, Mute, Refuse
from kwire.broker.faults import Effect
from kwire.errors import (
    AbortableError,
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BufferFullError,
    ClosedError,
    ConfigurationError,
    DeliveryError,
    ErrorCode,
    FatalError,
    FencedError,
    KwireError,
    RecordTooLargeError,
    RequestTimeoutError,
    TopicError,
    TransactionError,
)
from kwire.protocol import ApiKey
from tests.net.harness import closed_port

PATIENCE = 30
Act = Callable[[kwire.Producer], object]

# Errors name the broker with its id, or by its address alone before metadata has the id.
PRODUCE = {"broker": "127.0.0.1:{port}", "api": "Produce", "version": 13, "topic": "t", "partition": 0}
METADATA = {"broker": "127.0.0.1:{port}", "api": "Metadata", "version": 13}
AT_BROKER = {"broker": "127.0.0.1:{port}"}


class Case(NamedTuple):
    name: str
    act: Act
    kind: type[KwireError]
    where: Mapping[str, object]
    remedy: str
    options: Mapping[str, Any] = {}
    fault: tuple[Effect, ApiKey] | None = None


def sent(**more: Any) -> Act:
    return lambda producer: producer.send("t", b"v", **{"partition": 0, **more}).result(PATIENCE)


def in_transaction(act: Act, *, topic: str = "t") -> Act:
    def run(producer: kwire.Producer) -> object:
        producer.begin(PATIENCE)
        producer.send(topic, b"v", partition=0)
        return act(producer)

    return run


def commit(producer: kwire.Producer) -> None:
    producer.commit(PATIENCE)


def after_another_began(producer: kwire.Producer) -> None:
    producer.begin(PATIENCE)
    producer.send("t", b"v", partition=0).result(PATIENCE)
    addresses = [f"{host}:{port}" for host, port in producer._core.runtime.config.addresses]
    with kwire.Producer(addresses, transactional_id="x") as successor:
        successor.begin(PATIENCE)
        producer.commit(PATIENCE)


def fill(producer: kwire.Producer) -> None:
    for _ in range(3):
        producer.send("t", b"x" * 900)


def close_and(act: Act) -> Act:
    def run(producer: kwire.Producer) -> object:
        producer.close(timeout=0)
        return act(producer)

    return run


def closed_while_waiting(producer: kwire.Producer) -> object:
    response = producer.send("t", b"v", partition=0)
    while not producer.metrics().requests_sent:
        pass
    producer.close(timeout=0)
    return response.result(0)


def first(message: kwire.Message, topic: object) -> int:
    return 0


IN = {"transactional_id": "x"}
SLOW, BUSY = Mute(), Refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
BRIEF = {"delivery_timeout_ms": 400, "request_timeout_ms": 100}
CASES = [
    # send
    Case("too large here", lambda p: p.send("t", b"x" * 900), RecordTooLargeError, {"topic": "t"}, "max_request_bytes",
         {"max_request_bytes": 500}),
    Case("no room", fill, BufferFullError, {}, "max_buffered_bytes",
         {"max_buffered_bytes": 1_000, "when_full": "raise"}, (SLOW, ApiKey.PRODUCE)),
    Case("no room in time", fill, BufferFullError, {}, "max_buffered_bytes",
         {"max_buffered_bytes": 1_000, "max_block_ms": 50}, (SLOW, ApiKey.PRODUCE)),
    Case("closed", close_and(sent()), ClosedError, {}, "make another"),
    Case("partitions unknown", lambda p: p.send("nowhere", b"v"), RequestTimeoutError,
         {**METADATA, "topic": "nowhere"}, "check that the topic exists",
         {"partitioner": first, "max_block_ms": 200, "unknown_topic_timeout_ms": 10_000}),
    # result
    Case("a wait too short", lambda p: p.send("t", b"v").result(0.1), RequestTimeoutError, {}, "producer.explain",
         fault=(SLOW, ApiKey.PRODUCE)),
    Case("refused", sent(), BrokerError, PRODUCE, "", fault=(Refuse(ErrorCode.INVALID_RECORD), ApiKey.PRODUCE)),
    Case("forbidden", sent(), AuthorizationError, PRODUCE, "ACL",
         fault=(Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED), ApiKey.PRODUCE)),
    Case("too large there", lambda p: p.send("small", b"x" * 900).result(PATIENCE), RecordTooLargeError,
         {**PRODUCE, "topic": "small"}, "raise max.message.bytes of topic small above "),
    Case("no topic", lambda p: p.send("nowhere", b"v").result(PATIENCE), TopicError, {**METADATA, "topic": "nowhere"},
         "create the topic", {"unknown_topic_timeout_ms": 200}),
    Case("no partition", sent(partition=7), TopicError, {**METADATA, "topic": "t", "partition": 7},
         "there is no partition 7", {"unknown_topic_timeout_ms": 200}),
    # When the time is over, no request is out: the next one would follow later.
    Case("busy for too long", sent(), DeliveryError, PRODUCE, "it is in no log",
         {"delivery_timeout_ms": 600, "request_timeout_ms": 550, "retry_backoff_ms": 1000}, (BUSY, ApiKey.PRODUCE)),
    Case("no retries", sent(), DeliveryError, PRODUCE, "it is in no log", {"retries": 0}, (BUSY, ApiKey.PRODUCE)),
    Case("no response", sent(), DeliveryError, PRODUCE, "it may be in the log", BRIEF, (SLOW, ApiKey.PRODUCE)),
    Case("cut", sent(), DeliveryError, PRODUCE, "it may be in the log", BRIEF,
         (Disconnect(applied=True), ApiKey.PRODUCE)),
    Case("id forbidden", sent(), AuthorizationError,
         {**AT_BROKER, "api": "InitProducerId", "version": 6}, "",
         fault=(Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ApiKey.INIT_PRODUCER_ID)),
    Case("closed meanwhile", closed_while_waiting, DeliveryError, PRODUCE, "it may be in the log",
         fault=(SLOW, ApiKey.PRODUCE)),
    Case("in no transaction", sent(), TransactionError, {}, "begin()", IN),
    # transactions
    Case("no transactional id", commit, ConfigurationError, {}, "give one"),
    Case("no transaction", commit, TransactionError, {}, "begin()", IN),
    Case("id of the transaction forbidden", lambda p: p.begin(PATIENCE), FatalError,
         {**AT_BROKER, "api": "InitProducerId", "version": 6}, "close this producer", IN,
         (Refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ApiKey.INIT_PRODUCER_ID)),
    Case("a record that failed", in_transaction(commit), AbortableError, PRODUCE, "abort this transaction", IN,
         (Refuse(ErrorCode.INVALID_RECORD), ApiKey.PRODUCE)),
    Case("offsets forbidden", in_transaction(lambda p: p.send_offsets({("t", 0): 1}, "g", PATIENCE)), AbortableError,
         {**AT_BROKER, "api": "TxnOffsetCommit", "version": 5, "topic": "t", "partition": 0, "group": "g"},
         "abort this transaction", IN, (Refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED), ApiKey.TXN_OFFSET_COMMIT)),
    Case("end refused", in_transaction(commit), FatalError, {**AT_BROKER, "api": "EndTxn", "version": 5},
         "close this producer", IN, (Refuse(ErrorCode.INVALID_TXN_STATE), ApiKey.END_TXN)),
    Case("fenced", after_another_began, FencedError, AT_BROKER, "another one has its transactional id", IN),
]  # fmt: skip


def failure(act: Act, producer: kwire.Producer) -> KwireError:
    with pytest.raises(KwireError) as caught:
        act(producer)
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_errors_say_where_and_what_to_do(case: Case) -> None:
    with Cluster(brokers=1, topics={"t": 1}, auto_create_topics=False) as cluster:
        cluster.create_topic("small", partitions=1, configs={"max.message.bytes": "500"})
        if case.fault is not None:
            cluster.add_fault(case.fault[0], api=case.fault[1], times=None)
        options = {"retry_backoff_ms": 10, "linger_ms": 0, **case.options}
        producer = kwire.Producer(cluster.bootstrap, **options)
        error = failure(case.act, producer)
        cluster.clear_faults()
        producer.close(timeout=0)
        port = cluster.brokers[1][1]
        assert cluster.failures == ()
    assert type(error) is case.kind, repr(error)
    expected, where = dict(case.where), dict(error.where)
    if "broker" in expected:
        assert str(where.pop("broker", "")).removeprefix("1 at ") == str(expected.pop("broker")).format(port=port)
    assert expected.items() <= where.items()
    assert error.remedy, f"no advice: {error}"
    assert case.remedy in error.remedy


def test_nobody_there_and_a_wrong_password() -> None:
    host, port = closed_port()
    with kwire.Producer(f"{host}:{port}", delivery_timeout_ms=300) as producer:
        error = failure(sent(), producer)
    assert isinstance(error, DeliveryError)
    assert (error.where["broker"], error.where["topic"]) == (f"{host}:{port}", "t")
    assert "check the port" in (error.remedy or "")
    with Cluster(brokers=1, sasl={"user": "right"}) as cluster:
        wrong = kwire.Sasl("PLAIN", "user", "wrong")
        with kwire.Producer(cluster.bootstrap, sasl=wrong) as producer:
            error = failure(sent(), producer)
        assert isinstance(error, AuthenticationError)
        assert error.where["broker"] == cluster.bootstrap
        assert error.remedy
