"""The contents of errors: broker, API and version, last cause, and remedy. A table of failures."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kwire.cluster.metadata import MetadataStatus
from kwire.cluster.recovery import Failure
from kwire.errors import (
    BrokerError,
    ClosedError,
    ConnectError,
    DeliveryError,
    DisconnectedError,
    ErrorCode,
    KwireError,
    RecordTooLargeError,
    RequestTimeoutError,
    TopicError,
    UnsupportedVersionError,
)
from kwire.producer.futures import ProduceResponse
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.protocol.messages.produce import ProduceRequest
from tests.producer.fakes import Bench
from tests.producer.test_terms import within

REFUSED = ConnectError("refused", broker="1 at host-1:9092", remedy="check that a broker listens there")
CUT = DisconnectedError("the peer closed the connection", broker="1 at host-1:9092")
SLOW = RequestTimeoutError(
    "no response in time", broker="1 at host-1:9092", api="Produce", version=12, remedy="see its log"
)
TOLD = MetadataStatus(None, 0.0, 0.0, None, None, ("2 at host-2:9092", 12))

AT_LEADER = {"broker": "1 at host-1:9092", "api": "Produce", "version": 12, "topic": "t", "partition": 0}
BY_METADATA = {"broker": "2 at host-2:9092", "api": "Metadata", "version": 12, "topic": "t"}


def bench(leader: int = 1, **settings: Any) -> Bench:
    made = Bench({"t": [(leader, 0)]}, **{"delivery_timeout_ms": 1_000, **settings})
    made.view.metadata = TOLD
    return made


def unreachable() -> ProduceResponse:
    one = bench()
    one.view.down.add(1)
    one.view.outages[1] = Failure(0.0, 1.0, 1, REFUSED)
    response = one.send(b"v", partition=0)
    one.turn()
    one.turn(1.0)
    return response


def cut_and_never_back() -> ProduceResponse:
    one = bench()
    response = one.send(b"v", partition=0)
    one.turn()[0].fail(one.now, CUT)
    one.view.down.add(1)
    one.turn(1.0)
    return response


def slow_again_and_again() -> ProduceResponse:
    one = bench()
    response = one.send(b"v", partition=0)
    for _ in range(3):
        for sent in one.turn(0.4):
            sent.fail(one.now, SLOW)
    one.turn(1.0)
    return response


def no_leader() -> ProduceResponse:
    one = bench(leader=-1)
    response = one.send(b"v", partition=0)
    one.turn()
    one.turn(1.0)
    return response


def no_metadata() -> ProduceResponse:
    one = Bench(delivery_timeout_ms=1_000)
    one.view.connection_error = REFUSED
    response = one.send(b"v", key=b"k")
    one.turn()
    one.turn(1.0)
    return response


def window_closed() -> ProduceResponse:
    one = bench()
    one.send(b"out", partition=0)
    one.turn()
    response = one.send(b"v", partition=0, terms=within(0.5, one))
    one.turn(0.1)
    one.turn(0.5)
    assert not response.done() or response.exception() is not None
    one.sender.closed(ClosedError("closed"))
    return response


def refused_by_the_broker() -> ProduceResponse:
    one = bench()
    response = one.send(b"v", partition=0)
    one.turn()[0].respond(one.now, ErrorCode.MESSAGE_TOO_LARGE)
    return response


def refused_after_doubt() -> ProduceResponse:
    one = bench()
    response = one.send(b"v", partition=0)
    one.turn()[0].fail(one.now, CUT)
    one.turn(0.2)[0].respond(one.now, ErrorCode.INVALID_RECORD)
    return response


def time_is_up_in_flight() -> ProduceResponse:
    one = bench()
    response = one.send(b"v", partition=0, terms=within(0.5, one))
    one.turn()
    one.turn(0.5)
    return response


def closed_in_flight() -> ProduceResponse:
    one = bench()
    response = one.send(b"v", partition=0)
    one.turn()[0].fail(one.now, CUT)
    one.sender.closed(ClosedError("the client was closed"))
    return response


def topic_unknown() -> ProduceResponse:
    one = Bench(unknown_topic_timeout_ms=500)
    one.view.metadata = TOLD
    one.know({}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    response = one.send(b"v")
    one.turn()
    one.turn(0.5)
    return response


def topic_forbidden() -> ProduceResponse:
    one = Bench()
    one.view.metadata = TOLD
    one.know({}, errors={"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    response = one.send(b"v")
    one.turn()
    return response


def no_such_partition() -> ProduceResponse:
    one = bench(unknown_topic_timeout_ms=100)
    response = one.send(b"v", partition=7)
    one.turn()
    one.turn(0.5)
    return response


def id_refused() -> ProduceResponse:
    one = bench(gives_ids=False)
    response = one.send(b"v", partition=0)
    one.turn()
    call = one.id_requests.pop()
    call.broker, call.version = "3 at host-3:9092", 5
    refused = InitProducerIdResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_id=-1, producer_epoch=-1
    )
    call.on_done(refused, one.now)
    return response


def id_unknown_to_brokers() -> ProduceResponse:
    one = bench(gives_ids=False, idempotence=True)
    response = one.send(b"v", partition=0)
    one.turn()
    one.id_requests.pop().on_done(
        UnsupportedVersionError("too old", broker="1 at host-1:9092", api="InitProducerId", remedy="upgrade"), one.now
    )
    return response


def headers_for_an_old_broker() -> ProduceResponse:
    one = bench(gives_ids=False)
    one.view.versions[ProduceRequest] = 2
    del one.view.versions[InitProducerIdRequest]
    response = one.send(b"v", partition=0, headers=(("h", b""),))
    one.turn()
    one.id_requests.pop().on_done(UnsupportedVersionError("too old"), one.now)
    one.turn(0.5)
    return response


@dataclass
class Expected:
    kind: type[KwireError]
    where: dict[str, object]
    says: str
    to_check: str
    cause: KwireError | type[KwireError] | None = None
    is_open: bool | None = None  # of a DeliveryError: possibly_persisted


UNSENT, OPEN = "it is in no log: it can be sent again", "it may be in the log all the same"

TABLE: list[tuple[Callable[[], ProduceResponse], Expected]] = [
    (
        unreachable,
        Expected(
            DeliveryError,
            {"broker": "1 at host-1:9092", "topic": "t", "partition": 0},
            "not delivered within 1000 ms; the last failure was: refused",
            f"check that a broker listens there; {UNSENT}",
            REFUSED,
            False,
        ),
    ),
    (
        cut_and_never_back,
        Expected(DeliveryError, AT_LEADER, "the last failure was: the peer closed the connection", OPEN, CUT, True),
    ),
    (
        slow_again_and_again,
        Expected(DeliveryError, AT_LEADER, "last failure was: no response in time", f"see its log; {OPEN}", SLOW, True),
    ),
    (
        no_leader,
        Expected(
            DeliveryError, {**BY_METADATA, "partition": 0}, "LEADER_NOT_AVAILABLE (5)", "electing", BrokerError, False
        ),
    ),
    (
        no_metadata,
        Expected(
            DeliveryError, {"broker": "1 at host-1:9092", "topic": "t"}, "not delivered", "listens", REFUSED, False
        ),
    ),
    (
        window_closed,
        Expected(
            DeliveryError,
            {"topic": "t", "partition": 0},
            "not delivered within 0.5 s, held back by this: window of 1",
            UNSENT,
            is_open=False,
        ),
    ),
    (
        refused_by_the_broker,
        Expected(
            RecordTooLargeError,
            AT_LEADER,
            "is alone in a batch of 69 bytes",
            "max.message.bytes of topic t",
            BrokerError,
        ),
    ),
    (
        refused_after_doubt,
        Expected(DeliveryError, AT_LEADER, "failed; the last failure was: INVALID_RECORD", OPEN, BrokerError, True),
    ),
    (time_is_up_in_flight, Expected(DeliveryError, AT_LEADER, "not acknowledged within 0.5 s", OPEN, None, True)),
    (
        closed_in_flight,
        Expected(DeliveryError, AT_LEADER, "was closed before it was delivered; the last", OPEN, CUT, True),
    ),
    (topic_unknown, Expected(TopicError, BY_METADATA, "did not know the topic for 500 ms", "create the topic")),
    (
        topic_forbidden,
        Expected(BrokerError, {**BY_METADATA, "operation": "describe"}, "TOPIC_AUTHORIZATION_FAILED (29)", "ACL"),
    ),
    (
        no_such_partition,
        Expected(TopicError, {**BY_METADATA, "partition": 7}, "topic t has 1 partition", "there is no partition 7"),
    ),
    (
        id_refused,
        Expected(
            BrokerError,
            {"broker": "3 at host-3:9092", "api": "InitProducerId", "version": 5, "operation": "idempotent_write"},
            "CLUSTER_AUTHORIZATION_FAILED (31)",
            "",
        ),
    ),
    (
        id_unknown_to_brokers,
        Expected(
            UnsupportedVersionError, {"broker": "1 at host-1:9092", "api": "InitProducerId"}, "too old", "upgrade"
        ),
    ),
    (
        headers_for_an_old_broker,
        Expected(UnsupportedVersionError, {**AT_LEADER, "version": 2}, "too old for record headers", "from 0.11"),
    ),
]


@pytest.mark.parametrize(("fail", "expected"), TABLE, ids=lambda value: getattr(value, "__name__", ""))
def test_errors_say_where_why_and_what_to_check(fail: Callable[[], ProduceResponse], expected: Expected) -> None:
    error = fail().exception(0)
    assert isinstance(error, expected.kind), repr(error)
    assert error.where == expected.where
    assert expected.says in str(error)
    assert error.remedy, "an error without advice"
    assert expected.to_check in error.remedy
    if isinstance(expected.cause, type):
        assert isinstance(error.__cause__, expected.cause)
    else:
        assert error.__cause__ is expected.cause
    if expected.is_open is not None:
        assert isinstance(error, DeliveryError)
        assert error.possibly_persisted is expected.is_open
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_delivery_error_in_full() -> None:
    assert str(unreachable().exception(0)) == (
        "not delivered within 1000 ms; the last failure was: refused "
        "[broker 1 at host-1:9092, topic t, partition 0]: "
        "check that a broker listens there; it is in no log: it can be sent again"
    )
