"""The login of a client on virtual time: one token for all connections, refreshed ahead, without storms."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import ModuleType
from typing import Any

import pytest

from kwire.cluster.login import SharedLogin
from kwire.errors import KerberosError, KwireError, LoginError
from kwire.net import VirtualClock
from kwire.session import Sasl, SaslServer
from kwire.session.sasl import aws
from kwire.session.sasl.aws import AwsKeys, AwsMskValidator
from kwire.session.sasl.exchange import Deferred, LaterClient, LoginTools, SaslError
from kwire.session.sasl.kerberos import KerberosClient, KerberosLogin, Ticket
from kwire.session.sasl.oauth import OAuthClient
from kwire.session.sasl.scram import ITERATIONS_AT_ONCE


class World:
    """A login whose blocking calls run when the test says so."""

    def __init__(self, sasl: Sasl | None = None, timeout_ms: int = 30_000) -> None:
        self.clock = VirtualClock()
        self.calls: list[Callable[[], object]] = []
        self.fetches = 0
        self.error: Exception | None = None
        self.lifetime = 10_000.0
        self.login = SharedLogin(
            sasl or Sasl.oauth(self.token),
            self.clock,
            Random(1),
            timeout_ms=timeout_ms,
            wake=lambda: None,
            submit=self.calls.append,
        )

    def token(self) -> tuple[str, float]:
        self.fetches += 1
        if self.error is not None:
            raise self.error
        return f"token-{self.fetches}", self.login.unix_time() + self.lifetime

    def connect(self, host: str = "h") -> list[Any]:
        """Begin an exchange, and return the list that gets its first message or its error."""
        results: list[Any] = []
        client = self.login.exchange(host)
        assert isinstance(client, LaterClient)
        self.client: LaterClient = client
        client.start().begin(results.append)  # type: ignore[union-attr]
        return results

    def run(self, seconds: float = 0.0) -> None:
        """Advance the clock, and let the login and its threads work."""
        self.clock.advance(seconds)
        self.login.turn(self.clock.now())
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()
        self.login.turn(self.clock.now())


def test_a_hundred_connections_need_one_token() -> None:
    world = World()
    waiting = [world.connect() for _ in range(100)]
    world.run()
    assert [result[0] for result in waiting] == [b"n,,\x01auth=Bearer token-1\x01\x01"] * 100
    assert world.connect() == [b"n,,\x01auth=Bearer token-1\x01\x01"]  # at once
    assert world.fetches == 1


def test_a_token_is_refreshed_ahead_of_its_expiry_also_when_nobody_asks() -> None:
    world = World()
    world.connect()
    world.run()
    assert 8_000 <= world.login.deadline() <= 8_500
    world.run(world.login.deadline())
    assert world.fetches == 2
    assert world.connect() == [b"n,,\x01auth=Bearer token-2\x01\x01"]


def test_a_failed_refresh_is_repeated_every_ten_seconds_and_the_old_token_is_used() -> None:
    world = World()
    world.connect()
    world.run()
    world.error = OSError("down")
    world.run(8_600)
    for attempt in range(3, 10):
        assert world.connect() == [b"n,,\x01auth=Bearer token-1\x01\x01"]
        world.run(10)
        assert world.fetches == attempt
    world.error = None
    world.run(10)
    assert world.connect() == [b"n,,\x01auth=Bearer token-10\x01\x01"]


def test_failures_while_connections_wait_back_off_to_ten_seconds() -> None:
    world = World()
    world.error = OSError("down")
    failures = 0
    for _ in range(6_000):  # ten minutes of a client that connects as fast as it may
        results = world.connect()
        world.run(0.1)
        failures += sum(isinstance(result, LoginError) for result in results)
    assert 60 <= world.fetches <= 85
    assert failures
    world.error = None


def test_a_connection_with_a_short_timeout_meets_an_attempt_and_its_error() -> None:
    world = World(timeout_ms=2_000)
    world.error = OSError("down")
    for _ in range(10):
        started_at, results = world.clock.now(), world.connect()
        while not results:
            world.run(0.1)
        assert isinstance(results[0], LoginError)
        assert world.clock.now() - started_at < 2


def test_a_token_that_the_broker_rejects_is_not_used_again_and_others_are_fetched_with_back_off() -> None:
    world = World()
    for _ in range(1_200):  # two minutes
        results = world.connect()
        world.run(0.1)
        for message in results:
            assert isinstance(message, bytes)
            client = world.client
            assert isinstance(client._client, OAuthClient)
            client.step(b'{"status":"invalid_token"}')
    assert 10 <= world.fetches <= 30


def test_a_token_that_many_connections_are_refused_counts_once() -> None:
    world = World()
    clients = []
    for _ in range(8):
        world.connect()
        clients.append(world.client)
    world.run()
    for client in clients:
        client.refused()
    results = world.connect()
    world.run(0.2)  # the first back-off; the eighth takes 8 s
    assert results == [b"n,,\x01auth=Bearer token-2\x01\x01"]


def test_a_token_that_one_broker_refuses_is_used_for_others_and_these_do_not_end_its_back_off() -> None:
    world = World()
    world.connect("good")
    world.run()
    for _ in range(1_200):  # two minutes
        assert world.connect("good")  # at once
        world.client.step(b"")
        results, client = world.connect("bad"), world.client
        world.run(0.1)
        if results:
            client.refused()
    assert 10 <= world.fetches <= 30


def test_a_system_without_threads_fails_the_login_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in place of a result would end the event loop, with all clients of a cluster."""

    def no_thread(call: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    woken: list[bool] = []
    for sasl in (None, Sasl("PLAIN", "alice", lambda: "secret")):
        world = World(sasl)
        woken.clear()
        with monkeypatch.context() as without:
            without.setattr(world.login, "_submit", no_thread)
            without.setattr(world.login, "_wake", lambda: woken.append(True))
            results = world.connect()
            assert results == []
            assert woken
            world.run()
        (error,) = results
        assert isinstance(error, LoginError)
        assert error.is_retriable
        assert "can't start new thread" in error.message
        results = world.connect()
        world.run(1.0)
        assert isinstance(results[0], bytes)


def test_a_source_that_does_not_return_fails_in_time_and_its_late_token_is_dropped() -> None:
    world = World(timeout_ms=5_000)
    results = world.connect()
    (late,) = world.calls
    world.calls.clear()
    assert world.login.deadline() == 5.0
    world.clock.advance(5.0)
    world.login.turn(5.0)
    assert isinstance(results[0], LoginError)
    assert results[0].is_retriable
    late()
    world.login.turn(5.0)
    world.run(1.0)
    assert world.connect() != [b"n,,\x01auth=Bearer token-1\x01\x01"]


@pytest.mark.parametrize("error", [ValueError("planted"), KwireError("planted")])
def test_whatever_a_callable_raises_is_a_login_error(error: Exception) -> None:
    world = World()
    world.error = error
    results = world.connect()
    world.run()
    assert isinstance(results[0], LoginError)


@pytest.mark.parametrize("has_loop", [False, True])
def test_a_coroutine_that_does_not_end_is_cancelled_after_its_time(has_loop: bool) -> None:
    """Otherwise each attempt would leave a thread of the login, or a task of the user's loop, for ever."""
    world = World(timeout_ms=20)
    ended = threading.Event()

    async def token() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async def main() -> None:
        world.login.asyncio_loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            await asyncio.to_thread(world.login.call, token)
        while not ended.is_set():
            await asyncio.sleep(0)

    begun = time.monotonic()
    if has_loop:
        asyncio.run(main())
    else:
        with pytest.raises(TimeoutError):
            world.login.call(token)
    assert ended.is_set()
    assert time.monotonic() - begun < 1.5


@pytest.mark.parametrize(
    ("mechanism", "password"), [("SCRAM-SHA-256", "p\ud800"), ("PLAIN", "p\ud800"), ("PLAIN", "p\0x")]
)
def test_a_password_of_a_callable_is_checked(mechanism: str, password: str) -> None:
    world = World(Sasl(mechanism, "alice", lambda: password))
    results = world.connect()
    world.run()
    assert isinstance(results[0], LoginError)
    assert password not in str(results[0])


def test_a_password_may_be_a_callable_which_is_called_for_each_authentication() -> None:
    passwords = iter(["one", "two"])
    world = World(Sasl("PLAIN", "alice", lambda: next(passwords)))
    for password in ("one", "two"):
        results = world.connect()
        world.run()
        assert results == [f"\0alice\0{password}".encode()]
    results = world.connect()
    world.run()
    assert isinstance(results[0], LoginError)


@pytest.mark.parametrize("password", ["secret", lambda: "secret"], ids=["a text", "a function"])
@pytest.mark.parametrize("more", [0, 1])
def test_a_proof_of_many_iterations_is_computed_on_a_thread(password: Any, more: int) -> None:
    """A broker may ask for a million, which took most of a second on the thread of the loop."""
    world = World(Sasl("SCRAM-SHA-256", "alice", password))
    server = SaslServer({"alice": "secret"}, iterations=ITERATIONS_AT_ONCE + more).exchange("SCRAM-SHA-256")
    client = world.login.exchange("h")
    message = client.start()
    results: list[Any] = [message]
    if isinstance(message, Deferred):
        results.clear()
        message.begin(results.append)
        world.run()
    proof = client.step(server.step(results.pop()))
    if more:
        assert isinstance(proof, Deferred)
        proof.begin(results.append)
        assert results == []
        world.run()
        proof = results.pop()
    assert isinstance(proof, bytes)
    assert client.step(server.step(proof)) is None
    assert (client.is_done, server.username) == (True, "alice")


@dataclass(frozen=True)
class Centre(KerberosLogin):
    """Gives tickets for an hour each, and counts what it is asked for."""

    asked: tuple[list[str], ...] = ([],)
    gives: tuple[list[bool], ...] = ([True],)

    def fetch(self, tools: LoginTools) -> Ticket:
        self.asked[0].append("login")
        return ServiceTickets(self, None, "alice@R", tools.unix_time(), tools.unix_time() + 3_600)


class ServiceTickets(Ticket):
    def client(self, host: str) -> KerberosClient:
        assert isinstance(self.login, Centre)
        self.login.asked[0].append(host)
        if not self.login.gives[0][0]:
            raise KerberosError("cannot get a ticket", reason="unknown service")
        return KerberosClient(None, f"for {host}".encode(), ValueError)


@pytest.fixture
def centre(monkeypatch: pytest.MonkeyPatch) -> Centre:
    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))
    return Centre(asked=([],), gives=([True],))


def test_a_hundred_connections_need_one_login_of_kerberos(centre: Centre) -> None:
    world = World(Sasl("GSSAPI", tokens=centre))
    waiting = [world.connect() for _ in range(100)]
    world.run()
    world.run()
    assert waiting == [[b"for h"]] * 100
    assert centre.asked[0].count("login") == 1


def test_a_login_of_kerberos_is_renewed_ahead_of_its_expiry(centre: Centre) -> None:
    world = World(Sasl("GSSAPI", tokens=centre))
    world.connect()
    world.run()
    assert 2_880 <= world.login.deadline() <= 3_300
    world.run(world.login.deadline())
    assert centre.asked[0].count("login") == 2


def test_a_ticket_that_a_broker_refuses_is_not_used_again_and_others_are_fetched_with_back_off(centre: Centre) -> None:
    """A broker whose keytab was made again refuses the tickets of before, which hold for hours."""
    world = World(Sasl("GSSAPI", tokens=centre))
    for _ in range(1_200):  # two minutes of a client that connects as fast as it may
        results = world.connect()
        client = world.client
        world.run()
        world.run(0.1)
        if results == [b"for h"]:
            assert isinstance(client, LaterClient)
            client.refused()
    assert 10 <= centre.asked[0].count("login") <= 30


def test_keys_of_aws_that_a_broker_refuses_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are changed where botocore finds them do not wait for the end of the signer, ten minutes."""
    keys = [AwsKeys("OLD", "s3cret"), AwsKeys("NEW", "s3cret")]
    monkeypatch.setattr(aws, "_botocore_keys", lambda profile: keys.pop(0))
    world = World(Sasl.aws_msk_iam("eu-central-1", mechanism="AWS_MSK_IAM"))
    server = SaslServer({}, aws=AwsMskValidator({"NEW": "s3cret"}), unix_time=world.login.unix_time)
    for is_accepted in (False, True, True):  # the third login needs no other keys
        results, exchange = world.connect(), server.exchange("AWS_MSK_IAM")
        client = world.client
        assert isinstance(client, LaterClient)
        world.run(1.0)
        world.run()
        if is_accepted:
            assert client.step(exchange.step(results.pop())) is None
        else:
            with pytest.raises(SaslError):
                exchange.step(results.pop())
            client.refused()


def test_a_service_that_nobody_knows_is_not_asked_for_in_a_storm(centre: Centre) -> None:
    centre.gives[0][0] = False
    world = World(Sasl("GSSAPI", tokens=centre))
    failures = 0
    for _ in range(600):  # a minute of a client that connects as fast as it may
        result = world.connect()
        world.run()
        world.run(0.1)
        failures += bool(result) and isinstance(result[0], KerberosError)
    assert 5 < failures < 40
    centre.gives[0][0] = True
    world.run(20)
    result = world.connect()
    world.run()
    world.run()
    assert result[0] == b"for h"
