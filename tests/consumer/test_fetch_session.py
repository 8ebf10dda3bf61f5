"""The client's side of fetch sessions: Kafka's FetchSessionHandlerTest as tables, and a model of the broker's side."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from kwire.broker.fetch_sessions import FetchSessionCache
from kwire.consumer.fetch_session import FetchSession, SessionPartition, SessionRequest, next_epoch
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.fetch import FetchRequest

IDS = {"foo": UUID(int=1), "bar": UUID(int=2), "new foo": UUID(int=3)}
FOO0, FOO1, BAR0 = ("foo", 0), ("foo", 1), ("bar", 0)
# (offset, log start offset, max bytes) in Kafka's test; a consumer sends no log start offset.
START = {FOO0: (0, 200), FOO1: (10, 210)}

Session = FetchSession[SessionPartition]
Request = SessionRequest[SessionPartition]


def want(session: Session, wanted: dict[tuple[str, int], tuple[int, int]], *, ids: bool = True) -> None:
    """Want these partitions and no others."""
    for known in list(session.wanted):
        if known.key not in wanted:
            session.forget(known.key)
    for (topic, partition), (offset, max_bytes) in wanted.items():
        session.want(SessionPartition(topic, partition, IDS[topic] if ids else None, offset, max_bytes))


def build(session: Session, wanted: dict[tuple[str, int], tuple[int, int]], *, ids: bool = True) -> Request:
    want(session, wanted, ids=ids)
    return session.build(uses_ids=session.has_ids)


def respond(session: Session, request: Request, id: int, *keys: tuple[str, int], code: int = 0) -> bool:
    return session.handle_response(request, code, id, keys, is_throttled=False)


def named(request: Request) -> dict[tuple[str, int], tuple[int, int]]:
    return {one.key: (one.offset, one.max_bytes) for one in request.partitions}


def forgotten(request: Request) -> list[tuple[str, int]]:
    return [one.key for one in request.forgotten]


both_kinds = pytest.mark.parametrize("ids", [False, True], ids=["v12", "v13"])


@both_kinds
def test_sessionless(ids: bool) -> None:
    session = Session()
    request = build(session, START, ids=ids)
    assert (request.session_id, request.epoch, named(request)) == (0, 0, START)
    assert respond(session, request, 0, FOO0, FOO1)
    request = build(session, {FOO0: (0, 200)}, ids=ids)
    assert (request.session_id, request.epoch, named(request)) == (0, 0, {FOO0: (0, 200)})


@both_kinds
def test_incrementals(ids: bool) -> None:
    session = Session()
    assert respond(session, build(session, START, ids=ids), 123, FOO0, FOO1)
    wanted = {FOO0: (0, 200), FOO1: (10, 211), BAR0: (20, 200)}
    request = build(session, wanted, ids=ids)
    assert (request.session_id, request.epoch, request.is_full) == (123, 1, False)
    assert named(request) == {FOO1: (10, 211), BAR0: (20, 200)}
    assert session.sent.keys() == {FOO0, FOO1, BAR0}
    assert respond(session, request, 123, FOO1)
    request = build(session, wanted, ids=ids)
    assert (request.epoch, named(request), forgotten(request)) == (2, {}, []), "a long poll of the whole session"
    assert not respond(session, request, 0, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    request = build(session, wanted, ids=ids)
    assert (request.session_id, request.epoch, named(request)) == (123, 0, wanted), "which ends the old session"


@both_kinds
def test_incremental_partition_removal(ids: bool) -> None:
    session = Session()
    assert respond(session, build(session, {**START, BAR0: (20, 220)}, ids=ids), 123, FOO0, FOO1, BAR0)
    request = build(session, {FOO1: (10, 210)}, ids=ids)
    assert (request.session_id, request.epoch, named(request)) == (123, 1, {})
    assert sorted(forgotten(request)) == [BAR0, FOO0]
    assert session.sent.keys() == {FOO1}
    assert not respond(session, request, 0, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    request = build(session, {FOO0: (0, 200)}, ids=ids)
    assert (request.session_id, request.epoch, named(request)) == (0, 0, {FOO0: (0, 200)})


@pytest.mark.parametrize(
    ("returned", "id", "epoch"),
    [
        ([FOO0, FOO1, BAR0], 123, 1),
        ([FOO0, FOO1], 0, 0),  # omitted
        ([FOO0, FOO1, BAR0, ("baz", 1)], 0, 0),  # extra
    ],
)
def test_verify_full_fetch_response_partitions(returned: list[tuple[str, int]], id: int, epoch: int) -> None:
    session = Session()
    respond(session, build(session, {**START, BAR0: (20, 220)}), 123, *returned)
    assert (session.id, session.epoch) == (id, epoch)


def test_an_incremental_response_with_an_unknown_partition_closes_the_session() -> None:
    session = Session()
    respond(session, build(session, START), 123, FOO0, FOO1)
    respond(session, build(session, START), 123, BAR0)
    assert (session.id, session.epoch) == (123, 0)


@pytest.mark.parametrize("ids_first", [False, True])
def test_session_kinds_do_not_mix(ids_first: bool) -> None:
    """Kafka's testTopicIdUsageGrantedOnIdUpgrade and testIdUsageRevokedOnIdDowngrade."""
    session = Session()
    respond(session, build(session, START, ids=ids_first), 123, FOO0, FOO1)
    request = build(session, START, ids=not ids_first)
    assert (request.session_id, request.epoch, named(request)) == (123, 0, START)


def test_one_topic_without_id_takes_the_ids_from_all() -> None:
    """Kafka's testSessionEpochWhenMixedUsageOfTopicIDs."""
    session = Session()
    want(session, {FOO0: (0, 200)})
    has_ids = [session.has_ids]
    session.want(SessionPartition("bar", 0, None, 20, 220))
    has_ids.append(session.has_ids)
    session.forget(BAR0)
    assert [*has_ids, session.has_ids] == [True, False, True]


def test_id_usage_with_all_forgotten_partitions() -> None:
    session = Session()
    respond(session, build(session, {FOO0: (0, 200)}), 123, FOO0)
    request = build(session, {})
    assert (request.session_id, request.epoch, named(request), forgotten(request)) == (123, 1, {}, [FOO0])


@pytest.mark.parametrize("offset", [0, 5])
def test_topic_id_replaced(offset: int) -> None:
    session = Session()
    respond(session, build(session, {FOO0: (0, 200)}), 123, FOO0)
    session.want(SessionPartition("foo", 0, IDS["new foo"], offset, 200))
    request = session.build(uses_ids=True)
    assert [(one.topic_id, one.offset) for one in request.partitions] == [(IDS["new foo"], offset)]
    assert [one.topic_id for one in request.forgotten] == [IDS["foo"]]
    assert session.sent[FOO0].topic_id == IDS["new foo"]


@pytest.mark.parametrize(
    ("code", "id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 123),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 123),
        (ErrorCode.UNKNOWN_TOPIC_ID, 123),
        (ErrorCode.INCONSISTENT_TOPIC_ID, 123),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 123),
    ],
)
def test_after_each_top_level_error_the_next_request_is_full(code: ErrorCode, id: int) -> None:
    session = Session()
    respond(session, build(session, START), 123, FOO0, FOO1)
    assert not respond(session, build(session, START), 0, code=code)
    request = build(session, START)
    assert (request.session_id, request.epoch, named(request)) == (id, 0, START)
    assert respond(session, request, 124, FOO0, FOO1)
    assert (session.id, session.epoch) == (124, 1), "no error is for ever"


def test_a_request_without_a_response_ends_the_session() -> None:
    session = Session()
    respond(session, build(session, START), 123, FOO0, FOO1)
    build(session, {FOO0: (50, 200)})
    session.handle_error()
    request = build(session, {FOO0: (50, 200)})
    assert (request.session_id, request.epoch, named(request)) == (123, 0, {FOO0: (50, 200)})


def test_a_session_that_the_broker_has_ended_is_followed_by_a_new_one() -> None:
    session = Session()
    respond(session, build(session, START), 123, FOO0, FOO1)
    assert respond(session, build(session, START), 0, FOO0), "what it holds is good"
    assert (session.id, session.epoch) == (0, 0)


def test_a_throttled_empty_response_to_a_full_request_says_nothing() -> None:
    session = Session()
    request = build(session, START)
    assert not session.handle_response(request, 0, 0, [], is_throttled=True)
    assert named(build(session, START)) == START


def test_the_epoch_after_the_last_is_1() -> None:
    session = Session()
    respond(session, build(session, START), 123, FOO0, FOO1)
    session.epoch = 2**31 - 1
    respond(session, build(session, START), 123)
    assert session.epoch == 1
    assert next_epoch(7) == 8


def test_altered_partitions_go_to_the_end_of_the_next_full_request() -> None:
    session = Session()
    respond(session, build(session, START), 0, FOO0, FOO1)
    session.want(SessionPartition("foo", 0, IDS["foo"], 5, 200))
    assert list(named(session.build(uses_ids=True))) == [FOO1, FOO0]


@pytest.mark.parametrize("seed", range(30))
def test_the_broker_has_what_the_client_wants_after_each_request(seed: int) -> None:
    """Partitions come, go, move, and get another topic of the same name; requests and responses get lost."""
    random = Random(seed)
    session, cache = Session(), FetchSessionCache(1, Random(seed))
    wanted: dict[tuple[str, int], SessionPartition] = {}
    for step in range(300):
        for _ in range(random.randrange(4)):
            key = random.choice(["foo", "bar"]), random.randrange(5)
            if random.random() < 0.3:
                wanted.pop(key, None)
                session.forget(key)
            else:
                id = IDS["new foo"] if key[0] == "foo" and step > 150 else IDS[key[0]]
                wanted[key] = SessionPartition(*key, id, random.randrange(3), 200)
                session.want(wanted[key])
        request = session.build(uses_ids=True)
        fate = random.choice(["arrives"] * 8 + ["is lost", "loses its response", "meets a restart"])
        if fate == "is lost":
            session.handle_error()
            continue
        if fate == "meets a restart":
            cache.sessions.clear()
        try:
            context = cache.open(encoded(request), 18, 0.0)
        except BrokerError as error:
            assert fate == "meets a restart"
            session.handle_response(request, error.code, 0, (), is_throttled=False)
            continue
        at_broker = {(one.topic_id, one.requested.partition): one.requested.fetch_offset for one in context.partitions}
        assert at_broker == {(one.topic_id, one.partition): one.offset for one in wanted.values()}
        session_id = context.session.id if context.session else cache.create(context, 18, 0.0)
        if fate == "loses its response":
            session.handle_error()
        else:
            session.handle_response(
                request, 0, session_id, list(wanted) if request.is_full else list(wanted)[:1], is_throttled=False
            )


def encoded(request: Request) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=request.session_id,
        session_epoch=request.epoch,
        topics=[
            FetchRequest.Topic(
                topic_id=one.topic_id or UUID(int=0),
                partitions=[
                    FetchRequest.Topic.Partition(
                        partition=one.partition, fetch_offset=one.offset, partition_max_bytes=one.max_bytes
                    )
                ],
            )
            for one in request.partitions
        ],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic_id=one.topic_id or UUID(int=0), partitions=[one.partition])
            for one in request.forgotten
        ],
    )
