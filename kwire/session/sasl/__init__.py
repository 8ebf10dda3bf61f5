"""SASL: the messages of the mechanisms, for client and broker. Bytes in, bytes out; nothing of Kafka's requests.

PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), OAUTHBEARER (RFC 7628), GSSAPI (RFC 4752),
AWS_MSK_IAM (aws-msk-iam-auth).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kwire.session.sasl.aws import AwsMskValidator
    from kwire.session.sasl.client import MECHANISMS, PASSWORD_MECHANISMS, Sasl
    from kwire.session.sasl.exchange import (
        Deferred,
        HttpResponse,
        Login,
        LoginTools,
        SaslClient,
        SaslError,
        SaslExchange,
    )
    from kwire.session.sasl.kerberos_server import KerberosAcceptor
    from kwire.session.sasl.oauth_server import OAuthValidator
    from kwire.session.sasl.server import DelegationTokenLogin, SaslServer

__all__ = [
    "MECHANISMS",
    "PASSWORD_MECHANISMS",
    "AwsMskValidator",
    "Deferred",
    "DelegationTokenLogin",
    "HttpResponse",
    "KerberosAcceptor",
    "Login",
    "LoginTools",
    "OAuthValidator",
    "Sasl",
    "SaslClient",
    "SaslError",
    "SaslExchange",
    "SaslServer",
]

# Name -> its file, imported on first use: a connection without SASL needs none of the mechanisms.
_FILES = {
    "MECHANISMS": "client",
    "PASSWORD_MECHANISMS": "client",
    "AwsMskValidator": "aws",
    "Deferred": "exchange",
    "DelegationTokenLogin": "server",
    "HttpResponse": "exchange",
    "KerberosAcceptor": "kerberos_server",
    "Login": "exchange",
    "LoginTools": "exchange",
    "OAuthValidator": "oauth_server",
    "Sasl": "client",
    "SaslClient": "exchange",
    "SaslError": "exchange",
    "SaslExchange": "exchange",
    "SaslServer": "server",
}

if not TYPE_CHECKING:  # or checkers would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _FILES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
