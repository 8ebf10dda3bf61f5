"""AWS MSK with IAM: a presigned request (Signature Version 4), as an OAUTHBEARER token or by mechanism AWS_MSK_IAM.

    OAUTHBEARER   the presigned URL of the region's endpoint is the token, which all connections share
    AWS_MSK_IAM   of aws-msk-iam-auth: one JSON message, signed for the host name of each broker

The signature is made here, so that static keys need no library; every other source of credentials (profiles, roles,
instances, containers) is botocore's, which is the extra `aws`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from kwire.errors import ConfigurationError, LoginError
from kwire.session.sasl.exchange import AWS_MSK_IAM, LoginTools, SaslError, parse_json
from kwire.session.sasl.oauth import Token
from kwire.version import VERSION

MECHANISM = AWS_MSK_IAM
LIFETIME_SECONDS = 900
_SERVICE = "kafka-cluster"
_ALGORITHM = "AWS4-HMAC-SHA256"
_VERSION = "2020_10_22"
_ACTION = "kafka-cluster:Connect"
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")
_EMPTY_HASH = hashlib.sha256(b"").hexdigest()
_TIME = "%Y%m%dT%H%M%SZ"
_SKEW_SECONDS = 300.0
_QUERY_FIELDS = (
    "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Security-Token",
)  # fmt: skip
_PAYLOAD_FIELDS = (
    "version", "host", "user-agent", "action", "x-amz-signature", *(name.lower() for name in _QUERY_FIELDS[:5]),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """Credentials of AWS. `expires_at` is in seconds since 1970, None for keys that do not expire."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None


@dataclass(frozen=True)
class AwsMskToken:
    """Tokens for a region, of static `keys`, or of those that botocore finds (for `profile`, if given)."""

    region: str
    profile: str | None = None
    keys: AwsKeys | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        return "AWS MSK IAM"

    def fetch(self, tools: LoginTools) -> Token:
        now = tools.unix_time()
        keys, left = _usable_keys(self.keys, self.profile, now)
        url = presigned_url(keys, self.region, now) + "&User-Agent=" + quote(f"kwire/{VERSION}", safe="")
        value = base64.urlsafe_b64encode(url.encode()).rstrip(b"=").decode()
        return Token(value, now, now + left, keys.access_key)


@dataclass(frozen=True)
class AwsMskLogin:
    """Logins by AWS_MSK_IAM. Without a `region` it is the one in the broker's host name, else the environment's."""

    region: str | None = None
    profile: str | None = None
    keys: AwsKeys | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        return "AWS MSK IAM"

    def fetch(self, tools: LoginTools) -> AwsMskSigner:
        now = tools.unix_time()
        keys, left = _usable_keys(self.keys, self.profile, now)
        return AwsMskSigner(keys, self.region, now, now + left, tools.unix_time)


@dataclass(frozen=True, slots=True)
class AwsMskSigner:
    """Credentials that sign a message for each broker. Times are seconds since 1970."""

    keys: AwsKeys
    region: str | None
    issued_at: float
    expires_at: float
    unix_time: Callable[[], float] = field(repr=False)

    def client(self, host: str) -> AwsMskClient:
        """Return an exchange with the broker of this host name. Raises ConfigurationError without a region."""
        found = _HOST.search(host.lower())
        region = self.region or (found[1] if found else region_of())
        return AwsMskClient(authentication_payload(self.keys, region, host, self.unix_time()))


class AwsMskClient:
    """The client's side: one signed message, which the broker accepts by a JSON object with a request id."""

    refusal = ""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self.is_done = False

    def start(self) -> bytes:
        return self._payload

    def step(self, challenge: bytes) -> bytes | None:
        if not challenge:
            raise SaslError("the broker did not accept the signed request: its response is empty")
        try:
            version = parse_json(challenge)["version"]
        except (ValueError, KeyError, TypeError):
            raise SaslError("the response is not that of AWS_MSK_IAM") from None
        if version != _VERSION:
            raise SaslError(f"the broker responds in version {version!r:.20} of AWS_MSK_IAM, not {_VERSION}")
        self.is_done = True
        return None


def authentication_payload(keys: AwsKeys, region: str, host: str, now: float) -> bytes:
    """Return the client's message of AWS_MSK_IAM, in JSON, for the broker of a host name."""
    query = {"Action": _ACTION, **_signed_fields(keys, region, now)}
    fields = {"version": _VERSION, "host": host, "user-agent": f"kwire/{VERSION}"}
    fields |= {name.lower(): value for name, value in query.items()}
    fields["x-amz-signature"] = _signature(keys.secret_key, region, host, query)
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True)
class AwsMskValidator:
    """Which access keys a broker accepts by AWS_MSK_IAM: {access key: secret key}. For tests: it has the secrets.

    The user's name is the access key; in MSK it would be the ARN of the role or user.
    """

    keys: Mapping[str, str] = field(repr=False)

    def verify(self, message: bytes, now: float) -> tuple[str, float]:
        """Return the access key of a valid message, and when its signature ends. Raises SaslError with the reason."""
        try:
            fields = parse_json(message)
            given = {name: fields[name] for name in _PAYLOAD_FIELDS}
        except (ValueError, KeyError, TypeError):
            raise SaslError("a message that is not AWS_MSK_IAM") from None
        given |= {name: fields[name] for name in ("x-amz-security-token",) if name in fields}
        if not all(isinstance(value, str) and value.isascii() for value in given.values()):
            raise SaslError("a message that is not AWS_MSK_IAM")
        if (given["version"], given["action"], given["x-amz-algorithm"]) != (_VERSION, _ACTION, _ALGORITHM):
            raise SaslError("a version, an action or an algorithm that is not known")
        access_key, _, scope = given["x-amz-credential"].partition("/")
        region = scope.split("/")[1] if scope.count("/") == 3 else ""
        secret_key = self.keys.get(access_key, "")
        names = {"Action": "action", **{name: name.lower() for name in _QUERY_FIELDS if name.lower() in given}}
        query = {name: given[of] for name, of in names.items()}
        expected = _signature(secret_key, region, given["host"], query)
        if not secret_key or not hmac.compare_digest(expected, given["x-amz-signature"]):
            raise SaslError("the access key is not known, or the signature is wrong")
        try:
            signed_at = datetime.strptime(given["x-amz-date"], _TIME).replace(tzinfo=UTC).timestamp()
            expires_at = signed_at + int(given["x-amz-expires"])
        except (ValueError, OverflowError):
            raise SaslError("a time that cannot be read") from None
        if not signed_at - _SKEW_SECONDS <= now < expires_at:
            raise SaslError(f"the signature is {now - signed_at:,.0f} s old, or from a clock that is wrong")
        return access_key, expires_at


class AwsMskExchange:
    """The broker's side of AWS_MSK_IAM."""

    is_by_token = False

    def __init__(self, validator: AwsMskValidator, now: Callable[[], float]) -> None:
        self._validator = validator
        self._now = now
        self.username: str | None = None
        self.expires_at: float | None = None
        self.is_done = False

    def step(self, message: bytes) -> bytes:
        self.username, self.expires_at = self._validator.verify(message, self._now())
        self.is_done = True
        return json.dumps({"version": _VERSION, "request-id": "embedded"}, separators=(",", ":")).encode()


def presigned_url(keys: AwsKeys, region: str, now: float) -> str:
    """Return the URL that says "this is me, for 15 minutes", signed."""
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    host = f"kafka.{region}.{suffix}"
    query = {"Action": _ACTION, **_signed_fields(keys, region, now)}
    text = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in query.items())
    signature = _signature(keys.secret_key, region, host, query)
    return f"https://{host}/?{text}&X-Amz-Signature={signature}"


def _signed_fields(keys: AwsKeys, region: str, now: float) -> dict[str, str]:
    time = datetime.fromtimestamp(now, UTC).strftime(_TIME)
    fields = {
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{keys.access_key}/{time[:8]}/{region}/{_SERVICE}/aws4_request",
        "X-Amz-Date": time,
        "X-Amz-Expires": str(LIFETIME_SECONDS),
        "X-Amz-SignedHeaders": "host",
    }
    return fields if keys.session_token is None else {**fields, "X-Amz-Security-Token": keys.session_token}


def _signature(secret_key: str, region: str, host: str, query: Mapping[str, str]) -> str:
    """Return the signature of a GET request without a body (Signature Version 4)."""
    time = query["X-Amz-Date"]
    canonical = "&".join(f"{name}={quote(query[name], safe='-_.~')}" for name in sorted(query))
    request = f"GET\n/\n{canonical}\nhost:{host}\n\nhost\n{_EMPTY_HASH}"
    scope = f"{time[:8]}/{region}/{_SERVICE}/aws4_request"
    to_sign = f"{_ALGORITHM}\n{time}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, to_sign.encode(), "sha256").hex()


def _usable_keys(static: AwsKeys | None, profile: str | None, now: float) -> tuple[AwsKeys, int]:
    """Return keys, and for how many seconds a signature by them holds. Raises LoginError."""
    keys = static if static is not None else _botocore_keys(profile)
    left = LIFETIME_SECONDS if keys.expires_at is None else min(LIFETIME_SECONDS, int(keys.expires_at - now))
    if left <= 0:
        raise LoginError("the credentials of AWS have expired", may_retry=True, remedy="renew them")
    return keys, left


def _botocore_keys(profile: str | None) -> AwsKeys:
    try:
        import botocore.session
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise ConfigurationError(
            "finding credentials of AWS needs botocore", remedy="pip install kwire[aws], or give access and secret key"
        ) from None
    try:
        credentials: Any = botocore.session.Session(profile=profile).get_credentials()
        if credentials is None:
            raise LoginError(
                "botocore finds no credentials of AWS", remedy="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and its secret"
            )
        expiry = getattr(credentials, "_expiry_time", None)
        frozen = credentials.get_frozen_credentials()
    except BotoCoreError as error:
        raise LoginError(f"botocore has no credentials of AWS: {error}", may_retry=True, remedy="see its log") from None
    expires_at = expiry.timestamp() if isinstance(expiry, datetime) else None
    return AwsKeys(frozen.access_key, frozen.secret_key, frozen.token, expires_at)


def region_of(environment: Mapping[str, str] = os.environ) -> str:
    """Return the region that the environment names. Raises ConfigurationError."""
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigurationError("no region of AWS is given", remedy="give region=, or set AWS_REGION")
    return region
