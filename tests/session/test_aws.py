"""Tokens of AWS MSK, byte for byte as botocore presigns them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl, urlsplit

import pytest

import kwire
from kwire.broker import Cluster
from kwire.errors import AuthenticationError, ConfigurationError, LoginError
from kwire.session import Sasl
from kwire.session.sasl import SaslError, SaslServer
from kwire.session.sasl.aws import (
    AwsKeys,
    AwsMskClient,
    AwsMskLogin,
    AwsMskToken,
    AwsMskValidator,
    authentication_payload,
    presigned_url,
    region_of,
)

NOW = 1_700_000_000.0
HOST = "b-1.test.abcdef.c2.kafka.eu-central-1.amazonaws.com"


class Tools:
    def unix_time(self) -> float:
        return NOW

    def post(self, *arguments: Any) -> Any:
        raise AssertionError("signing needs no network")

    call = post


@pytest.mark.parametrize("token", [None, "a/session+token==~x y"])
@pytest.mark.parametrize(("region", "suffix"), [("eu-central-1", "amazonaws.com"), ("cn-north-1", "amazonaws.com.cn")])
def test_the_url_is_botocores(region: str, suffix: str, token: str | None) -> None:
    url = botocores_url(f"kafka.{region}.{suffix}", region, token)
    assert presigned_url(AwsKeys("AKID", "s3cret/+", token), region, NOW) == url


def botocores_url(host: str, region: str, token: str | None) -> str:
    auth = pytest.importorskip("botocore.auth")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest("GET", f"https://{host}/", params={"Action": "kafka-cluster:Connect"})
    at = datetime.fromtimestamp(NOW, UTC).replace(tzinfo=None)
    signer = auth.SigV4QueryAuth(Credentials("AKID", "s3cret/+", token), "kafka-cluster", region, expires=900)
    with patch("botocore.auth.get_current_datetime", lambda: at):
        signer.add_auth(request)
    return str(request.url)


@pytest.mark.parametrize("token", [None, "a/session+token==~x y"])
def test_the_message_of_aws_msk_iam_has_the_fields_of_botocores_url(token: str | None) -> None:
    payload = authentication_payload(AwsKeys("AKID", "s3cret/+", token), "eu-central-1", HOST, NOW)
    fields = json.loads(payload)
    url = urlsplit(botocores_url(HOST, "eu-central-1", token))
    query = {name.lower(): value for name, value in parse_qsl(url.query, strict_parsing=True)}
    assert {**query, "version": "2020_10_22", "host": url.hostname, "user-agent": fields["user-agent"]} == fields
    assert ("x-amz-security-token" in fields) == (token is not None)
    assert b" " not in payload.replace(b"x y", b"")  # compact, as aws-msk-iam-auth writes it


def test_a_login_signs_for_the_host_and_region_of_each_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = AwsMskLogin(keys=AwsKeys("AKID", "s")).fetch(Tools())
    assert signer.expires_at == NOW + 900
    client = signer.client(HOST)
    assert client.start() == authentication_payload(AwsKeys("AKID", "s"), "eu-central-1", HOST, NOW)
    serverless = signer.client("boot-x.c1.kafka-serverless.us-east-2.amazonaws.com").start()
    assert json.loads(serverless)["x-amz-credential"].split("/")[2] == "us-east-2"
    given = AwsMskLogin("eu-west-3", keys=AwsKeys("AKID", "s")).fetch(Tools()).client(HOST).start()
    assert json.loads(given)["x-amz-credential"].split("/")[2] == "eu-west-3"
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigurationError, match="region"):
        signer.client("proxy.example")
    with pytest.raises(LoginError, match="expired"):
        AwsMskLogin(keys=AwsKeys("AKID", "s", expires_at=NOW)).fetch(Tools())


@pytest.mark.parametrize(
    ("response", "reason"),
    [(b"", "empty"), (b"no JSON", "not that of"), (b"[]", "not that of"), (b'{"version":"1"}', "version '1'")],
)
def test_responses_that_are_no_acceptance(response: bytes, reason: str) -> None:
    with pytest.raises(SaslError, match=reason):
        AwsMskClient(b"x").step(response)
    client = AwsMskClient(b"x")
    assert client.step(b'{"version":"2020_10_22","request-id":"a"}') is None
    assert client.is_done


def changed(**fields: str) -> Callable[[dict[str, str]], bytes]:
    return lambda payload: json.dumps(
        {**payload, **{name.replace("_", "-"): one for name, one in fields.items()}}
    ).encode()


@pytest.mark.parametrize(
    ("alter", "after", "reason"),
    [
        (changed(host="other"), 0, "signature is wrong"),
        (changed(x_amz_expires="43200"), 0, "signature is wrong"),
        (changed(x_amz_credential="OTHER/20231114/eu-central-1/kafka-cluster/aws4_request"), 0, "not known"),
        (changed(action="kafka-cluster:Delete"), 0, "action"),
        (lambda _: b"{}", 0, "not AWS_MSK_IAM"),
        (lambda _: b"\xff", 0, "not AWS_MSK_IAM"),
        (lambda payload: json.dumps({**payload, "host": 1}).encode(), 0, "not AWS_MSK_IAM"),
        (lambda _: b"[" * 100_000, 0, "not AWS_MSK_IAM"),
        (changed(x_amz_signature="\u00e9"), 0, "not AWS_MSK_IAM"),
        (changed(host="\ud800"), 0, "not AWS_MSK_IAM"),
        (changed(), 900, "900 s old"),
        (changed(), -301, "clock"),
    ],
)  # fmt: skip
def test_a_broker_refuses_what_is_not_signed_by_a_known_key(
    alter: Callable[[dict[str, str]], bytes], after: float, reason: str
) -> None:
    validator = AwsMskValidator({"AKID": "s3cret"})
    payload = authentication_payload(AwsKeys("AKID", "s3cret", "token"), "eu-central-1", HOST, NOW)
    assert validator.verify(payload, NOW) == ("AKID", NOW + 900)
    with pytest.raises(SaslError, match=reason):
        validator.verify(alter(json.loads(payload)), NOW + after)


def test_clients_log_in_at_the_embedded_broker() -> None:
    server = SaslServer({}, aws=AwsMskValidator({"AKID": "s3cret"}))
    assert "s3cret" not in repr(server)
    with Cluster(brokers=1, topics={"t": 1}, sasl=server) as cluster:
        for secret in ("s3cret", "wrong"):
            keys = {"access_key": "AKID", "secret_key": secret, "session_token": "token"}
            sasl = Sasl.aws_msk_iam("eu-central-1", **keys, mechanism="AWS_MSK_IAM")
            with kwire.Admin(cluster.bootstrap, sasl=sasl, request_timeout_ms=5_000) as admin:
                if secret == "s3cret":
                    assert admin.topics.list() == ["t"]
                    continue
                with pytest.raises(AuthenticationError, match="AWS_MSK_IAM") as caught:
                    admin.topics.list()
                assert "kafka-cluster:Connect" in str(caught.value)


def test_java_properties_name_it() -> None:
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="ops";',
        "sasl.client.callback.handler.class": handler,
    }
    sasl = kwire.options(java=properties)["sasl"]
    assert (sasl.mechanism, sasl.tokens) == ("AWS_MSK_IAM", AwsMskLogin(profile="ops"))
    properties["sasl.jaas.config"] = 'x.IAMLoginModule required awsRoleArn="arn";'
    with pytest.raises(ConfigurationError, match="awsRoleArn"):
        kwire.options(java=properties)


def test_a_token_lives_as_long_as_its_credentials() -> None:
    token = AwsMskToken("eu-central-1", keys=AwsKeys("AKID", "s", expires_at=NOW + 100)).fetch(Tools())
    assert token.expires_at == NOW + 100
    url = base64.urlsafe_b64decode(token.value + "=" * (-len(token.value) % 4)).decode()
    signed, _, agent = url.rpartition("&")
    assert signed == presigned_url(AwsKeys("AKID", "s"), "eu-central-1", NOW)
    assert agent.startswith("User-Agent=kwire%2F")
    assert AwsMskToken("eu-central-1", keys=AwsKeys("AKID", "s")).fetch(Tools()).expires_at == NOW + 900
    with pytest.raises(LoginError, match="expired"):
        AwsMskToken("eu-central-1", keys=AwsKeys("AKID", "s", expires_at=NOW)).fetch(Tools())


def test_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    sasl = Sasl.aws_msk_iam()
    assert isinstance(sasl.tokens, AwsMskToken)
    token = sasl.tokens.fetch(Tools())
    assert token.principal == "AKENV"
    assert "planted-secret" not in repr(sasl) + repr(token)
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigurationError, match="region"):
        region_of()
    static = Sasl.aws_msk_iam("r", access_key="AK", secret_key="planted-secret")
    assert "planted-secret" not in repr(static)
    with pytest.raises(ConfigurationError):
        Sasl.aws_msk_iam("r", access_key="AK")
    wrong: list[dict[str, Any]] = [
        {"access_key": "", "secret_key": ""},
        {"access_key": "AK", "secret_key": b"planted-secret"},
        {"access_key": "AK", "secret_key": "s", "session_token": ""},
        {"session_token": "planted-secret"},
    ]
    for options in wrong:  # never botocore's credentials in the place of those
        with pytest.raises(ConfigurationError, match=r"_key|session_token") as caught:
            Sasl.aws_msk_iam("r", **options)
        assert "planted-secret" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="AWS_MSK_IAM"):
        Sasl("AWS_MSK_IAM")
    with pytest.raises(ConfigurationError, match="mechanism is 'PLAIN'"):
        Sasl.aws_msk_iam("r", mechanism="PLAIN")
    native = Sasl.aws_msk_iam("r", access_key="AK", secret_key="planted-secret", mechanism="AWS_MSK_IAM")
    assert "planted-secret" not in repr(native) + native.identity + repr(native.tokens)
