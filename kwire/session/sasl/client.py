"""SASL credentials: what a client's option `sasl` says, for each mechanism."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from kwire.errors import ConfigurationError, LoginError
from kwire.session.sasl import aws, kerberos, oauth
from kwire.session.sasl.assertion import Assertion
from kwire.session.sasl.aws import AwsKeys, AwsMskLogin, AwsMskToken, region_of
from kwire.session.sasl.exchange import Run, SaslClient, is_utf8
from kwire.session.sasl.kerberos import KerberosLogin
from kwire.session.sasl.oauth import Secret, TokenCallable, TokenEndpoint, TokenResult, TokenSource
from kwire.session.sasl.scram import HASHES, Nonce, ScramClient

PASSWORD_MECHANISMS = ("PLAIN", *HASHES)
MECHANISMS = (*PASSWORD_MECHANISMS, oauth.MECHANISM, kerberos.MECHANISM, aws.MECHANISM)


def new_nonce() -> str:
    """Return 192 random bits in characters that SCRAM allows (no comma)."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True, repr=False)
class Sasl:
    """Credentials. `mechanism` is one of MECHANISMS. Can be pickled; its repr never shows a secret.

    PLAIN and the SCRAM mechanisms take a user name and a password. The password may be a function that returns it: it
    is called for each authentication, on a thread that may wait. PLAIN sends the password in clear text: use it with
    TLS only. The other mechanisms have a constructor each, such as `Sasl.oauth`.

    >>> Sasl("PLAIN", "alice", "secret")
    Sasl(mechanism='PLAIN', username='alice')
    """

    mechanism: str
    username: str = ""
    password: Secret = ""
    # Of mechanisms without a password. Mappings have no hash; without these two a Sasl can still be part of a key.
    tokens: TokenSource | KerberosLogin | AwsMskLogin | None = field(default=None, hash=False)
    extensions: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_delegation_token: bool = False  # of SCRAM

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise ConfigurationError(
                f"SASL mechanism {self.mechanism!r} is not supported", remedy=f"use one of {', '.join(MECHANISMS)}"
            )
        if self.mechanism == oauth.MECHANISM:
            if self.tokens is None:
                raise ConfigurationError(
                    "SASL OAUTHBEARER needs to know where tokens come from",
                    remedy="use kwire.Sasl.oauth(function), Sasl.oauth_client_credentials(...) or oauth_assertion(...)",
                )
            oauth.check_extensions(self.extensions)
        elif self.mechanism == kerberos.MECHANISM:
            if not isinstance(self.tokens, KerberosLogin):
                raise ConfigurationError(
                    "SASL GSSAPI needs to know where tickets come from", remedy="use kwire.Sasl.kerberos(...)"
                )
        elif self.mechanism == aws.MECHANISM:
            if not isinstance(self.tokens, AwsMskLogin):
                raise ConfigurationError(
                    "SASL AWS_MSK_IAM needs to know where credentials come from",
                    remedy='use kwire.Sasl.aws_msk_iam(mechanism="AWS_MSK_IAM")',
                )
        elif self.mechanism in PASSWORD_MECHANISMS:
            self._check_password()

    def _check_password(self) -> None:
        is_secret = isinstance(self.password, str) or callable(self.password)
        if not isinstance(self.username, str) or not is_secret or not self.username:
            raise ConfigurationError(f"SASL {self.mechanism} needs a user name and a password, both str")
        text = self.username + (self.password if isinstance(self.password, str) else "")
        if self.mechanism == "PLAIN" and "\0" in text:
            raise ConfigurationError("SASL PLAIN cannot carry a NUL character in user name or password")
        if not is_utf8(text):
            raise ConfigurationError(
                f"SASL {self.mechanism} cannot carry user name or password: they are not UTF-8",
                remedy="check how they were read: environment variables in another encoding become lone surrogates",
            )
        if self.is_delegation_token and self.mechanism not in HASHES:
            raise ConfigurationError("delegation tokens log in by SCRAM", remedy=f"use {' or '.join(HASHES)}")

    # -- constructors

    @classmethod
    def oauth(
        cls,
        token: Callable[[], TokenResult | Awaitable[TokenResult]],
        *,
        extensions: Mapping[str, str] | None = None,
    ) -> Self:
        """OAUTHBEARER with a function or coroutine function that returns a token.

        It returns a JWT, or (token, when it expires in seconds since 1970). It is called ahead of the token's expiry,
        on a thread that may wait; a coroutine function of an asyncio client runs in that client's event loop.
        """
        if not callable(token):
            raise ConfigurationError(f"token is {type(token).__name__}", remedy="give a function that returns a token")
        return cls(oauth.MECHANISM, tokens=TokenCallable(token), extensions=extensions or {})

    @classmethod
    def oauth_client_credentials(
        cls,
        token_url: str,
        client_id: str,
        client_secret: Secret,
        *,
        scope: str | None = None,
        urlencode_header: bool = False,
        ca_file: str | None = None,
        extensions: Mapping[str, str] | None = None,
    ) -> Self:
        """OAUTHBEARER with tokens that a server gives for a client's id and secret (OIDC, KIP-768).

        `urlencode_header` encodes id and secret as RFC 6749 2.3.1 says, which most servers don't want. `ca_file` has
        the authorities of the token server, None: those of the system. Proxies come from the environment.
        """
        if not isinstance(client_id, str) or not client_id:
            raise ConfigurationError("client_id is empty or no str")
        if not (callable(client_secret) or isinstance(client_secret, str)):
            raise ConfigurationError(
                f"client_secret is {type(client_secret).__name__}", remedy="give a str, or a function that returns one"
            )
        source = TokenEndpoint(
            token_url, client_id, client_secret, scope=scope, urlencode_header=urlencode_header, ca_file=ca_file
        )
        return cls(oauth.MECHANISM, tokens=source, extensions=extensions or {})

    @classmethod
    def oauth_assertion(
        cls,
        token_url: str,
        *,
        file: str | None = None,
        private_key: str | None = None,
        key_password: str | None = None,
        algorithm: str = "RS256",
        claims: Mapping[str, Any] | None = None,
        template: str | None = None,
        has_id: bool = False,
        grant: str = "jwt_bearer",
        client_id: str | None = None,
        scope: str | None = None,
        ca_file: str | None = None,
        extensions: Mapping[str, str] | None = None,
    ) -> Self:
        """OAUTHBEARER with tokens that a server gives for a JWT assertion (RFC 7523).

        The assertion is ready in `file`, or is signed by `private_key`, a PEM file, with `claims` such as {"iss": ...,
        "sub": ..., "aud": ...}; both files are read again each time. `grant` "jwt_bearer" (KIP-1139) is the usual;
        "client_credentials" puts the assertion in the place of a client's secret (KIP-1258). Signing needs the extra
        `oauth`.
        """
        if grant not in ("jwt_bearer", "client_credentials"):
            raise ConfigurationError(f"grant is {grant!r}", remedy="use jwt_bearer or client_credentials")
        assertion = Assertion(
            file, private_key, algorithm, key_password, {} if claims is None else claims, template, has_id=has_id
        )  # fmt: skip
        source = TokenEndpoint(token_url, client_id, assertion=assertion, grant=grant, scope=scope, ca_file=ca_file)
        return cls(oauth.MECHANISM, tokens=source, extensions=extensions or {})

    @classmethod
    def oauth_file(cls, path: str, *, extensions: Mapping[str, str] | None = None) -> Self:
        """OAUTHBEARER with the JWT in a file, which is read again ahead of its expiry."""
        return cls(oauth.MECHANISM, tokens=oauth.TokenFile(path), extensions=extensions or {})

    @classmethod
    def aws_msk_iam(
        cls,
        region: str | None = None,
        *,
        profile: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        mechanism: str = "OAUTHBEARER",
    ) -> Self:
        """AWS MSK with IAM, by requests that are signed here; use it with TLS.

        Credentials are those that botocore finds (the extra `aws`), or static keys. `mechanism` "OAUTHBEARER" sends the
        signed request as a token; "AWS_MSK_IAM" is that of aws-msk-iam-auth, where a proxy or an older cluster has only
        that. Without `region` it is that of the environment, AWS_REGION or AWS_DEFAULT_REGION; with AWS_MSK_IAM first
        the one in the broker's host name.
        """
        if mechanism not in (oauth.MECHANISM, aws.MECHANISM):
            raise ConfigurationError(f"mechanism is {mechanism!r:.60}", remedy="use OAUTHBEARER or AWS_MSK_IAM")
        if (access_key is None) != (secret_key is None):
            raise ConfigurationError("one of access_key and secret_key is missing", remedy="give both or none")
        keys = None
        if access_key is not None and secret_key is not None:
            for name, key in (("access_key", access_key), ("secret_key", secret_key), ("session_token", session_token)):
                if (name != "session_token" or key is not None) and (not isinstance(key, str) or not key):
                    what = "empty" if key == "" else type(key).__name__
                    raise ConfigurationError(f"{name} is {what}", remedy="give a str, or neither key for botocore's")
            keys = AwsKeys(access_key, secret_key, session_token)
        elif session_token is not None:
            raise ConfigurationError("session_token is given without keys", remedy="give access_key and secret_key")
        if mechanism == aws.MECHANISM:
            return cls(mechanism, tokens=AwsMskLogin(region, profile, keys))
        return cls(mechanism, tokens=AwsMskToken(region or region_of(), profile, keys))

    @classmethod
    def kerberos(
        cls,
        service: str = "kafka",
        *,
        principal: str | None = None,
        keytab: str | None = None,
        ccache: str | None = None,
        password: Secret | None = None,
    ) -> Self:
        """GSSAPI with Kerberos 5, which needs the extra `kerberos`.

        `service` is the first part of the brokers' principals, as in kafka/host@REALM. Tickets come from a `keytab`
        file, from the `password` of `principal`, or from a credential cache: `ccache`, such as "/tmp/krb5cc_1000", else
        the one that kinit uses. `principal` chooses among several, and may lack its realm. krb5.conf says where the key
        distribution centre is.
        """
        return cls(kerberos.MECHANISM, tokens=KerberosLogin(service, principal, keytab, ccache, password))

    @classmethod
    def delegation_token(cls, token_id: str, hmac: str | bytes, mechanism: str = "SCRAM-SHA-512") -> Self:
        """SCRAM with a delegation token (KIP-48), as `admin.tokens.create` returns it.

        `hmac` is bytes, or their base64 text as Kafka's tools print it.
        """
        text = base64.b64encode(hmac).decode() if isinstance(hmac, bytes) else hmac
        return cls(mechanism, token_id, text, is_delegation_token=True)

    # -- use

    def require_package(self) -> None:
        """Raise ConfigurationError if the package that the mechanism needs cannot be imported."""
        if self.mechanism == kerberos.MECHANISM:
            kerberos.load_gssapi()

    @property
    def identity(self) -> str:
        """Return who logs in, for errors; no secret."""
        if self.tokens is not None:
            return f"a token of {self.tokens.title}" if self.mechanism == oauth.MECHANISM else self.tokens.title
        return f"{'delegation token' if self.is_delegation_token else 'user'} {self.username!r}"

    @property
    def principal(self) -> str:
        """Whom a broker takes the client for, if it maps no names: "User:alice"; else what the client logs in with."""
        if self.tokens is None and not self.is_delegation_token:
            return f"User:{self.username}"
        return self.identity

    def client(self, nonce: Nonce = new_nonce, run: Run | None = None) -> SaslClient:
        """Return a new exchange with a password that is no callable. `run` is that of `ScramClient`."""
        if not isinstance(self.password, str) or self.mechanism not in PASSWORD_MECHANISMS:
            raise ConfigurationError("these credentials take time: a Session needs a Login, which a client has")
        return self.password_client(self.password, nonce, run)

    def exchange(self, host: str) -> SaslClient:
        """Return a new exchange with any broker: as `client`."""
        return self.client()

    def password_client(self, password: str, nonce: Nonce = new_nonce, run: Run | None = None) -> SaslClient:
        """Return a new exchange of a mechanism with passwords. Raises LoginError for one that cannot be sent."""
        if self.mechanism == "PLAIN":
            if "\0" in password:
                raise LoginError(f"SASL PLAIN cannot carry the NUL character in the password of {self.identity}")
            return PlainClient(self.username, password)
        return ScramClient(
            HASHES[self.mechanism],
            self.username,
            password,
            nonce(),
            is_delegation_token=self.is_delegation_token,
            run=run,
        )

    def __repr__(self) -> str:
        shown = {name: value for name, value in self._shown().items() if value}
        return f"Sasl({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _shown(self) -> dict[str, object]:
        return {
            "mechanism": self.mechanism,
            "username": self.username,
            "tokens": self.tokens,
            "extensions": tuple(self.extensions),
            "is_delegation_token": self.is_delegation_token,
        }


class PlainClient:
    """RFC 4616: one message, which the broker accepts with an empty challenge."""

    refusal = ""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()
        self.is_done = False

    def start(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        self.is_done = True
        return None
