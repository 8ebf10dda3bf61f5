"""Plant secrets of every mechanism; let logins fail and succeed; search everything that is written for them."""

from __future__ import annotations

import base64
import logging
import pickle
import traceback

import pytest

import kwire
from kwire import Sasl
from kwire.broker import Cluster, OAuthValidator, SaslServer
from kwire.cluster import ClientConfig
from kwire.errors import KwireError
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
        "raises": Sasl.oauth(_raise),
    }


def _raise() -> str:
    raise ValueError("no token")


@pytest.mark.parametrize("name", credentials("http://h/"))
@pytest.mark.parametrize("accepts", [False, True])
def test_no_secret_is_written(name: str, accepts: bool, caplog: pytest.LogCaptureFixture) -> None:
    validator = OAuthValidator(jwks=ISSUER.jwks(), audience="kafka" if accepts else "others")
    server = SaslServer({"alice": PLANTED if accepts else "other"}, oauth=validator)
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
                texts += ["".join(traceback.format_exception(error)), repr(error), repr(error.__dict__)]
                texts.append(pickle.dumps(error).decode("latin-1"))
    texts.append(caplog.text)
    for secret in secrets():
        assert not [text for text in texts if secret in text]


def secrets() -> list[str]:
    """Return the planted secret as it could be written: as it is, in base64, in hex."""
    data = PLANTED.encode()
    return [PLANTED, base64.b64encode(data).decode()[:-4], data.hex()]
