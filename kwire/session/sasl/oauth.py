"""OAUTHBEARER (RFC 7628, KIP-255): tokens, the client's exchange, and what a token server is asked.

A source of tokens is a frozen description that can be pickled; `fetch(tools)` may block and runs on a thread that may
wait. What is read from a JWT here is not verified: that is the broker's part.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote_plus, urlencode, urlsplit

from kwire.errors import ConfigurationError, LoginError
from kwire.session.sasl.assertion import Assertion
from kwire.session.sasl.exchange import (
    HttpResponse,
    LoginTools,
    SaslError,
    check_path,
    is_utf8,
    on_one_line,
    parse_json,
)

MECHANISM = "OAUTHBEARER"
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750
_GOOD = (200, 201)
# A server that says one of these says it again: the request or the credentials are wrong (as in Java's client).
_FINAL = frozenset({*range(400, 408), *range(409, 416), 501, 505})


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. Times are seconds since 1970; `principal` is what the token says, for errors."""

    value: str = field(repr=False)
    issued_at: float
    expires_at: float
    principal: str = ""


# What a callable may return: the token, alone or with the time at which it expires in seconds since 1970.
TokenResult: TypeAlias = str | tuple[str, float]
Secret: TypeAlias = "str | Callable[[], str]"


class TokenSource(Protocol):
    """Where tokens come from. `title` names it in errors."""

    @property
    def title(self) -> str: ...

    def fetch(self, tools: LoginTools) -> Token:
        """Return a token. Raises LoginError; blocks."""
        ...


# -- sources


@dataclass(frozen=True)
class TokenCallable:
    """A function or coroutine function of the user's, which returns a `TokenResult`."""

    function: Callable[[], TokenResult | Awaitable[TokenResult]] = field(repr=False)

    @property
    def title(self) -> str:
        return "the token callable"

    def fetch(self, tools: LoginTools) -> Token:
        try:
            result = tools.call(self.function)
        except LoginError:
            raise
        except Exception as error:  # its text may hold a secret of the user's; its type cannot
            raise LoginError(
                f"the token callable raised {type(error).__name__}",
                may_retry=True,
                remedy="see the traceback of __cause__",
            ) from error
        value, expires_at = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        if not isinstance(value, str) or (expires_at is not None and number_of(expires_at) is None):
            raise LoginError(
                f"the token callable returned {type(result).__name__}",
                remedy="return the token as str, or (token, when it expires in seconds since 1970)",
            )
        return make_token(value, tools.unix_time(), expires_at=expires_at, title=self.title)


@dataclass(frozen=True)
class TokenFile:
    """A file that holds the token, such as a Kubernetes service account's. It is read again for each refresh."""

    path: str

    def __post_init__(self) -> None:
        check_path("path", self.path)

    @property
    def title(self) -> str:
        return f"the token file {self.path!r}"

    def fetch(self, tools: LoginTools) -> Token:
        return make_token(read_text(self.path, self.title), tools.unix_time(), title=self.title)


@dataclass(frozen=True)
class UnsecuredToken:
    """Tokens without a signature, for development: any broker that accepts them believes everything in them."""

    principal: str
    lifetime_seconds: int = 3600

    @property
    def title(self) -> str:
        return "the unsecured token"

    def fetch(self, tools: LoginTools) -> Token:
        now = int(tools.unix_time())
        claims = {"sub": self.principal, "iat": now, "exp": now + self.lifetime_seconds}
        return make_token(unsecured_jwt(claims), tools.unix_time(), title=self.title)


@dataclass(frozen=True)
class TokenEndpoint:
    """A token server. Without an `assertion` the client is known by its id and secret (client credentials).

    `grant` says what an assertion is: "jwt_bearer" (RFC 7523 2.1, KIP-1139), or "client_credentials", where it takes
    the place of the secret (RFC 7523 2.2, KIP-1258).
    """

    url: str
    client_id: str | None = None
    client_secret: Secret | None = field(default=None, repr=False)
    assertion: Assertion | None = field(default=None, repr=False)
    grant: str = "client_credentials"
    scope: str | None = None
    urlencode_header: bool = False
    ca_file: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise ConfigurationError(f"token_url is {type(self.url).__name__}", remedy="give a URL, a str")
        if re.match(r"[^/?#]*//[^/?#]*@", self.url):
            raise ConfigurationError("token_url holds a user name or password", remedy="give client_id, client_secret")
        if not _is_http(self.url):
            raise ConfigurationError(
                f"token_url is {self.url!r}", remedy="give a URL that begins with https://, in ASCII without spaces"
            )
        if self.scope is not None and not isinstance(self.scope, str):
            raise ConfigurationError(
                f"scope is {type(self.scope).__name__}", remedy="give a str, with a space between several"
            )
        if isinstance(self.client_secret, str) and not is_utf8(self.client_secret):
            raise ConfigurationError("client_secret is not UTF-8", remedy="check how it was read")

    @property
    def title(self) -> str:
        return f"the token server {self.url}"

    def fetch(self, tools: LoginTools) -> Token:
        headers, body = self.request(tools)
        response = tools.post(self.url, headers, body, self.ca_file)
        return token_of(response, tools.unix_time(), self.title)

    def request(self, tools: LoginTools) -> tuple[dict[str, str], bytes]:
        """Return headers and body of a token request."""
        headers = {
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        form: dict[str, str] = {}
        if self.assertion is not None:
            text = self.assertion.text(tools.unix_time())
            if self.grant == "jwt_bearer":
                form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": text}
            else:
                form = {
                    "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                    "client_assertion": text,
                    "grant_type": "client_credentials",
                    **({"client_id": self.client_id} if self.client_id is not None else {}),
                }
        else:
            headers["Authorization"] = f"Basic {self._basic(tools)}"
            form = {"grant_type": "client_credentials"}
        if self.scope is not None:
            form["scope"] = self.scope
        return headers, urlencode(form).encode()

    def _basic(self, tools: LoginTools) -> str:
        secret = secret_text(self.client_secret or "", tools, "client_secret")
        names = [self.client_id or "", secret]
        if self.urlencode_header:
            names = [quote_plus(name) for name in names]
        # The standard alphabet: servers refuse the URL-safe one (KAFKA-14496).
        return base64.b64encode(":".join(names).encode()).decode()


def _is_http(url: str) -> bool:
    """Return whether the standard library can send a request to a URL."""
    try:
        parts = urlsplit(url)
        is_known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_known and re.fullmatch(r"[!-~]+", url) is not None


def secret_text(secret: Secret, tools: LoginTools, name: str) -> str:
    """Return a secret, which may be a callable. Raises LoginError."""
    if isinstance(secret, str):
        return secret
    try:
        text = tools.call(secret)
    except LoginError:
        raise
    except Exception as error:
        raise LoginError(
            f"the callable of {name} raised {type(error).__name__}",
            may_retry=True,
            remedy="see the traceback of __cause__",
        ) from error
    if not isinstance(text, str):
        raise LoginError(f"the callable of {name} returned {type(text).__name__}", remedy="return a str")
    if not is_utf8(text):
        raise LoginError(f"the callable of {name} returned a text that is not UTF-8", remedy="check how it was read")
    return text


def read_text(path: str, title: str) -> str:
    """Return the text of a file without white space around it. Raises LoginError; a later try may succeed."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise LoginError(f"cannot read {title}: {reason}", may_retry=True, remedy="check the path") from None


# -- tokens


def token_of(response: HttpResponse, now: float, title: str) -> Token:
    """Return the token in a server's response. Raises LoginError with the status and the server's text."""
    if response.status not in _GOOD:
        raise LoginError(
            f"{title} responded with status {response.status}{_server_text(response.body)}",
            may_retry=response.status not in _FINAL and not 300 <= response.status < 400,
            remedy="check the URL: redirects are not followed"
            if 300 <= response.status < 400
            else "check the credentials and the scope, and see the server's log",
        )
    try:
        fields = parse_json(response.body)
    except ValueError:
        fields = None
    value = fields.get("access_token") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or not isinstance(value, str) or not value:
        raise LoginError(
            f"{title} responded with status {response.status}, but without access_token in JSON",
            may_retry=not response.body,  # the standard library takes a response that was cut in its head for empty
            remedy="check that the URL is the token endpoint",
        )
    given = fields.get("expires_in")
    if isinstance(given, str) and given.isascii() and given.isdigit():
        expires_in: float | None = float(given)
    else:
        expires_in = number_of(given)
    # A relative time does not depend on the server's clock.
    expires_at = None if expires_in is None else now + expires_in
    return make_token(value, now, expires_at=expires_at, title=title)


def make_token(value: str, now: float, *, expires_at: float | None = None, title: str) -> Token:
    """Return the token of a text that came from `title`; what it says of itself is not verified."""
    value = value.strip()
    if not _TOKEN.fullmatch(value):
        raise LoginError(f"{title} gave a text that is no token", remedy="a token has no spaces and no line ends")
    claims = unverified_claims(value)
    issued_at, end = number_of(claims.get("iat")), number_of(claims.get("exp")) if expires_at is None else expires_at
    if end is None or isnan(end):  # a NaN is never reached, nor ahead
        raise LoginError(
            f"{title} gave a token without a time of expiry",
            remedy="return (token, when it expires in seconds since 1970), or a JWT with the claim exp",
        )
    if end <= now:
        raise LoginError(
            f"{title} gave a token that has expired {now - end:,.0f} s ago",
            may_retry=True,
            remedy="check the clocks of this machine and of the server",
        )
    start = issued_at if issued_at is not None and issued_at < now and expires_at is None else now
    subject = claims.get("sub")
    return Token(value, start, float(end), subject if isinstance(subject, str) else "")


def unverified_claims(token: str) -> dict[str, Any]:
    """Return the claims of a JWT, {} for an opaque token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = parse_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def unsecured_jwt(claims: Mapping[str, Any]) -> str:
    """Return a JWT with the algorithm "none"."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
    return b".".join([*parts, b""]).decode()


def number_of(value: object) -> float | None:
    """Return a number of JSON; None for anything else, and for an integer that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _server_text(body: bytes) -> str:
    """Return what a server says in an error: the fields of RFC 6749 5.2, else the start of the text."""
    text = body.decode("utf-8", "replace")
    try:
        fields = parse_json(text)
    except ValueError:
        fields = None
    if isinstance(fields, dict) and "error" in fields:
        text = ": ".join(str(fields[name]) for name in ("error", "error_description") if fields.get(name))
    text = on_one_line(text)
    return f": {text}" if text else ""


# -- the exchange


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raise ConfigurationError for an extension that RFC 7628 does not allow."""
    for name, value in extensions.items():
        if not isinstance(name, str) or not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            raise ConfigurationError(
                f"SASL extension {name!r} is no name", remedy="use letters only; auth is the token's own"
            )
        if not isinstance(value, str) or not _EXTENSION_VALUE.fullmatch(value):
            raise ConfigurationError(f"the value of SASL extension {name!r} is not printable ASCII")


class OAuthClient:
    """The client's side: the token, and after a refusal the one byte that asks for the error."""

    def __init__(self, token: Token, extensions: Mapping[str, str]) -> None:
        fields = "".join(f"{name}={value}\x01" for name, value in extensions.items())
        self._message = f"n,,\x01auth=Bearer {token.value}\x01{fields}\x01".encode()
        self.refusal = ""
        self.is_done = False

    def start(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        if self.refusal:
            raise SaslError(f"the broker rejected the token: {self.refusal}")
        if not challenge:
            self.is_done = True
            return None
        self.refusal = on_one_line(challenge.decode("utf-8", "replace")) or "without a reason"
        return b"\x01"


def parse_client_message(message: bytes) -> tuple[str, str, dict[str, str]]:
    """Return the authorisation identity, the token and the extensions of the client's first message."""
    text = message.decode("utf-8", "replace")
    head, separator, rest = text.partition("\x01")
    match = re.fullmatch(r"n,(?:a=([^,]*))?,", head)
    if match is None or not separator or not rest.endswith("\x01\x01"):
        raise SaslError("a message that is not OAUTHBEARER")
    fields: dict[str, str] = {}
    for part in rest[:-2].split("\x01"):
        name, equals, value = part.partition("=")
        if not equals or not _EXTENSION_NAME.fullmatch(name) or name in fields:
            raise SaslError("a message that is not OAUTHBEARER")
        fields[name] = value
    scheme, _, token = fields.pop("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise SaslError("a message without a bearer token")
    return match[1] or "", token.strip(), fields
