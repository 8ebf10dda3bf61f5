"""Plant secrets of every mechanism; let logins fail and succeed; search everything that is written for them."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from brokers.certificates import make_certificates

import kwire
import kwire.aio
from kwire import Sasl, Tls
from kwire.broker import AwsMskValidator, Cluster, OAuthValidator, SaslServer
from kwire.capture.exchange_json import exchange_to_json
from kwire.cluster import ClientConfig
from kwire.errors import KwireError
from kwire.tap import Tap
from tests.cli.running import run
from tests.token_server import Issuer, TokenServer

PLANTED = "planted-hunter2"
ISSUER = Issuer()


def credentials(url: str) -> dict[str, Sasl]:
    return {
        "PLAIN": Sasl("PLAIN", "alice", PLANTED),
        "SCRAM": Sasl("SCRAM-SHA-512", "alice", PLANTED),
        "callable": Sasl("PLAIN", "alice", lambda: PLANTED),
        "delegation token": Sasl.delegation_token("id", PLANTED),
        "client credentials": Sasl.oauth_client_credentials(url, "id", PLANTED),
        "token": Sasl.oauth(lambda: (f"{PLANTED}.{PLANTED}.x", 4e9)),
        "AWS": Sasl.aws_msk_iam("r", access_key="AK", secret_key=PLANTED, session_token=PLANTED),
        "AWS_MSK_IAM": Sasl.aws_msk_iam("r", access_key="AK", secret_key=PLANTED, mechanism="AWS_MSK_IAM"),
        "raises": Sasl.oauth(_raise),
    }


def _raise() -> str:
    raise ValueError("no token")


@pytest.mark.parametrize("name", credentials("http://h/"))
@pytest.mark.parametrize("accepts", [False, True])
def test_no_secret_is_written(name: str, accepts: bool, caplog: pytest.LogCaptureFixture) -> None:
    validator = OAuthValidator(jwks=ISSUER.jwks(), audience="kafka" if accepts else "others")
    aws = AwsMskValidator({"AK": PLANTED if accepts else "other"})
    server = SaslServer({"alice": PLANTED if accepts else "other"}, oauth=validator, aws=aws)
    texts: list[str] = [repr(server)]
    with TokenServer(ISSUER) as issuer, Cluster(brokers=1, sasl=server) as cluster, caplog.at_level(logging.DEBUG):
        sasl = credentials(issuer.url)[name]
        config = ClientConfig(cluster.bootstrap, sasl=sasl)
        texts += [repr(sasl), str(sasl), sasl.identity, repr(config), repr(sasl.tokens)]
        with kwire.Admin(cluster.bootstrap, sasl=sasl, request_timeout_ms=1_500) as admin:
            texts.append(repr(admin))
            try:
                admin.topics.list(timeout=3)
            except KwireError as error:
                texts += of_chain(error)
    texts.append(caplog.text)
    for secret in secrets():
        assert not [text for text in texts if secret in text]


def of_chain(error: BaseException | None) -> Iterator[str]:
    """Yield all that an error and its causes, groups and contexts have to say, and their pickles."""
    if error is None:
        return
    yield from ("".join(traceback.format_exception(error)), str(error), repr(error), repr(error.args))
    yield from (repr(error.__dict__), repr(getattr(error, "__notes__", ())))
    if isinstance(error, KwireError):
        yield pickle.dumps(error).decode("latin-1")
    for one in (error.__cause__, error.__context__, *getattr(error, "exceptions", ())):
        yield from of_chain(one)


def use_producer(bootstrap: str, sasl: Sasl) -> Iterator[str]:
    with kwire.Producer(bootstrap, sasl=sasl, delivery_timeout_ms=1_500) as producer:
        response = producer.send("t", b"x")
        yield from of_chain(response.exception(30))
        yield from (repr(producer), repr(response), str(producer.explain("t")), repr(producer.metrics()))


def use_consumer(bootstrap: str, sasl: Sasl) -> Iterator[str]:
    with kwire.Consumer(bootstrap, group="g", sasl=sasl, request_timeout_ms=1_500) as consumer:
        consumer.subscribe(["t"])
        try:
            consumer.poll(timeout=1)
            consumer.end_offsets([("t", 0)], timeout=2)
        except KwireError as error:
            yield from of_chain(error)
        yield from (repr(consumer), str(consumer.explain()), repr(consumer.metrics()), repr(consumer._options))


def use_asyncio(bootstrap: str, sasl: Sasl) -> Iterator[str]:
    async def main() -> list[str]:
        async with kwire.aio.Admin(bootstrap, sasl=sasl, request_timeout_ms=1_500) as admin:
            try:
                await admin.topics.create("new", timeout=3)
            except KwireError as error:
                return [repr(admin), *of_chain(error)]
            return [repr(admin)]

    yield from asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("use", [use_producer, use_consumer, use_asyncio])
@pytest.mark.parametrize("accepts", [False, True])
def test_no_client_writes_a_secret_and_no_tap_shows_one(
    use: Callable[[str, Sasl], Iterator[str]], accepts: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """All mechanisms in turn, through a tap that records, with all logs at DEBUG."""
    server = SaslServer(
        {"alice": PLANTED if accepts else "other"},
        oauth=OAuthValidator(jwks=ISSUER.jwks(), audience="kafka" if accepts else "others"),
        aws=AwsMskValidator({"AK": PLANTED if accepts else "other"}),
    )
    texts: list[str] = []
    shown: list[str] = []
    with (
        TokenServer(ISSUER) as issuer,
        Cluster(1, topics={"t": 1}, sasl=server) as cluster,
        Tap(
            cluster.bootstrap,
            record=tmp_path / "tap.pcapng",
            on_exchange=lambda one: shown.append(json.dumps(exchange_to_json(one, annotate=True))),
        ) as tap,
        caplog.at_level(logging.DEBUG),
    ):
        for name in ("PLAIN", "SCRAM", "callable", "client credentials", "AWS_MSK_IAM"):
            texts += use(tap.address, credentials(issuer.url)[name])
    texts += [*shown, caplog.text, (tmp_path / "tap.pcapng").read_bytes().decode("latin-1")]
    assert b"AWS_MSK_IAM" in (tmp_path / "tap.pcapng").read_bytes()
    assert any("kwire" in record.name for record in caplog.records)
    assert any("SaslAuthenticate" in line for line in shown)
    # Tokens and signed requests are secrets, too, while they hold.
    for secret in (*secrets(), "eyJhbGci", "x-amz-signature"):
        found = [text[max(0, text.index(secret) - 200) :][:300] for text in texts if secret in text]
        assert not found


def test_the_password_of_a_key_is_not_written(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    for key_file, key_password in ((files.client_locked_key_file, PLANTED), (files.client_key_file, PLANTED)):
        tls = Tls(str(files.ca_file), str(files.client_cert_file), str(key_file), key_password)
        texts = [repr(tls)]
        try:
            with kwire.Admin("localhost:1", tls=tls, request_timeout_ms=500) as admin:
                texts.append(repr(admin._config))
                admin.topics.list(timeout=1)
        except KwireError as error:
            texts += of_chain(error)
        assert len(texts) > 2
        for secret in secrets():
            assert not [text for text in texts if secret in text]


def secrets() -> list[str]:
    """Return the planted secret as it could be written: as it is, in base64, in hex."""
    data = PLANTED.encode()
    return [PLANTED, base64.b64encode(data).decode()[:-4], data.hex()]


# -- what commands print and what a tap records

# Commands that log in, each with its own way to show what it does.
_COMMANDS = [
    ["metadata", "-vv"],
    ["versions", "-vv"],
    ["topics", "list", "-vv"],
    ["users", "list", "-vv"],
    ["users", "set", "carol", "-vv"],
    ["users", "set", "carol", "--dry-run", "-vv"],
    ["tokens", "list", "-vv"],
    ["configs", "get", "--broker", "1", "--all"],
    ["cluster", "explain", "-vv"],
    ["groups", "list", "-vv"],
    ["produce", "t", "-vv"],
    ["consume", "t", "-o", "beginning", "-e", "-vv"],
    ["doctor", "-vv"],
    ["doctor", "--json"],
]


@pytest.mark.slow
@pytest.mark.parametrize("accepts", [False, True])
def test_no_command_prints_a_secret_and_no_tap_records_one(accepts: bool, tmp_path: Path) -> None:
    server = SaslServer({"alice": PLANTED if accepts else "other"})
    kept = tmp_path / "token.json"
    texts: list[str] = []
    with (
        Cluster(1, topics={"t": 1}, sasl=server) as cluster,
        Tap(cluster.bootstrap, record=tmp_path / "tap.pcapng") as tap,
    ):
        env = {
            "KWIRE_BOOTSTRAP": tap.address, "KWIRE_USERNAME": "alice", "KWIRE_PASSWORD": PLANTED,
            "KWIRE_NEW_PASSWORD": f"new-{PLANTED}",
        }  # fmt: skip
        for args in [*_COMMANDS, ["tokens", "create", "--save", str(kept), "-vv"]]:
            ran = run(*args, "--timeout", "5", stdin="a record\n", env=env)
            assert (ran.code == 0) is accepts or args[0] == "doctor", (args, ran.stderr)
            texts += [ran.stdout, ran.stderr]
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            ran = run("topics", "list", "--sasl-mechanism", mechanism, "--timeout", "5", "-vv", env=env)
            texts += [ran.stdout, ran.stderr]
        if accepts:
            token = json.loads(kept.read_text())
            by_token = Sasl.delegation_token(token["token_id"], token["password"])
            with kwire.Admin(tap.address, sasl=by_token) as admin:
                texts.append(repr(admin.cluster.describe()))
    recorded = (tmp_path / "tap.pcapng").read_bytes()
    texts.append(recorded.decode("latin-1"))
    for options in ([], ["--annotate"], ["-f", "table"]):
        texts.append(run("decode", *options, str(tmp_path / "tap.pcapng")).stdout)
    assert b"alice" in recorded
    planted = [*secrets(), *([token["password"]] if accepts else [])]
    if accepts:
        planted.append(base64.b64decode(token["password"]).hex())
        assert base64.b64decode(token["password"]) not in recorded
    for secret in planted:
        found = [text[max(0, text.index(secret) - 200) :][:300] for text in texts if secret in text]
        assert not found
