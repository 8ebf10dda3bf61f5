"""Tokens of AWS MSK, byte for byte as botocore presigns them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest

from kwire.errors import ConfigurationError, LoginError
from kwire.session import Sasl
from kwire.session.sasl.aws import AwsKeys, AwsMskToken, presigned_url, region_of

NOW = 1_700_000_000.0


class Tools:
    def unix_time(self) -> float:
        return NOW

    def post(self, *arguments: Any) -> Any:
        raise AssertionError("signing needs no network")

    call = post


@pytest.mark.parametrize("token", [None, "a/session+token==~x y"])
@pytest.mark.parametrize(("region", "suffix"), [("eu-central-1", "amazonaws.com"), ("cn-north-1", "amazonaws.com.cn")])
def test_the_url_is_botocores(region: str, suffix: str, token: str | None) -> None:
    auth = pytest.importorskip("botocore.auth")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest("GET", f"https://kafka.{region}.{suffix}/", params={"Action": "kafka-cluster:Connect"})
    at = datetime.fromtimestamp(NOW, UTC).replace(tzinfo=None)
    signer = auth.SigV4QueryAuth(Credentials("AKID", "s3cret/+", token), "kafka-cluster", region, expires=900)
    with patch("botocore.auth.get_current_datetime", lambda: at):
        signer.add_auth(request)
    assert presigned_url(AwsKeys("AKID", "s3cret/+", token), region, NOW) == request.url


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
    assert sasl.tokens is not None
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
