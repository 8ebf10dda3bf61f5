"""SASL: the messages of the mechanisms, for client and broker. Bytes in, bytes out; nothing of Kafka's requests.

PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), OAUTHBEARER (RFC 7628), GSSAPI (RFC 4752),
AWS_MSK_IAM (aws-msk-iam-auth).
"""

from kwire.session.sasl.aws import AwsMskValidator
from kwire.session.sasl.client import MECHANISMS, PASSWORD_MECHANISMS, Sasl
from kwire.session.sasl.exchange import Deferred, HttpResponse, Login, LoginTools, SaslClient, SaslError, SaslExchange
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
