"""OAUTHBEARER without a socket: messages, tokens, assertions, refresh, and the broker's validation."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kwire.errors import ConfigurationError, LoginError
from kwire.protocol.headers import decode_response, encode_request
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kwire.session import Session
from kwire.session.sasl import HttpResponse, OAuthValidator, Sasl, SaslError, SaslServer
from kwire.session.sasl.oauth import (
    OAuthClient,
    Token,
    TokenCallable,
    TokenEndpoint,
    make_token,
    parse_client_message,
    token_of,
    unsecured_jwt,
)
from kwire.session.sasl.refresh import refresh_at
from tests.token_server import Issuer

NOW = 1_700_000_000.0
URL = "https://issuer/token"


class Tools:
    """What sources of tokens may use, at a fixed time."""

    def __init__(self, response: HttpResponse | None = None) -> None:
        self.response = response
        self.posted: list[tuple[str, Mapping[str, str], str]] = []

    def unix_time(self) -> float:
        return NOW

    def post(self, url: str, headers: Mapping[str, str], body: bytes, ca_file: str | None) -> HttpResponse:
        self.posted.append((url, headers, body.decode()))
        assert self.response is not None
        return self.response

    def call(self, function: Any) -> Any:
        return function()


def jwt_for(**claims: Any) -> str:
    return unsecured_jwt({"sub": "alice", "exp": NOW + 100, **claims})


class TestMessages:
    def test_the_first_message_is_that_of_rfc_7628(self) -> None:
        client = OAuthClient(Token("abc", NOW, NOW + 1), {"logicalCluster": "lkc-1", "pool": "p"})
        assert client.start() == b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01pool=p\x01\x01"
        assert parse_client_message(client.start()) == ("", "abc", {"logicalCluster": "lkc-1", "pool": "p"})
        assert client.step(b"") is None
        assert client.is_done

    def test_a_refusal_is_answered_by_one_byte_and_kept_for_the_error(self) -> None:
        client = OAuthClient(Token("abc", NOW, NOW + 1), {})
        client.start()
        assert client.step(b'{"status":"invalid_token"}') == b"\x01"
        assert client.refusal == '{"status":"invalid_token"}'
        with pytest.raises(SaslError, match="invalid_token"):
            client.step(b"")  # a broker cannot accept after all
        assert not client.is_done

    @pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a-b": "x"}, {"a": "\x01"}, {"a": ""}])
    def test_extensions_are_checked(self, extensions: dict[str, str]) -> None:
        with pytest.raises(ConfigurationError):
            Sasl.oauth(lambda: "t", extensions=extensions)

    @pytest.mark.parametrize(
        "message",
        [b"", b"n,,", b"y,,\x01auth=Bearer a\x01\x01", b"n,,\x01auth=Basic a\x01\x01", b"n,,\x01auth=Bearer a"],
    )
    def test_other_messages_are_refused(self, message: bytes) -> None:
        with pytest.raises(SaslError):
            parse_client_message(message)


class TestTokens:
    def test_a_jwt_says_when_it_expires(self) -> None:
        token = make_token(jwt_for(iat=NOW - 50), NOW, title="t")
        assert (token.issued_at, token.expires_at, token.principal) == (NOW - 50, NOW + 100, "alice")
        assert token.value not in repr(token)

    def test_a_relative_time_is_preferred_to_the_servers_clock(self) -> None:
        body = json.dumps({"access_token": jwt_for(exp=NOW - 10_000), "expires_in": "60"}).encode()
        assert token_of(HttpResponse(200, body), NOW, "t").expires_at == NOW + 60

    @pytest.mark.parametrize(
        ("status", "may_retry"),
        [(302, False), (400, False), (401, False), (403, False), (408, True), (429, True), (500, True), (501, False),
         (503, True), (505, False)],
    )  # fmt: skip
    def test_statuses(self, status: int, may_retry: bool) -> None:
        body = b'{"error": "invalid_client", "error_description": "who are you?"}'
        with pytest.raises(LoginError, match="invalid_client: who are you") as caught:
            token_of(HttpResponse(status, body), NOW, "the token server")
        assert caught.value.is_retriable is may_retry
        assert str(status) in str(caught.value)

    @pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"access_token": 5}', b'{"access_token": "a b"}'])
    def test_garbage_is_a_typed_error(self, body: bytes) -> None:
        with pytest.raises(LoginError):
            token_of(HttpResponse(200, body), NOW, "t")

    def test_no_body_at_all_may_be_a_response_that_was_cut(self) -> None:
        with pytest.raises(LoginError, match="without access_token") as caught:
            token_of(HttpResponse(200, b""), NOW, "it")
        assert caught.value.may_retry

    def test_an_expired_token_is_an_error_here(self) -> None:
        with pytest.raises(LoginError, match="has expired 5 s ago"):
            make_token(jwt_for(exp=NOW - 5), NOW, title="t")

    @pytest.mark.parametrize("result", [5, None, ("a", "b"), ("a", 1, 2), ("a", float("nan")), "opaque"])
    def test_a_callable_must_return_a_token_and_its_end(self, result: object) -> None:
        with pytest.raises(LoginError):
            TokenCallable(lambda: result).fetch(Tools())  # type: ignore[arg-type,return-value]

    def test_what_a_callable_raises_is_the_cause_and_not_in_the_text(self) -> None:
        def fail() -> str:
            raise OSError("secret-in-a-url")

        with pytest.raises(LoginError, match="OSError") as caught:
            TokenCallable(fail).fetch(Tools())
        assert "secret-in-a-url" not in str(caught.value)
        assert isinstance(caught.value.__cause__, OSError)


class TestRequests:
    good = HttpResponse(200, json.dumps({"access_token": "abc", "expires_in": 60}).encode())

    def test_client_credentials(self) -> None:
        tools = Tools(self.good)
        secret = "s+/?~ä"  # its base64 differs in the two alphabets
        TokenEndpoint(URL, "id", lambda: secret, scope="a b").fetch(tools)
        ((url, headers, body),) = tools.posted
        assert url == URL
        assert headers["Authorization"] == "Basic " + base64.b64encode(f"id:{secret}".encode()).decode()
        assert headers["Content-Type"] == "application/x-www-form-urlencoded"
        assert body == "grant_type=client_credentials&scope=a+b"

    def test_id_and_secret_may_be_form_encoded(self) -> None:
        tools = Tools(self.good)
        TokenEndpoint(URL, "i:d", "s t", urlencode_header=True).fetch(tools)
        assert tools.posted[0][1]["Authorization"] == "Basic " + base64.b64encode(b"i%3Ad:s+t").decode()

    def test_an_assertion_of_a_file_is_read_again(self, tmp_path: Path) -> None:
        file = tmp_path / "assertion"
        sasl = Sasl.oauth_assertion(URL, file=str(file), scope="s")
        assert sasl.tokens is not None
        for text in ("one", "two"):
            file.write_text(text + "\n")
            tools = Tools(self.good)
            sasl.tokens.fetch(tools)
            grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer"
            assert tools.posted[0][2] == f"grant_type={grant}&assertion={text}&scope=s"
            assert "Authorization" not in tools.posted[0][1]
        file.unlink()
        with pytest.raises(LoginError, match="cannot read"):
            sasl.tokens.fetch(Tools())

    @pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
    def test_a_signed_assertion_in_the_place_of_the_secret(self, tmp_path: Path, algorithm: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else Issuer().key
        file = tmp_path / "key.pem"
        lock = serialization.BestAvailableEncryption(b"pw")
        file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))
        template = tmp_path / "template.json"
        template.write_text('{"header": {"kid": "k1"}, "payload": {"aud": "old", "tenant": "t"}}')
        sasl = Sasl.oauth_assertion(
            URL, private_key=str(file), key_password="pw", algorithm=algorithm, client_id="me", has_id=True,
            claims={"iss": "me", "sub": "me", "aud": URL}, template=str(template), grant="client_credentials",
        )  # fmt: skip
        tools = Tools(self.good)
        assert sasl.tokens is not None
        sasl.tokens.fetch(tools)
        form = dict(part.split("=") for part in tools.posted[0][2].split("&"))
        assert form["client_id"] == "me"
        assert form["grant_type"] == "client_credentials"
        unchecked = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
        claims = jwt.decode(
            form["client_assertion"],
            key.public_key(),
            [algorithm],
            audience=URL,
            options=unchecked,  # type: ignore[arg-type]
        )
        assert jwt.get_unverified_header(form["client_assertion"])["kid"] == "k1"
        assert claims.pop("jti")
        times = {"iat": NOW, "exp": NOW + 300, "nbf": NOW - 60}
        assert claims == {"iss": "me", "sub": "me", "aud": URL, "tenant": "t", **times}
        for wrong in (Sasl.oauth_assertion(URL, private_key=str(file), key_password="no"),):
            assert wrong.tokens is not None
            with pytest.raises(LoginError, match="cannot sign"):
                wrong.tokens.fetch(Tools())

    @pytest.mark.parametrize(
        "url",
        [
            "ftp://x/y",
            "issuer/token",
            "https://user:hunter2@issuer/token",
            "ftp://user:hunter2@issuer/token",
            "https://issuer:99999/token",
            "https://[issuer/token",
            "https://issuer/a token",
            "https://issuer/token\r\nX: y",
            None,
        ],
    )
    def test_urls(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="token_url") as caught:
            Sasl.oauth_client_credentials(url, "id", "secret")
        assert "hunter2" not in str(caught.value)
        Sasl.oauth_client_credentials("https://issuer/realms/a@b/token?x=a@b", "id", "secret")

    def test_what_no_request_can_hold_is_refused_at_once(self) -> None:
        endpoint: dict[str, Any] = {"token_url": URL, "client_id": "id", "client_secret": "secret"}
        wrong: list[dict[str, Any]] = [{"scope": ["a"]}, {"client_secret": "a\udc80"}]
        for options in wrong:
            with pytest.raises(ConfigurationError, match=next(iter(options))):
                Sasl.oauth_client_credentials(**{**endpoint, **options})
        wrong = [{"claims": 5}, {"key_password": b"x"}]
        for options in wrong:
            with pytest.raises(ConfigurationError, match=next(iter(options))):
                Sasl.oauth_assertion(URL, private_key="/k.pem", **options)
        late = Sasl.oauth_client_credentials(URL, "id", lambda: "a\udc80").tokens
        assert isinstance(late, TokenEndpoint)
        with pytest.raises(LoginError, match="not UTF-8"):
            late.fetch(Tools())

    @pytest.mark.parametrize(
        "content", ["-----BEGIN PRIVATE KEY-----\ns3cret", "eyJhbGciOi.eyJzdWIi.s3cret", '{"s3cret": 1}']
    )
    def test_the_content_of_a_file_is_no_path_and_is_not_shown(self, content: str) -> None:
        makes: tuple[Callable[[], Sasl], ...] = (
            lambda: Sasl.oauth_file(content),
            lambda: Sasl.oauth_assertion(URL, file=content),
            lambda: Sasl.oauth_assertion(URL, private_key=content),
            lambda: Sasl.oauth_assertion(URL, private_key="/k.pem", template=content),
        )
        for make in makes:
            with pytest.raises(ConfigurationError, match="is the content of a file") as caught:
                make()
            assert "s3cret" not in str(caught.value)
        for wrong in ("", None, 5):
            with pytest.raises(ConfigurationError, match="give the path of a file"):
                Sasl.oauth_file(wrong)  # type: ignore[arg-type]


class TestRefresh:
    def test_at_80_to_85_percent_of_the_lifetime(self) -> None:
        assert refresh_at(NOW, NOW + 1000, NOW, 0.0) == pytest.approx(NOW + 700)  # five minutes before the end
        assert refresh_at(NOW, NOW + 10_000, NOW, 0.0) == pytest.approx(NOW + 8000)
        assert refresh_at(NOW, NOW + 10_000, NOW, 1.0) == pytest.approx(NOW + 8500)

    def test_not_sooner_than_a_minute_from_now(self) -> None:
        assert refresh_at(NOW - 10_000, NOW + 400, NOW, 0.0) == pytest.approx(NOW + 100)
        assert refresh_at(NOW - 10_000, NOW + 361, NOW, 0.0) == pytest.approx(NOW + 61)

    def test_a_short_lifetime_ignores_both_limits(self) -> None:
        assert refresh_at(NOW, NOW + 100, NOW, 0.0) == pytest.approx(NOW + 80)

    def test_an_old_token_is_not_asked_for_at_once_again(self) -> None:
        assert refresh_at(NOW - 1000, NOW + 2, NOW, 0.0) >= NOW + 1


class TestValidation:
    issuer = Issuer()

    def exchange(self, token: str, **options: Any) -> tuple[bytes, Any]:
        options = {"jwks": self.issuer.jwks(), **options}
        server = SaslServer({}, oauth=OAuthValidator(**options), unix_time=lambda: NOW)
        exchange = server.exchange("OAUTHBEARER")
        return exchange.step(f"n,,\x01auth=Bearer {token}\x01\x01".encode()), exchange

    def token(self, **claims: Any) -> str:
        return self.issuer.token(**{"iat": NOW, "exp": NOW + 100, **claims})

    def test_a_good_token(self) -> None:
        challenge, exchange = self.exchange(self.token(scope="kafka write"), audience="kafka", scope="write")
        assert challenge == b""
        assert (exchange.is_done, exchange.username, exchange.expires_at) == (True, "alice", NOW + 100)

    @pytest.mark.parametrize(
        ("claims", "options", "reason"),
        [
            ({"exp": NOW - 60}, {}, "has expired"),
            ({"nbf": NOW + 60}, {}, "not valid yet"),
            ({"aud": "other"}, {"audience": "kafka"}, "audience is 'other'"),
            ({"iss": "other"}, {"issuer": "https://issuer"}, "issuer is 'other'"),
            ({"scope": "read"}, {"scope": "write"}, "lacks the scope"),
            ({"sub": ""}, {}, "no claim 'sub'"),
        ],
    )
    def test_refusals(self, claims: dict[str, Any], options: dict[str, Any], reason: str) -> None:
        challenge, exchange = self.exchange(self.token(**claims), **options)
        assert json.loads(challenge)["status"] == "invalid_token"
        assert not exchange.is_done
        with pytest.raises(SaslError, match=reason):
            exchange.step(b"\x01")

    @pytest.mark.parametrize(
        "payload",
        [
            '{"sub":"alice","exp":NaN}',
            '{"sub":"alice","exp":Infinity}',
            '{"sub":"alice","exp":true}',
            f'{{"sub":"alice","exp":1{"0" * 400}}}',
            '{"sub":"\\ud800","exp":1700000100}',
            "[" * 100_000,
        ],
    )
    def test_a_payload_that_no_issuer_makes_is_refused_by_an_error_of_sasl(self, payload: str) -> None:
        token = f"e30.{base64.urlsafe_b64encode(payload.encode()).decode()}."
        challenge, exchange = self.exchange(token, allow_unsecured=True)
        assert json.loads(challenge)["status"] == "invalid_token"
        assert not exchange.is_done
        deep = base64.urlsafe_b64encode(b"[" * 100_000).decode()
        assert not self.exchange(f"{deep}.e30.AAAA")[1].is_done

    def test_a_token_that_ends_later_than_a_response_can_say(self) -> None:
        server = SaslServer({}, oauth=OAuthValidator(allow_unsecured=True), unix_time=lambda: NOW)
        session = Session.broker(apis={}, sasl=server)
        message = f"n,,\x01auth=Bearer {jwt_for(exp=1e30)}\x01\x01".encode()
        requests = (SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1), (SaslAuthenticateRequest(auth_bytes=message), 2)
        for number, (request, version) in enumerate(requests):
            assert session.receive(b"".join(encode_request(request, version, number, None)), 0.0) == []
        (_, last) = session.frames()
        _, response = decode_response(b"".join(last), SaslAuthenticateRequest, 2)
        assert (session.username, response.session_lifetime_ms) == ("alice", 2**63 - 1)

    def test_signatures(self) -> None:
        stranger = Issuer(kid="one")
        for token in (stranger.token(iat=NOW, exp=NOW + 9), jwt_for(), "abc", Issuer(kid="x").token(exp=NOW + 9)):
            assert b"invalid_token" in self.exchange(token)[0]
        assert self.exchange(jwt_for(), allow_unsecured=True)[1].is_done

    def test_a_symmetric_algorithm_with_the_public_key_is_refused(self) -> None:
        header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one"}').rstrip(b"=").decode()
        payload = self.token().split(".")[1]
        _, exchange = self.exchange(f"{header}.{payload}.AAAA")
        assert not exchange.is_done

    def test_new_keys_of_a_file_are_read(self, tmp_path: Path) -> None:
        file = tmp_path / "jwks.json"
        file.write_text(json.dumps(self.issuer.jwks()))
        validator = OAuthValidator(jwks=str(file))
        validator.claims(self.token(), NOW)
        rotated = Issuer(kid="two")
        file.write_text(json.dumps(rotated.jwks()))
        assert validator.claims(rotated.token(iat=NOW, exp=NOW + 9), NOW)["sub"] == "alice"


def test_credentials_can_be_pickled_and_show_no_secret() -> None:
    secrets = ("hunter2", "pem-password")
    for sasl in (
        Sasl.oauth_client_credentials(URL, "id", "hunter2"),
        Sasl.oauth_assertion(URL, private_key="/k.pem", key_password="pem-password"),
        Sasl.delegation_token("id", "hunter2"),
    ):
        assert pickle.loads(pickle.dumps(sasl)) == sasl
        assert not any(secret in repr(sasl) + sasl.identity for secret in secrets)
