"""OAUTHBEARER between kwire's clients and the embedded broker, with a token server on loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import kwire
from kwire import Sasl
from kwire.broker import Cluster, OAuthValidator, SaslServer
from kwire.errors import AuthenticationError, KwireError, LoginError
from kwire.protocol import ApiKey
from tests.token_server import Issuer, Received, TokenServer

ISSUER = Issuer()


@pytest.fixture
def broker() -> Iterator[Cluster]:
    validator = OAuthValidator(jwks=ISSUER.jwks(), audience="kafka", issuer="https://issuer")
    with Cluster(brokers=1, topics={"t": 1}, sasl=SaslServer({}, oauth=validator)) as cluster:
        yield cluster
        assert not cluster.failures


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer(ISSUER) as server:
        yield server


def failure(bootstrap: str, sasl: Sasl, **options: Any) -> KwireError:
    options = {"request_timeout_ms": 2_000, **options}
    with kwire.Admin(bootstrap, sasl=sasl, **options) as admin, pytest.raises(KwireError) as caught:
        admin.describe_cluster(timeout=5)
    error: Any = caught.value
    while not isinstance(error, AuthenticationError) and error.__cause__ is not None:
        error = error.__cause__
    return error  # type: ignore[no-any-return]


def test_client_credentials(broker: Cluster, server: TokenServer) -> None:
    sasl = Sasl.oauth_client_credentials(server.url, "id", "secret", scope="s", extensions={"pool": "p"})
    with kwire.Producer(broker.bootstrap, sasl=sasl) as producer:
        producer.send("t", b"1").result(timeout=10)
    with kwire.Consumer(broker.bootstrap, sasl=sasl) as consumer:
        consumer.assign([("t", 0, 0)])
        assert next(consumer).value == b"1"
    with kwire.Admin(broker.bootstrap, sasl=sasl) as admin:
        admin.describe_cluster()
    assert len(server.received) == 3  # one token for each client, whatever it connects to


def test_a_coroutine_function_runs_in_the_loop_of_an_asyncio_client(broker: Cluster) -> None:
    loops = []

    async def token() -> str:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return ISSUER.token()

    async def main() -> None:
        sasl = Sasl.oauth(token)
        async with kwire.aio.Producer(broker.bootstrap, sasl=sasl) as producer:
            await producer.send("t", b"1")
        async with kwire.aio.Consumer(broker.bootstrap, sasl=sasl) as consumer:
            consumer.assign([("t", 0, 0)])
            assert (await anext(consumer)).value == b"1"
        async with kwire.aio.Admin(broker.bootstrap, sasl=sasl) as admin:
            await admin.topics.list()
        assert loops == [asyncio.get_running_loop()] * 3

    asyncio.run(main())


def test_a_coroutine_function_of_a_blocking_client_has_a_loop_of_its_own(broker: Cluster) -> None:
    async def token() -> str:
        await asyncio.sleep(0)
        return ISSUER.token()

    with kwire.Producer(broker.bootstrap, sasl=Sasl.oauth(token)) as producer:
        producer.send("t", b"1").result(timeout=10)


def test_a_callable_runs_on_no_thread_of_the_loop(broker: Cluster) -> None:
    names = []

    def token() -> tuple[str, float]:
        names.append(threading.current_thread().name)
        return ISSUER.token(), time.time() + 3600

    with kwire.Admin(broker.bootstrap, sasl=Sasl.oauth(token)) as admin:
        admin.describe_cluster()
    assert names == ["kwire-login"]


@pytest.mark.parametrize("claims", [{"lifetime": -100.0}, {"aud": "other"}, {"iss": "other"}])
def test_a_token_that_the_broker_rejects(broker: Cluster, claims: dict[str, Any]) -> None:
    fetches = []

    def token() -> tuple[str, float]:
        fetches.append(1)
        return ISSUER.token(**claims), time.time() + 3600

    before = broker.requests()[ApiKey.METADATA]
    error = failure(broker.bootstrap, Sasl.oauth(token))
    assert type(error) is AuthenticationError
    assert "invalid_token" in str(error)
    assert "audience" in str(error.remedy)
    assert not error.is_retriable
    assert 1 <= len(fetches) <= 5
    assert broker.requests()[ApiKey.METADATA] == before


@pytest.mark.parametrize(
    ("status", "headers", "body", "retriable"),
    [
        (401, {}, b'{"error":"invalid_client"}', False),
        (400, {}, b"<html>bad</html>", False),
        (302, {"Location": "http://127.0.0.1:1/"}, b"", False),
        (503, {}, b"busy", True),
        (200, {}, b"<html>login</html>", False),
        (200, {}, b"x" * (1 << 21), False),
    ],
)
def test_what_token_servers_respond(
    broker: Cluster, server: TokenServer, status: int, headers: dict[str, str], body: bytes, retriable: bool
) -> None:
    server.respond = lambda received: (status, headers, body)
    error = failure(broker.bootstrap, Sasl.oauth_client_credentials(server.url, "id", "planted-secret"))
    assert isinstance(error, LoginError)
    assert error.is_retriable is retriable
    assert server.url in str(error)
    assert "planted-secret" not in str(error)
    assert len(server.received) <= 12


def test_a_token_server_that_does_not_respond(broker: Cluster, server: TokenServer) -> None:
    release = threading.Event()

    def wait(received: Received) -> tuple[int, dict[str, str], bytes]:
        release.wait(20)
        return 500, {}, b""

    server.respond = wait
    start = time.monotonic()
    error = failure(broker.bootstrap, Sasl.oauth_client_credentials(server.url, "id", "s"), request_timeout_ms=500)
    release.set()
    assert isinstance(error, LoginError)
    assert time.monotonic() - start < 8


def test_a_token_server_that_is_not_there(broker: Cluster) -> None:
    error = failure(broker.bootstrap, Sasl.oauth_client_credentials("http://127.0.0.1:1/token", "id", "s"))
    assert isinstance(error, LoginError)
    assert error.is_retriable
    assert "cannot be reached" in str(error)


def test_a_server_that_recovers_is_tried_again(broker: Cluster, server: TokenServer) -> None:
    def fail_twice(received: Received) -> tuple[int, dict[str, str], bytes]:
        return (503, {}, b"") if len(server.received) <= 2 else server.give_token(received)

    server.respond = fail_twice
    with kwire.Producer(broker.bootstrap, sasl=Sasl.oauth_client_credentials(server.url, "id", "s")) as producer:
        producer.send("t", b"1").result(timeout=20)
    assert len(server.received) == 3


def test_a_broker_without_the_mechanism() -> None:
    with Cluster(brokers=1, sasl={"alice": "pw"}) as cluster:
        error = failure(cluster.bootstrap, Sasl.oauth(ISSUER.token))
    assert "it offers PLAIN" in str(error)


def test_java_properties_and_the_command_line(broker: Cluster, server: TokenServer, tmp_path: Any) -> None:
    pytest.importorskip("click")
    from tests.cli.running import run

    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;\n"
        f"sasl.oauthbearer.token.endpoint.url={server.url}\n"
        "sasl.oauthbearer.client.credentials.client.id=id\n"
        "sasl.oauthbearer.client.credentials.client.secret=planted-secret\n"
    )
    arguments = ["topics", "list", "-b", broker.bootstrap, "--command-config", str(file)]
    ran = run(*arguments)
    assert ran.code == 0, ran
    assert "t" in ran.stdout
    server.respond = lambda received: (401, {}, b'{"error":"invalid_client"}')
    ran = run(*arguments)
    assert ran.code != 0
    assert "invalid_client" in ran.stderr
    assert "planted-secret" not in str(ran)


def test_no_secret_is_logged(broker: Cluster, server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    token = ISSUER.token(lifetime=-100)
    server.respond = lambda received: (200, {}, json.dumps({"access_token": token, "expires_in": 60}).encode())
    with caplog.at_level(logging.DEBUG):
        failure(broker.bootstrap, Sasl.oauth_client_credentials(server.url, "id", "planted-secret"))
    assert token not in caplog.text
    assert "planted-secret" not in caplog.text
