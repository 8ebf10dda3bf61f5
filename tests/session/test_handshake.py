"""The handshake with brokers of every age: versions, authentication, states, and its failures."""

from __future__ import annotations

import doctest
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import kwire.session.sasl.client
import kwire.session.versions
from kwire.errors import (
    AuthenticationError,
    BrokerError,
    DecodeError,
    DisconnectedError,
    EncodeError,
    ErrorCode,
    KwireError,
    LoginError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kwire.protocol import ApiKey
from kwire.protocol.headers import decode_request, encode_request, encode_response
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kwire.session import (
    ConnectionClosed,
    HandshakeDone,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Sasl,
    SaslServer,
    Session,
    State,
    TrailingBytes,
)
from kwire.session.events import TRANSITIONS, transition
from kwire.session.handshake import BrokerHandshake
from kwire.session.sasl import PASSWORD_MECHANISMS, Deferred, SaslClient
from kwire.session.sasl.client import PlainClient
from kwire.session.sasl.exchange import LaterClient
from kwire.session.sasl.scram import ITERATIONS_AT_ONCE
from kwire.session.versions import BROKERS_BEFORE_API_VERSIONS, common, highest_common, show
from tests.session.pipe import Pipe, broken, byte_by_byte, cut_at, whole

APIS: Mapping[int, range] = {ApiKey.METADATA: MetadataRequest.VERSIONS}
USERS = {"alice": "secret"}
NODE = "1 at db:9092"


def make_pipe(
    *,
    sasl: str | None = None,
    password: str = "secret",
    apis: Mapping[int, range] = APIS,
    serves_sasl: bool | None = None,
) -> Pipe:
    credentials = Sasl(sasl, "alice", password) if sasl else None
    server = SaslServer(USERS) if (serves_sasl if serves_sasl is not None else sasl) else None
    return Pipe(Session.client(NODE, sasl=credentials), Session.broker(apis=apis, sasl=server))


def sent_requests(session: Session) -> list[tuple[str, int]]:
    """Return (request, version) of each frame that the client sends."""
    headers = [decode_request(b"".join(parts)) for parts in session.frames()]
    return [(type(request).__name__.removesuffix("Request"), header.api_version) for header, request in headers]


class TestVersions:
    @pytest.mark.parametrize("highest", range(len(ApiVersionsRequest.VERSIONS)))
    def test_brokers_since_2_4_name_their_range(self, highest: int) -> None:
        pipe = make_pipe(apis={**APIS, ApiKey.API_VERSIONS: range(highest + 1)})
        pipe.client.start(0.0)
        events = pipe.run()
        assert len(events) == 1
        assert isinstance(events[0], HandshakeDone)
        assert events[0].versions[ApiKey.METADATA] == MetadataRequest.VERSIONS
        assert pipe.client.is_ready
        assert pipe.client.state is State.READY

    @pytest.mark.parametrize("highest", range(len(ApiVersionsRequest.VERSIONS)))
    def test_the_features_of_the_cluster_are_negotiated(self, highest: int) -> None:
        """KIP-584, from v3 on. A level of 0 is none; v4 and later list features at level 0."""
        apis = {**APIS, ApiKey.API_VERSIONS: range(highest + 1)}
        features = {"transaction.version": (1, 2), "unused": (0, 3)}
        pipe = Pipe(Session.client(NODE), Session.broker(apis=apis, features=features))
        pipe.client.start(0.0)
        pipe.run()
        assert pipe.client.features == ({"transaction.version": 1} if highest >= 3 else {})
        request = ApiVersionsRequest(client_software_name="kwire", client_software_version="1")
        result = BrokerHandshake(apis, None, "c", features).api_versions(request, highest)
        supported = [(one.name, one.min_version, one.max_version) for one in result.supported_features]
        assert supported == ([("transaction.version", 0, 2), ("unused", 0, 3)] if highest >= 4 else [])

    def test_a_broker_that_plays_one_before_0_10_closes_on_api_versions(self) -> None:
        pipe = make_pipe(apis={**APIS, ApiKey.API_VERSIONS: range(0)})
        pipe.client.start(0.0)
        (frame,) = pipe.client.frames()
        assert isinstance(broken(pipe.broker.receive(b"".join(frame), 0.0)), UnsupportedVersionError)

    @pytest.mark.parametrize(
        ("begins_with", "highest", "asked"),
        [
            (None, 5, [5]),
            (None, 4, [5, 4]),
            (4, 4, [4]),
            (4, 3, [4, 3]),  # rolled back
            (3, 5, [3, 5]),  # upgraded
            (3, 9, [3, 5]),
        ],
    )
    def test_the_version_that_the_broker_had_before_is_asked_first(
        self, begins_with: int | None, highest: int, asked: list[int]
    ) -> None:
        """The handshake always ends in the highest common version, whatever it began with."""
        client = Session.client(NODE, api_versions=begins_with)
        broker = Session.broker(apis={**APIS, ApiKey.API_VERSIONS: range(highest + 1)})
        client.start(0.0)
        sent = []
        while client.has_frames:
            (parts,) = client.frames()
            sent.append(decode_request(b"".join(parts))[0].api_version)
            broker.receive(b"".join(parts), 0.0)
            for frame in broker.frames():
                client.receive(b"".join(frame), 0.0)
        assert sent == asked
        assert client.is_ready
        assert client.api_versions == asked[-1]

    def test_a_broker_that_rejects_what_it_offers_is_not_asked_for_ever(self) -> None:
        client = Session.client(NODE, api_versions=3)
        client.start(0.0)
        assert sent_requests(client) == [("ApiVersions", 3)]
        offer = [ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=5)]
        client.receive(b"".join(encode_response(ApiVersionsResponse(error_code=0, api_keys=offer), 3, 0)), 0.0)
        assert sent_requests(client) == [("ApiVersions", 5)]
        rejected = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=offer)
        client.receive(b"".join(encode_response(rejected, 0, 1)), 0.0)
        assert sent_requests(client) == [("ApiVersions", 4)]
        client.receive(b"".join(encode_response(ApiVersionsResponse(error_code=0, api_keys=offer), 4, 2)), 0.0)
        assert client.is_ready
        assert client.api_versions == 4

    def test_brokers_before_2_4_name_no_range(self) -> None:
        client = Session.client(NODE)
        client.start(0.0)
        assert sent_requests(client) == [("ApiVersions", 5)]
        rejected = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
        assert client.receive(b"".join(encode_response(rejected, 0, 0)), 0.0) == []
        assert sent_requests(client) == [("ApiVersions", 0)]
        metadata = ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=1)
        response = ApiVersionsResponse(error_code=0, api_keys=[metadata])
        assert client.receive(b"".join(encode_response(response, 0, 1)), 0.0) == [HandshakeDone({3: range(2)})]
        assert client.version(MetadataRequest) == 1

    @pytest.mark.parametrize(
        ("offered", "error", "message"),
        [
            ([(18, 6, 9)], UnsupportedVersionError, "the broker has v6 to v9, we have v0 to v5"),
            ([(18, 5, 5)], UnsupportedVersionError, "no version in common"),  # the version that it has just rejected
            ([(18, 4, 2)], UnsupportedVersionError, "no version in common: the broker has none"),
        ],
    )
    def test_brokers_without_a_common_version(
        self, offered: list[tuple[int, int, int]], error: type[KwireError], message: str
    ) -> None:
        client = Session.client(NODE)
        client.start(0.0)
        client.frames()
        keys = [ApiVersionsResponse.ApiVersion(api_key=k, min_version=a, max_version=b) for k, a, b in offered]
        rejected = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)
        cause = broken(client.receive(b"".join(encode_response(rejected, 0, 0)), 0.0))
        assert type(cause) is error
        assert message in cause.message
        assert cause.where["broker"] == NODE

    def test_a_broker_that_rejects_every_version_breaks_the_connection(self) -> None:
        client = Session.client(NODE)
        client.start(0.0)
        rejected = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
        assert client.receive(b"".join(encode_response(rejected, 0, 0)), 0.0) == []
        assert (
            "rejected ApiVersions v0" in broken(client.receive(b"".join(encode_response(rejected, 0, 1)), 0.0)).message
        )

    def test_another_error_of_api_versions_is_reported(self) -> None:
        client = Session.client(NODE, software=("k wire", "!"))
        pipe = Pipe(client, Session.broker(apis={**APIS, ApiKey.API_VERSIONS: range(4)}))
        client.start(0.0)
        cause = broken(pipe.run())
        assert isinstance(cause, BrokerError)
        assert cause.name == "INVALID_REQUEST"

    @pytest.mark.parametrize("name", ["0.8.2", "0.9"])
    def test_assumed_versions(self, name: str) -> None:
        client = Session.client(NODE, assume=BROKERS_BEFORE_API_VERSIONS[name])
        client.send(MetadataRequest(topics=[]), 0.0)
        events = client.start(0.0)
        assert [type(event) for event in events] == [HandshakeDone]
        assert sent_requests(client) == [("Metadata", 0)]
        assert client.version(ProduceRequest) == (0 if name == "0.8.2" else 1)

    @pytest.mark.parametrize(
        ("key", "remedy"),
        [
            (ApiKey.CREATE_PARTITIONS, "it needs Kafka 1.0"),
            (ApiKey.CREATE_ACLS, "it needs Kafka 0.11"),  # with KRaft not before 3.0
            (ApiKey.UNREGISTER_BROKER, "it needs Kafka 3.3 with KRaft"),  # 2.8 had it for a while
            (ApiKey.UNREGISTER_CONTROLLER, "it needs Kafka 4.4"),
            (ApiKey.LEADER_AND_ISR, "the newest releases of Kafka do not have it"),
        ],
    )
    def test_an_api_that_the_broker_lacks_names_the_release_that_has_it(self, key: ApiKey, remedy: str) -> None:
        with pytest.raises(UnsupportedVersionError) as caught:
            highest_common(key, range(1), {}, broker=NODE)
        assert caught.value.remedy == remedy

    def test_the_highest_common_version(self) -> None:
        pipe = make_pipe(apis={ApiKey.METADATA: range(2, 9), ApiKey.PRODUCE: range(3, 4)})
        pipe.client.start(0.0)
        pipe.run()
        assert pipe.client.version(MetadataRequest) == 8
        assert pipe.client.version(MetadataRequest, at_most=4) == 4
        with pytest.raises(UnsupportedVersionError, match="the broker has v2 to v8, we can use v0 to v1"):
            pipe.client.version(MetadataRequest, at_most=1)
        with pytest.raises(UnsupportedVersionError, match="does not have this API"):
            highest_common(ApiKey.DESCRIBE_CLUSTER, range(1), {}, broker=NODE)

    def test_before_the_handshake_there_is_no_version(self) -> None:
        with pytest.raises(UnsupportedVersionError, match="no versions are agreed yet"):
            Session.client(NODE).version(MetadataRequest)

    def test_doctests_of_versions(self) -> None:
        assert doctest.testmod(kwire.session.versions).failed == 0
        assert doctest.testmod(kwire.session.sasl.client).failed == 0
        assert show(common(range(3), range(5, 9))) == "none"


class TestBrokersThatClose:
    """Before 0.10 a broker closed the connection on a request that it did not know."""

    def test_a_close_on_the_first_frame_may_mean_a_broker_before_0_10(self) -> None:
        client = Session.client(NODE)
        client.send(MetadataRequest(topics=[]), 0.0, token="t")
        client.start(0.0)
        client.frames()
        failed, closed = client.closed(DisconnectedError("closed"), 0.0)
        assert failed.token == "t"  # type: ignore[union-attr]
        assert not failed.was_sent  # type: ignore[union-attr]
        assert closed == ConnectionClosed(closed.cause, died_during_negotiation=True)  # type: ignore[union-attr]

    def test_a_close_after_the_handshake_does_not(self) -> None:
        pipe = make_pipe()
        pipe.client.start(0.0)
        pipe.run()
        assert pipe.client.closed(DisconnectedError("closed"), 0.0)[-1] == ConnectionClosed(_any, False)

    def test_a_close_after_a_response_does_not(self) -> None:
        client = Session.client(NODE)
        client.start(0.0)
        rejected = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
        client.receive(b"".join(encode_response(rejected, 0, 0)), 0.0)
        assert client.closed(DisconnectedError("closed"), 0.0)[-1] == ConnectionClosed(_any, False)

    def test_a_timeout_does_not(self) -> None:
        client = Session.client(NODE, request_timeout_ms=5000)
        client.start(10.0)
        assert client.deadline() == 15.0
        assert client.expire(14.9) == []
        cause = broken(client.expire(15.0))
        assert isinstance(cause, RequestTimeoutError)
        assert "accepted the connection but did not respond in 5,000 ms" in cause.message
        assert "check that the port is a Kafka listener" in str(cause.remedy)
        assert client.closed(cause, 15.0)[-1] == ConnectionClosed(cause, died_during_negotiation=False)

    def test_a_listener_with_sasl_closes_on_the_first_request(self) -> None:
        pipe = make_pipe(serves_sasl=True)
        pipe.client.send(MetadataRequest(topics=[]), 0.0)
        pipe.client.start(0.0)
        assert [type(event) for event in pipe.run()] == [HandshakeDone]
        result = broken(pipe.broker_events)
        assert isinstance(result, AuthenticationError)
        assert "sent Metadata before authentication" in result.message
        failed, _ = pipe.client.closed(DisconnectedError("closed"), 0.0)
        assert "a listener that requires SASL does so every time" in str(failed.error)  # type: ignore[union-attr]

    @pytest.mark.parametrize("mechanism", [None, "PLAIN"])
    def test_what_this_side_closes_says_nothing_about_the_broker(self, mechanism: str | None) -> None:
        pipe = make_pipe(sasl=mechanism)
        pipe.client.start(0.0)
        cause = DisconnectedError("the client was closed")
        assert pipe.client.closed(cause, 0.0, is_by_peer=False) == [ConnectionClosed(cause, False)]

    def test_this_side_closes_after_the_first_request(self) -> None:
        pipe = make_pipe(serves_sasl=True)
        pipe.client.send(MetadataRequest(topics=[]), 0.0)
        pipe.client.start(0.0)
        pipe.run()
        failed, _ = pipe.client.closed(DisconnectedError("the client was closed"), 0.0, is_by_peer=False)
        assert failed.error.remedy is None  # type: ignore[union-attr]


class _Any:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


_any: DisconnectedError = _Any()  # type: ignore[assignment]

# The longest frame of any handshake is shorter than this.
LONGEST_FRAME = 160


class TestSasl:
    @pytest.mark.slow
    @pytest.mark.parametrize("cut", [whole, byte_by_byte, *map(cut_at, range(LONGEST_FRAME))])
    @pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
    def test_the_right_password_authenticates(self, mechanism: str, cut: object) -> None:
        pipe = make_pipe(sasl=mechanism)
        pipe.cut = cut  # type: ignore[assignment]
        pipe.client.send(MetadataRequest(topics=[]), 0.0)
        pipe.client.start(0.0)
        assert [type(event) for event in pipe.run()] == [HandshakeDone, ResponseReceived]
        assert pipe.broker.username == "alice"
        assert pipe.client.state is pipe.broker.state is State.READY

    @pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
    def test_a_wrong_password_is_rejected(self, mechanism: str) -> None:
        pipe = make_pipe(sasl=mechanism, password="wrong-password")
        pipe.client.send(MetadataRequest(topics=[]), 0.0, token="t")
        pipe.client.start(0.0)
        cause = broken(pipe.run())
        assert type(cause) is AuthenticationError
        assert f"the broker rejected SASL {mechanism} for user 'alice'" in cause.message
        assert "check user name and password" in str(cause.remedy)
        assert "wrong-password" not in str(cause)
        assert cause.where["broker"] == NODE
        assert isinstance(broken(pipe.broker_events), AuthenticationError)
        failed, _ = pipe.client.closed(cause, 0.0)
        assert type(failed.error) is AuthenticationError  # type: ignore[union-attr]
        assert pipe.requests == []

    def test_what_a_broker_says_cannot_forge_a_log(self) -> None:
        client, _ = sasl_client_at_authentication("PLAIN")
        response = SaslAuthenticateResponse(
            error_code=58, error_message="no\n2026-01-01 ERROR \x1b[2Jforged" + "x" * 30_000, auth_bytes=b""
        )
        cause = broken(client.receive(b"".join(encode_response(response, 2, 2)), 0.0))
        assert "no 2026-01-01 ERROR [2Jforged" in cause.message
        assert cause.message.isprintable()
        assert len(cause.message) < 500

    def test_a_user_name_that_kafka_cannot_read_in_scram(self) -> None:
        client = Session.client(NODE, sasl=Sasl("SCRAM-SHA-256", "zo\u00eb", "secret"))
        pipe = Pipe(client, Session.broker(apis=APIS, sasl=SaslServer({"zo\u00eb": "secret"})))
        client.start(0.0)
        cause = broken(pipe.run())
        assert "in ASCII only" in str(cause.remedy)

    def test_an_unsupported_mechanism_names_those_of_the_broker(self) -> None:
        pipe = make_pipe(sasl="SCRAM-SHA-512")
        pipe.broker = Session.broker(apis=APIS, sasl=SaslServer(USERS, mechanisms=["PLAIN", "SCRAM-SHA-256"]))
        pipe = Pipe(pipe.client, pipe.broker)
        pipe.client.start(0.0)
        cause = broken(pipe.run())
        assert type(cause) is AuthenticationError
        assert "does not offer SASL SCRAM-SHA-512; it offers PLAIN, SCRAM-SHA-256" in cause.message
        assert "requested mechanism 'SCRAM-SHA-512'" in broken(pipe.broker_events).message

    def test_a_listener_without_sasl(self) -> None:
        pipe = make_pipe(sasl="PLAIN", serves_sasl=False)
        pipe.client.start(0.0)
        assert "does not use SASL, and PLAIN is configured" in broken(pipe.run()).message

    def test_a_broker_before_0_10(self) -> None:
        client = Session.client(NODE, sasl=Sasl("PLAIN", "alice", "x"), assume=BROKERS_BEFORE_API_VERSIONS["0.9"])
        assert "the broker does not support SASL PLAIN" in broken(client.start(0.0)).message

    @pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
    @pytest.mark.parametrize("handshake", [range(1), range(2)])
    def test_tokens_without_headers_for_brokers_before_1_0(self, mechanism: str, handshake: range) -> None:
        old = {**APIS, ApiKey.SASL_HANDSHAKE: handshake, ApiKey.SASL_AUTHENTICATE: range(0)}
        pipe = make_pipe(sasl=mechanism, apis=old)
        pipe.client.send(MetadataRequest(topics=[]), 0.0)
        pipe.client.start(0.0)
        assert [type(event) for event in pipe.run()] == [HandshakeDone, ResponseReceived]
        assert pipe.broker.username == "alice"

    @pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
    def test_a_rejected_token_without_header_closes_the_connection(self, mechanism: str) -> None:
        old = {**APIS, ApiKey.SASL_HANDSHAKE: range(1), ApiKey.SASL_AUTHENTICATE: range(0)}
        pipe = make_pipe(sasl=mechanism, password="wrong", apis=old)
        pipe.client.start(0.0)
        assert pipe.run() == []
        assert isinstance(broken(pipe.broker_events), AuthenticationError)
        assert not pipe.broker.has_frames
        (closed,) = pipe.client.closed(DisconnectedError("the peer closed the connection"), 0.0)
        assert isinstance(closed, ConnectionClosed)
        assert type(closed.cause) is AuthenticationError
        assert f"closed the connection over SASL {mechanism} for user 'alice'" in closed.cause.message

    def test_plain_has_one_token_whatever_the_response(self) -> None:
        client, _ = sasl_client_at_authentication("PLAIN")
        response = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"more?")
        client.receive(b"".join(encode_response(response, 2, 2)), 0.0)
        assert client.state is State.READY
        assert not client.has_frames

    def test_another_error_of_sasl_handshake_is_reported(self) -> None:
        client = Session.client(NODE, sasl=Sasl("PLAIN", "alice", "secret"), assume={17: range(2), 36: range(3)})
        client.start(0.0)
        rejected = SaslHandshakeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, mechanisms=[])
        cause = broken(client.receive(b"".join(encode_response(rejected, 1, 0)), 0.0))
        assert type(cause) is AuthenticationError
        assert "rejected SASL PLAIN: CLUSTER_AUTHORIZATION_FAILED" in cause.message

    def test_a_second_sasl_handshake_is_rejected(self) -> None:
        broker = Session.broker(apis=APIS, sasl=SaslServer(USERS))
        frame = b"".join(encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 0, "c"))
        assert broker.receive(frame, 0.0) == []
        assert "SaslHandshake twice" in broken(broker.receive(frame, 0.0)).message

    @pytest.mark.parametrize("password", ["secret", "wrong"])
    @pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
    def test_who_obtained_the_credentials_is_told_whether_the_broker_accepts_them(
        self, mechanism: str, password: str
    ) -> None:
        """A refusal is an error code, in most mechanisms: no challenge says it."""
        judged: list[bool] = []
        sasl = Sasl(mechanism, "alice", password)

        class Obtaining(SlowLogin):
            def exchange(self, host: str) -> SaslClient:
                return LaterClient(lambda obtained: obtained(sasl.client(), judged.append))

        login: Any = Obtaining(mechanism)
        pipe = Pipe(Session.client(NODE, sasl=login), Session.broker(apis=APIS, sasl=SaslServer(USERS)))
        pipe.client.start(0.0)
        (step,) = pipe.run()
        assert isinstance(step, Deferred)
        step.begin(lambda message: pipe.client.resume(step, message, 0.0))
        pipe.run()
        assert judged == [password == "secret"]

    def test_a_broker_that_does_not_know_the_password_is_rejected(self) -> None:
        client, frame = sasl_client_at_authentication("SCRAM-SHA-256")
        nonce = bytes(frame).split(b"r=")[1].decode().strip("\0")
        first = SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=f"r={nonce}X,s=c2FsdA==,i=4096".encode()
        )
        assert client.receive(b"".join(encode_response(first, 2, 2)), 0.0) == []
        client.frames()
        final = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"v=AAAA")
        cause = broken(client.receive(b"".join(encode_response(final, 2, 3)), 0.0))
        assert type(cause) is AuthenticationError
        assert "could not prove that it knows the password" in cause.message
        assert "right broker" in str(cause.remedy)

    def test_requests_before_authentication_are_rejected(self) -> None:
        for first, message in [
            (SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), "SaslAuthenticate before SaslHandshake"),
            (MetadataRequest(topics=[]), "sent Metadata before authentication"),
        ]:
            client = Session.client(NODE, assume={36: range(3), 3: range(5)})
            pipe = Pipe(client, Session.broker(apis=APIS, sasl=SaslServer(USERS)))
            client.start(0.0)
            client.send(first, 0.0)
            pipe.run()
            assert message in broken(pipe.broker_events).message
            assert pipe.requests == []


def sasl_client_at_authentication(mechanism: str) -> tuple[Session, bytes]:
    """A client that has sent its first SASL message, and that frame."""
    client = Session.client(NODE, sasl=Sasl(mechanism, "alice", "secret"))
    client.start(0.0)
    keys = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=9) for key in (3, 17, 18, 36)]
    client.receive(b"".join(encode_response(ApiVersionsResponse(error_code=0, api_keys=keys), 5, 0)), 0.0)
    client.receive(b"".join(encode_response(SaslHandshakeResponse(error_code=0, mechanisms=[]), 1, 1)), 0.0)
    assert client.state is State.AUTHENTICATING
    return client, b"".join(client.frames()[-1])


class TestRenewal:
    """KIP-368: an authentication with a lifetime is renewed on the open connection."""

    def test_an_authentication_is_renewed_before_it_ends_and_no_request_is_lost(self) -> None:
        client, _ = sasl_client_at_authentication("PLAIN")
        response = SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=10_000
        )
        (ready,) = client.receive(b"".join(encode_response(response, 2, 2)), 5.0)  # the lifetime began at 0
        assert ready.session_lifetime_ms == 10_000  # type: ignore[union-attr]
        client.send(MetadataRequest(topics=[]), 8.0, token="before")
        assert client.deadline() == 9.0
        assert sent_requests(client) == [("Metadata", 9)]
        assert client.expire(9.0) == []
        client.send(MetadataRequest(topics=[]), 9.0, token="during")
        assert client.is_ready
        assert sent_requests(client) == [("SaslHandshake", 1)]

        from tests.session.pipe import metadata

        (received,) = client.receive(b"".join(encode_response(metadata(), 9, 3)), 9.0)
        assert received.token == "before"  # type: ignore[union-attr]
        client.receive(b"".join(encode_response(SaslHandshakeResponse(error_code=0, mechanisms=[]), 1, 4)), 9.0)
        assert sent_requests(client) == [("SaslAuthenticate", 2)]
        events = client.receive(b"".join(encode_response(response, 2, 5)), 10.0)
        assert [type(event) for event in events] == [HandshakeDone]
        assert sent_requests(client) == [("Metadata", 9)]
        assert client.deadline() == 18.0

    def test_the_time_is_between_85_and_95_percent(self) -> None:
        for chance, at in ((0.0, 8.5), (1.0, 9.5)):
            client = ready_client(
                SaslServer(USERS, session_lifetime_ms=10_000), chance=lambda chance=chance: chance
            ).client
            assert client.deadline() == pytest.approx(at)

    @pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
    def test_the_broker_renews_the_authentication(self, mechanism: str) -> None:
        pipe = ready_client(SaslServer(USERS, session_lifetime_ms=10_000), mechanism)
        pipe.client.send(MetadataRequest(topics=[]), 9.0)
        pipe.client.expire(9.0)
        pipe.client.send(MetadataRequest(topics=[]), 9.0)
        assert [type(event) for event in pipe.run(9.0)] == [ResponseReceived, HandshakeDone, ResponseReceived]
        pipe.client.send(MetadataRequest(topics=[]), 18.0)  # the new end is at 19
        assert [type(event) for event in pipe.run(18.0)] == [ResponseReceived]

    def test_a_request_after_the_end_is_cut_by_the_broker(self) -> None:
        pipe = ready_client(SaslServer(USERS, session_lifetime_ms=10_000))
        pipe.client.send(MetadataRequest(topics=[]), 10.0)
        pipe.run(10.0)
        assert "after the end of its authentication" in broken(pipe.broker_events).message

    def test_an_unused_connection_renews_before_its_next_request(self) -> None:
        pipe = ready_client(SaslServer(USERS, session_lifetime_ms=10_000))
        pipe.client.expire(9.0)
        assert pipe.run(9.0) == []
        assert pipe.client.deadline() is None
        pipe.client.send(MetadataRequest(topics=[]), 500.0)
        assert pipe.run(500.0) == []
        assert pipe.client.deadline() == 500.0
        pipe.client.expire(500.0)
        assert [type(event) for event in pipe.run(500.0)] == [HandshakeDone, ResponseReceived]

    def test_a_request_does_not_wait_for_a_renewal_that_failed_while_the_authentication_holds(self) -> None:
        pipe = ready_client(SaslServer(USERS, session_lifetime_ms=100_000), login=SlowLogin())
        pipe.client.expire(90.0)
        pipe.client.send(MetadataRequest(topics=[]), 92.0)
        (step,) = pipe.client.expire(92.0)
        assert pipe.run(92.0) == []
        assert pipe.client.resume(step, LoginError("busy", may_retry=True), 93.0) == []  # type: ignore[arg-type]
        assert [type(event) for event in pipe.run(93.0)] == [ResponseReceived]
        assert pipe.client.deadline() == 96.5
        assert [type(event) for event in pipe.client.expire(96.5)] == [Deferred]

    def test_an_overdue_request_is_not_sent_when_its_renewal_fails(self) -> None:
        """Both ends come together. Once written it broke the connection, with the requests behind it."""
        pipe = ready_client(SaslServer(USERS, session_lifetime_ms=1_000_000), login=SlowLogin())
        pipe.client.expire(900.0)
        pipe.client.send(MetadataRequest(topics=[]), 902.0, token="first")
        pipe.client.expire(902.0)
        pipe.client.send(MetadataRequest(topics=[]), 931.0, token="second")
        (failed,) = pipe.client.expire(932.0)
        assert isinstance(failed, RequestFailed)
        assert (failed.token, failed.was_sent, type(failed.error)) == ("first", False, RequestTimeoutError)
        assert failed.error.message == "could not be sent in 30,000 ms: the connection was logging in"
        assert [event.token for event in pipe.run(932.0)] == ["second"]  # type: ignore[union-attr]
        assert pipe.client.expire(932.1) == []

    def test_a_request_that_a_login_keeps_waiting_says_so(self) -> None:
        pipe = renewal_with_a_slow_proof()
        pipe.client.send(MetadataRequest(topics=[]), 901.0, timeout_ms=5_000)
        (failed,) = pipe.client.expire(906.0)
        assert isinstance(failed, RequestFailed)
        assert failed.error.message == "could not be sent in 5,000 ms: the connection was logging in"
        pipe.client.send(MetadataRequest(topics=[]), 906.0, timeout_ms=1_000, token="late")
        pipe.client.resume(pipe.client_events[-1], slow_proof(pipe), 908.0)  # type: ignore[arg-type]
        events = pipe.run(908.0)
        assert [type(event) for event in events] == [HandshakeDone, RequestFailed]
        assert events[1].error.message == "could not be sent in 1,000 ms: the connection was logging in"  # type: ignore[union-attr]

    def test_another_user_or_mechanism_ends_the_connection(self) -> None:
        users = {"alice": "secret", "bob": "secret"}
        for changed in (Sasl("PLAIN", "bob", "secret"), Sasl("SCRAM-SHA-256", "alice", "secret")):
            pipe = ready_client(SaslServer(users, session_lifetime_ms=10_000))
            pipe.client._sasl = changed
            pipe.client.send(MetadataRequest(topics=[]), 8.0)
            pipe.client.expire(9.0)
            pipe.run(9.0)
            assert "it authenticates again" in broken(pipe.broker_events).message

    def test_requests_go_on_while_a_new_token_is_obtained_and_a_failure_is_tried_again(self) -> None:
        login = SlowLogin()
        pipe = ready_client(SaslServer(USERS, session_lifetime_ms=100_000), login=login)
        pipe.client.send(MetadataRequest(topics=[]), 80.0)
        pipe.run(80.0)
        (step,) = pipe.client.expire(90.0)
        assert isinstance(step, Deferred)
        pipe.client.send(MetadataRequest(topics=[]), 91.0)
        assert [type(event) for event in pipe.run(91.0)] == [ResponseReceived]
        assert pipe.client.resume(step, LoginError("busy", may_retry=True), 92.0) == []
        assert pipe.client.is_ready
        (step,) = pipe.client.expire(96.0)
        assert isinstance(step, Deferred)
        pipe.client.resume(step, b"\0alice\0secret", 96.0)
        assert [type(event) for event in pipe.run(96.0)] == [HandshakeDone]
        assert pipe.client.resume(step, b"late", 96.0) == []

    def test_a_token_that_does_not_come_stops_requests_at_the_end_and_then_the_connection(self) -> None:
        pipe = ready_client(SaslServer(USERS, session_lifetime_ms=100_000), login=SlowLogin())
        pipe.client.send(MetadataRequest(topics=[]), 80.0)
        pipe.run(80.0)
        pipe.client.expire(90.0)
        assert pipe.client.deadline() == 100.0
        pipe.client.expire(100.0)
        pipe.client.send(MetadataRequest(topics=[]), 101.0)
        assert pipe.run(101.0) == []  # the broker would cut it
        assert pipe.client.deadline() == 120.0
        assert isinstance(broken(pipe.client.expire(120.0)), LoginError)

    def test_a_proof_that_takes_time_holds_requests_back(self) -> None:
        pipe = renewal_with_a_slow_proof()
        pipe.client.send(MetadataRequest(topics=[]), 901.0)
        assert pipe.run(901.0) == []
        assert pipe.client.resume(pipe.client_events[-1], slow_proof(pipe), 902.0) == []  # type: ignore[arg-type]
        assert [type(event) for event in pipe.run(902.0)] == [HandshakeDone, ResponseReceived]

    def test_a_proof_that_does_not_come_ends_the_connection(self) -> None:
        """The broker waits for it: there is no way back to requests, as there is before SaslHandshake."""
        pipe = renewal_with_a_slow_proof()
        error = broken(pipe.client.expire(930.0))
        assert isinstance(error, LoginError)
        assert "computing the proof of SASL SCRAM-SHA-256 for user 'alice' takes longer than 30,000 ms" in error.message
        assert "raise request_timeout_ms" in str(error.remedy)


class SlowLogin:
    """A login whose first message takes time; the first exchange has it at once."""

    identity = "user 'alice'"

    def __init__(self, mechanism: str = "PLAIN") -> None:
        self.mechanism = mechanism
        self.exchanges = 0

    def exchange(self, host: str) -> SaslClient:
        self.exchanges += 1
        client = PlainClient("alice", "secret")
        if self.exchanges > 1:
            client.start = lambda: Deferred(lambda done: None)  # type: ignore[method-assign,assignment,return-value]
        return client


class ProofLater:
    """A login by SCRAM whose proof takes time, always."""

    mechanism, identity = "SCRAM-SHA-256", "user 'alice'"

    def __init__(self) -> None:
        self.proofs: list[Callable[[], bytes]] = []

    def exchange(self, host: str) -> SaslClient:
        return Sasl(self.mechanism, "alice", "secret").client(run=lambda proof, done: self.proofs.append(proof))


def renewal_with_a_slow_proof() -> Pipe:
    """A client that renews its authentication at 900 s, and waits for its proof."""
    server = SaslServer(USERS, iterations=ITERATIONS_AT_ONCE + 1, session_lifetime_ms=1_000_000)
    pipe = ready_client(server, "SCRAM-SHA-256")
    pipe.client._sasl = ProofLater()
    pipe.client.send(MetadataRequest(topics=[]), 800.0)
    pipe.run(800.0)
    pipe.client.expire(900.0)
    (step,) = pipe.run(900.0)
    assert isinstance(step, Deferred)
    step.begin(lambda message: None)
    return pipe


def slow_proof(pipe: Pipe) -> bytes:
    login = pipe.client._sasl
    assert isinstance(login, ProofLater)
    return login.proofs.pop()()


def ready_client(server: SaslServer, mechanism: str = "PLAIN", *, login: Any = None, chance: Any = lambda: 0.5) -> Pipe:
    sasl = login or Sasl(mechanism, "alice", "secret")
    pipe = Pipe(Session.client(NODE, sasl=sasl, chance=chance), Session.broker(apis=APIS, sasl=server))
    pipe.client.start(0.0)
    pipe.run(0.0)
    assert pipe.client.is_ready
    return pipe


class TestFailures:
    def test_a_handshake_that_cannot_be_encoded_breaks_its_connection_only(self) -> None:
        client = Session.client(NODE, client_id="a\ud800")
        assert isinstance(broken(client.start(0.0)), EncodeError)

    def test_whatever_a_mechanism_raises_breaks_its_connection_only(self) -> None:
        class Failing(PlainClient):
            def step(self, challenge: bytes) -> bytes | None:
                raise ZeroDivisionError("secret")

        class FailingLogin(SlowLogin):
            def exchange(self, host: str) -> SaslClient:
                return Failing("alice", "secret")

        login: Any = FailingLogin()
        pipe = Pipe(Session.client(NODE, sasl=login), Session.broker(apis=APIS, sasl=SaslServer(USERS)))
        pipe.client.start(0.0)
        error = broken(pipe.run(0.0))
        assert isinstance(error, AuthenticationError)
        assert "SASL PLAIN for user 'alice' failed with ZeroDivisionError" in str(error)
        assert "secret" not in str(error)
        assert isinstance(error.__cause__, ZeroDivisionError)


class TestStates:
    def test_only_transitions_of_the_table_are_allowed(self) -> None:
        for state in State:
            for to in State:
                if to in TRANSITIONS[state]:
                    assert transition(state, to) is to
                else:
                    with pytest.raises(RuntimeError, match=f"{state.name}.*cannot become.*{to.name}"):
                        transition(state, to)

    def test_every_state_can_be_closed_and_closed_is_final(self) -> None:
        assert all(State.CLOSED in moves for state, moves in TRANSITIONS.items() if state is not State.CLOSED)
        assert TRANSITIONS[State.CLOSED] == set()

    def test_methods_of_the_other_role_raise(self) -> None:
        broker, client = Session.broker(apis=APIS), Session.client(NODE)
        for call in (
            lambda: broker.start(0.0),
            lambda: broker.send(MetadataRequest(topics=[]), 0.0),
            lambda: client.respond(None, None),
        ):
            with pytest.raises(RuntimeError, match="this is for a"):
                call()
        client.start(0.0)
        with pytest.raises(RuntimeError, match="started twice"):
            client.start(0.0)


class TestGarbage:
    FRAMES = (b"", b"\0", b"\0\0\0\0", b"\0\0\0\0\0", b"\0\0\0\0\0\0\xff\xff\xff\xff", bytes(3000), b"\xff" * 100)

    @pytest.mark.parametrize("frame", FRAMES)
    def test_garbage_from_a_broker_breaks_the_connection(self, frame: bytes) -> None:
        client = Session.client(NODE)
        client.start(0.0)
        cause = broken(client.receive(frame, 0.0))
        assert isinstance(cause, DecodeError)
        assert cause.where["broker"] == NODE
        assert str(cause.where["api"]).startswith("ApiVersions")
        assert client.receive(b"anything", 0.0) == []

    @pytest.mark.parametrize("frame", FRAMES)
    def test_garbage_from_a_client_breaks_the_connection(self, frame: bytes) -> None:
        broker = Session.broker(apis=APIS, peer="peer-7")
        cause = broken(broker.receive(frame, 0.0))
        assert isinstance(cause, DecodeError | UnsupportedVersionError)
        assert cause.where["broker"] == "peer-7"

    def test_every_truncated_request_is_a_decode_error(self) -> None:
        client = Session.client(NODE, assume=APIS)
        client.start(0.0)
        client.send(MetadataRequest(topics=[MetadataRequest.Topic(name="t")]), 0.0)
        frame = b"".join(client.frames()[0])
        for cut in range(len(frame)):
            cause = broken(Session.broker(apis=APIS).receive(frame[:cut], 0.0))
            assert isinstance(cause, DecodeError), cut
        odd, event = Session.broker(apis=APIS).receive(frame + b"\1\2", 0.0)  # Kafka's brokers do not read these
        assert isinstance(odd, TrailingBytes)
        assert odd.data == b"\1\2"
        assert isinstance(event, RequestReceived)
        (event,) = Session.broker(apis=APIS).receive(frame, 0.0)
        assert isinstance(event, RequestReceived)
