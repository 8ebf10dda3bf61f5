"""Requests on a ready connection: order, timeouts, the end, encoding errors, damaged frames; for client and broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.errors import (
    ClosedError,
    ConfigurationError,
    DecodeError,
    DisconnectedError,
    EncodeError,
    RequestTimeoutError,
    TlsError,
    UnsupportedVersionError,
)
from kwire.protocol import ApiKey
from kwire.protocol.headers import encode_request, encode_response
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.session import (
    ConnectionBroken,
    ConnectionClosed,
    Event,
    HandshakeDone,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Sasl,
    SaslServer,
    Session,
    State,
)
from kwire.session.session import _CORRELATION_ID_MAX
from tests.session.pipe import Pipe, broken, metadata

NODE = "1 at db:9092"
APIS = {ApiKey.METADATA: MetadataRequest.VERSIONS, ApiKey.PRODUCE: ProduceRequest.VERSIONS}
EVERYTHING = MetadataRequest(topics=None)


def ready(**options: Any) -> Session:
    """A client on whose connection nothing has been sent yet."""
    client = Session.client(NODE, assume=APIS, **options)
    client.start(0.0)
    return client


def response(correlation_id: int, version: int = 13, node: int = 1) -> bytes:
    return b"".join(encode_response(metadata(node), version, correlation_id))


def tokens(events: list[Event]) -> list[Any]:
    return [event.token for event in events if isinstance(event, ResponseReceived | RequestFailed)]


class TestOrder:
    def test_rule_5_a_hundred_in_flight_complete_in_order(self) -> None:
        client = ready()
        for n in range(100):
            client.send(EVERYTHING, 0.5, token=n)
        assert client.in_flight == 100
        assert len(client.frames()) == 100
        events = [event for n in range(100) for event in client.receive(response(n), 1.0)]
        assert tokens(events) == list(range(100))
        first = events[0]
        assert isinstance(first, ResponseReceived)
        assert (first.request, first.version, first.sent_at) == (EVERYTHING, 13, 0.5)
        assert isinstance(first.response, MetadataResponse)
        assert client.in_flight == 0
        assert client.deadline() is None

    def test_rule_5_a_response_that_skips_a_request_breaks_the_connection(self) -> None:
        client = ready()
        client.send(EVERYTHING, 0.0, token="a")
        client.send(EVERYTHING, 0.0, token="b")
        client.frames()
        cause = broken(client.receive(response(1), 0.0))
        assert isinstance(cause, DecodeError)
        assert "correlation id 1, but the oldest request in flight has 0" in cause.message
        assert cause.where == {"broker": NODE, "api": "Metadata", "version": 13}
        assert tokens(client.closed(cause, 0.0)) == ["a", "b"]

    def test_a_response_without_a_request_breaks_the_connection(self) -> None:
        assert "without a request" in broken(ready().receive(response(0), 0.0)).message

    def test_a_response_that_cannot_be_decoded_breaks_the_connection(self) -> None:
        client = ready()
        client.send(EVERYTHING, 0.0, token="a")
        client.frames()
        for frame in (response(0) + b"\0", response(0)[:-1]):
            probe = ready()
            probe.send(EVERYTHING, 0.0, token="a")
            cause = broken(probe.receive(frame, 0.0))
            assert isinstance(cause, DecodeError)
            assert cause.where["version"] == 13
            assert tokens(probe.closed(cause, 0.0)) == ["a"]

    def test_a_broker_sends_responses_in_request_order(self) -> None:
        broker = Session.broker(apis=APIS)
        tags = []
        for n in range(4):
            frame = b"".join(encode_request(EVERYTHING, 13, n, "c"))
            (event,) = broker.receive(frame, 0.0)
            assert isinstance(event, RequestReceived)
            tags.append(event.tag)
        assert broker.in_flight == 4
        for place, sent in [(2, []), (1, []), (0, [0, 1, 2]), (3, [3])]:
            broker.respond(tags[place], metadata(place))
            assert [b"".join(parts) for parts in broker.frames()] == [response(n, node=n) for n in sent]
        with pytest.raises(RuntimeError, match="a second response"):
            broker.respond(tags[0], metadata())

    def test_responses_of_the_session_itself_keep_the_order(self) -> None:
        """ApiVersions after a slow request."""
        pipe = Pipe(ready(), Session.broker(apis=APIS), respond=lambda request: None)
        pipe.client.send(EVERYTHING, 0.0)
        pipe.run()
        from kwire.protocol.messages.api_versions import ApiVersionsRequest

        for version in (0, 99):
            frame = b"".join(encode_request(ApiVersionsRequest(), 0, 7, "c"))
            frame = frame[:2] + version.to_bytes(2, "big") + frame[4:] + (b"" if version == 0 else b"\0unreadable")
            assert pipe.broker.receive(frame, 0.0) == []
        assert not pipe.broker.has_frames
        pipe.broker.respond(pipe.requests[0].tag, metadata())
        assert len(pipe.broker.frames()) == 3

    def test_correlation_ids_wrap_around(self) -> None:
        client = ready()
        client._next_id = _CORRELATION_ID_MAX
        for token in "ab":
            client.send(EVERYTHING, 0.0, token=token)
        events = client.receive(response(_CORRELATION_ID_MAX), 0.0) + client.receive(response(0), 0.0)
        assert tokens(events) == ["a", "b"]


class TestWaiting:
    def test_requests_wait_for_the_handshake(self) -> None:
        client = Session.client(NODE)
        for n in range(3):
            client.send(EVERYTHING, 0.0, token=n)
        pipe = Pipe(client, Session.broker(apis=APIS))
        assert not client.has_frames
        assert client.in_flight == 3
        client.start(0.0)
        events = pipe.run()
        assert isinstance(events[0], HandshakeDone)
        assert tokens(events) == [0, 1, 2]

    def test_requests_wait_beyond_max_in_flight(self) -> None:
        client = ready(max_in_flight=2)
        for n in range(5):
            client.send(EVERYTHING, 0.0, token=n)
        assert len(client.frames()) == 2
        assert tokens(client.receive(response(0), 0.0)) == [0]
        assert len(client.frames()) == 1
        client.send(EVERYTHING, 0.0, token=5)  # does not overtake
        assert client.in_flight == 5
        for n in range(1, 6):
            assert tokens(client.receive(response(n), 0.0)) == [n]
            client.frames()


class TestTimeouts:
    def test_a_timeout_in_flight_breaks_the_connection(self) -> None:
        client = ready(request_timeout_ms=30_000)
        client.send(EVERYTHING, 0.0, token="patient")
        client.send(EVERYTHING, 1.0, token="hasty", timeout_ms=2_000)
        client.frames()
        assert client.deadline() == 3.0
        assert client.expire(2.9) == []
        cause = broken(client.expire(3.0))
        assert isinstance(cause, RequestTimeoutError)
        assert "no response in 2,000 ms" in cause.message
        assert cause.where["broker"] == NODE
        assert client.receive(response(0), 3.0) == []  # too late now
        patient, hasty, closed = client.closed(cause, 3.0)
        assert isinstance(patient, RequestFailed)
        assert isinstance(hasty, RequestFailed)
        assert (patient.token, hasty.token) == ("patient", "hasty")
        assert isinstance(patient.error, DisconnectedError)
        assert patient.error.__cause__ is cause
        assert isinstance(hasty.error, RequestTimeoutError)
        assert patient.was_sent
        assert hasty.was_sent
        assert isinstance(closed, ConnectionClosed)

    def test_a_timeout_of_a_waiting_request_fails_it_alone(self) -> None:
        client = ready(max_in_flight=1)
        client.send(EVERYTHING, 0.0, token="sent")
        client.send(EVERYTHING, 0.0, token="waiting", timeout_ms=1000)
        client.send(EVERYTHING, 0.0, token="patient")
        client.frames()
        (failed,) = client.expire(1.0)
        assert isinstance(failed, RequestFailed)
        assert (failed.token, failed.was_sent) == ("waiting", False)
        assert "could not be sent in 1,000 ms" in failed.error.message
        assert tokens(client.receive(response(0), 1.0)) == ["sent"]
        client.frames()
        assert tokens(client.receive(response(1), 1.0)) == ["patient"]


class TestTheEnd:
    def test_closing_fails_every_request_once_in_order(self) -> None:
        client = ready(max_in_flight=2)
        for n in range(4):
            client.send(EVERYTHING, 0.0, token=n)
        client.frames()
        cause = DisconnectedError("the peer reset the connection", broker=NODE)
        events = client.closed(cause, 0.0)
        assert tokens(events) == [0, 1, 2, 3]
        assert [event.was_sent for event in events if isinstance(event, RequestFailed)] == [True, True, False, False]
        errors = [event.error for event in events if isinstance(event, RequestFailed)]
        assert len({id(error) for error in errors}) == 4
        assert all(type(error) is DisconnectedError and error.__cause__ is cause for error in errors)
        assert errors[0].where == {"broker": NODE, "api": "Metadata", "version": 13}
        assert client.closed(cause, 0.0) == []
        assert client.receive(response(0), 0.0) == []
        assert client.expire(1e9) == []
        assert client.deadline() is None
        assert client.in_flight == 0
        assert not client.is_ready

    def test_failed_requests_have_the_class_of_the_cause(self) -> None:
        client = Session.client(NODE)
        client.send(EVERYTHING, 0.0)
        failed, closed = client.closed(TlsError("the certificate has expired", remedy="renew it"), 0.0)
        assert isinstance(failed, RequestFailed)
        assert type(failed.error) is TlsError
        assert failed.error.remedy == "renew it"
        assert closed == ConnectionClosed(closed.cause, died_during_negotiation=False)  # type: ignore[union-attr]

    def test_sending_after_the_end_raises_closed_error(self) -> None:
        client = ready()
        client.closed(DisconnectedError("gone"), 0.0)
        with pytest.raises(ClosedError):
            client.send(EVERYTHING, 0.0)

    def test_a_request_without_response_is_complete_once_its_frame_is_taken(self) -> None:
        produce = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
        client = ready()
        client.send(produce, 0.0, token="gone", expects_response=False)
        client.send(EVERYTHING, 0.0, token="expected")
        assert client.in_flight == 1
        assert len(client.frames()) == 2
        assert tokens(client.receive(response(1), 0.0)) == ["expected"]
        client.send(produce, 0.0, token="unsent", expects_response=False)
        assert tokens(client.closed(DisconnectedError("gone"), 0.0)) == ["unsent"]

    def test_a_broker_sends_no_response_to_it(self) -> None:
        pipe = Pipe(ready(), Session.broker(apis=APIS), respond=lambda request: None)
        pipe.client.send(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 0.0, expects_response=False)
        pipe.client.send(EVERYTHING, 0.0, token="expected")
        pipe.run()
        produce, expected = pipe.requests
        pipe.broker.respond(expected.tag, metadata())
        assert not pipe.broker.has_frames
        pipe.broker.respond(produce.tag, None)
        assert tokens(pipe.run()) == ["expected"]

    def test_responses_after_the_end_are_dropped(self) -> None:
        pipe = Pipe(ready(), Session.broker(apis=APIS), respond=lambda request: None)
        pipe.client.send(EVERYTHING, 0.0)
        pipe.run()
        (event,) = pipe.broker.closed(DisconnectedError("gone"), 0.0)
        assert event == ConnectionClosed(event.cause, died_during_negotiation=False)  # type: ignore[union-attr]
        pipe.broker.respond(pipe.requests[0].tag, metadata())
        assert pipe.broker.frames() == []

    @pytest.mark.parametrize(
        ("key", "version", "message"),
        [(3, 99, "not served (v0 to v13)"), (1, 4, "not served (none)")],
    )
    def test_a_request_that_is_not_served_breaks_the_connection(self, key: int, version: int, message: str) -> None:
        frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + bytes(20)
        cause = broken(Session.broker(apis=APIS).receive(frame, 0.0))
        assert isinstance(cause, UnsupportedVersionError)
        assert message in cause.message


class TestArguments:
    """The call that gets a wrong argument refuses it: later the error would come out of `receive`, with no event."""

    @pytest.mark.parametrize("begin", [ready, lambda: Session.client(NODE)], ids=["ready", "waiting"])
    @pytest.mark.parametrize(
        ("request_", "options", "error", "message"),
        [
            (MetadataRequest, {}, TypeError, "request is <class .*: give a request, such as"),
            (None, {}, TypeError, "request is None"),
            (metadata(1), {}, TypeError, "request is MetadataResponse"),
            (EVERYTHING, {"version": "1"}, TypeError, "version is '1': give an int, or None"),
            (EVERYTHING, {"version": 1.0}, TypeError, "version is 1.0"),
            (EVERYTHING, {"timeout_ms": float("nan")}, ConfigurationError, "timeout_ms is nan: give milliseconds"),
            (EVERYTHING, {"timeout_ms": "5"}, ConfigurationError, "timeout_ms is '5'"),
        ],
    )
    def test_of_send(
        self, begin: Callable[[], Session], request_: Any, options: Any, error: type[Exception], message: str
    ) -> None:
        client = begin()
        with pytest.raises(error, match=message):
            client.send(request_, 0.0, **options)
        assert (client.in_flight, client.has_frames) == (0, False)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"request_timeout_ms": None}, "request_timeout_ms is None: give milliseconds"),
            ({"request_timeout_ms": float("nan")}, "request_timeout_ms is nan"),
            ({"max_in_flight": 0}, "max_in_flight is 0: give a whole number above 0"),
            ({"max_in_flight": None}, "max_in_flight is None"),
            ({"sasl": ("PLAIN", "alice", "secret")}, "sasl is tuple: give a kwire.Sasl"),
            ({"assume": {"3": range(2)}}, r"assume has '3': range\(0, 2\): give an ApiKey and a range of versions"),
        ],
    )
    def test_of_a_client(self, options: Any, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            Session.client(NODE, **options)

    @pytest.mark.parametrize("apis", [None, [3], {3: 12}, {3: (0, 12)}, {"Metadata": range(13)}])
    def test_of_a_broker(self, apis: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"apis (is|has) .*: give"):
            Session.broker(apis=apis)

    def test_of_respond(self) -> None:
        broker = Session.broker(apis=APIS)
        (event,) = broker.receive(b"".join(encode_request(EVERYTHING, 12, 1)), 0.0)
        assert isinstance(event, RequestReceived)
        wrong: list[Any] = [ProduceResponse(responses=[]), EVERYTHING, MetadataResponse, "text"]
        for response_ in wrong:
            with pytest.raises(TypeError, match="is no response to Metadata"):
                broker.respond(event.tag, response_)
        with pytest.raises(TypeError, match=r"tag is RequestReceived.*: give the tag of a RequestReceived event"):
            broker.respond(event, metadata(1))
        assert not broker.has_frames
        broker.respond(event.tag, metadata(1))
        assert broker.has_frames

    @pytest.mark.parametrize("cause", [ConnectionResetError(104, "reset"), None, "the peer is gone"])
    def test_of_closed(self, cause: Any) -> None:
        client = ready()
        client.send(EVERYTHING, 0.0, token="t")
        with pytest.raises(TypeError, match="give a KwireError, such as DisconnectedError"):
            client.closed(cause, 1.0)
        assert tokens(client.closed(DisconnectedError("gone"), 1.0)) == ["t"]


class TestEncodingErrors:
    BAD = MetadataRequest(topics=[MetadataRequest.Topic(name="x" * 70_000)])

    def test_send_raises_if_the_request_is_sent_at_once(self) -> None:
        client = ready()
        with pytest.raises(EncodeError):
            client.send(self.BAD, 0.0, version=1)
        client.send(EVERYTHING, 0.0, token="fine")
        assert tokens(client.receive(response(0), 0.0)) == ["fine"]  # no correlation id was lost

    def test_an_event_reports_it_if_the_request_had_to_wait(self) -> None:
        client = Session.client(NODE)
        client.send(self.BAD, 0.0, version=1, token="bad")
        client.send(EVERYTHING, 0.0, token="fine")
        pipe = Pipe(client, Session.broker(apis=APIS))
        client.start(0.0)
        events = pipe.run()
        assert tokens(events) == ["bad", "fine"]
        bad = next(event for event in events if isinstance(event, RequestFailed))
        assert isinstance(bad.error, EncodeError)
        assert not bad.was_sent

    def test_an_api_that_the_broker_lacks(self) -> None:
        client = Session.client(NODE, assume={ApiKey.METADATA: range(2)})
        client.start(0.0)
        with pytest.raises(UnsupportedVersionError, match="does not have this API"):
            client.send(ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), 0.0)

    def test_records_are_not_copied_into_the_frame(self) -> None:
        records = bytes(100_000)
        partition = ProduceRequest.Topic.Partition(index=0, records=records)
        topic = ProduceRequest.Topic(name="t", partition_data=[partition])
        client = ready()
        client.send(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 0.0, version=9)
        assert any(part is records for part in client.frames()[0])


STAGES = 5  # frames each way until the first response: ApiVersions, SaslHandshake, two of SCRAM, Metadata


def pair() -> tuple[Session, Session]:
    client = Session.client("1 at db:9092", sasl=Sasl("SCRAM-SHA-256", "alice", "secret"))
    broker = Session.broker(apis=APIS, sasl=SaslServer({"alice": "secret"}))
    client.send(MetadataRequest(topics=[]), 0.0)
    client.start(0.0)
    return client, broker


def forward(client: Session, broker: Session) -> bytes:
    """Pass one frame to the broker; return the frame of its response."""
    (parts,) = client.frames()
    for event in broker.receive(b"".join(parts), 0.0):
        broker.respond(event.tag, metadata())  # type: ignore[union-attr]
    (parts,) = broker.frames()
    return b"".join(parts)


@st.composite
def damages(draw: st.DrawFn) -> tuple[int, int, bytes]:
    """(bytes to keep at the front, bytes to drop, bytes to insert there)"""
    return draw(st.integers(0, 200)), draw(st.integers(0, 50)), draw(st.binary(max_size=20))


def damaged(frame: bytes, damage: tuple[int, int, bytes]) -> bytes:
    keep, drop, insert = damage
    return frame[:keep] + insert + frame[keep + drop :]


def survives(session: Session, frame: bytes) -> None:
    events = session.receive(frame, 0.0)
    assert (session.state is State.BROKEN) == any(isinstance(event, ConnectionBroken) for event in events)
    session.frames()
    session.deadline()


@pytest.mark.slow
@settings(max_examples=75, deadline=None)
@given(damages())
@pytest.mark.parametrize("stage", range(STAGES))
def test_a_client_survives_damaged_frames(stage: int, damage: tuple[int, int, bytes]) -> None:
    client, broker = pair()
    for _ in range(stage):
        client.receive(forward(client, broker), 0.0)
    survives(client, damaged(forward(client, broker), damage))


@pytest.mark.slow
@settings(max_examples=75, deadline=None)
@given(damages())
@pytest.mark.parametrize("stage", range(STAGES))
def test_a_broker_survives_damaged_frames(stage: int, damage: tuple[int, int, bytes]) -> None:
    client, broker = pair()
    for _ in range(stage):
        client.receive(forward(client, broker), 0.0)
    (parts,) = client.frames()
    survives(broker, damaged(b"".join(parts), damage))
