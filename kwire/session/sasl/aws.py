"""Tokens for AWS MSK: a presigned URL (Signature Version 4) as an OAUTHBEARER token.

The signature is made here, so that static keys need no library; every other source of credentials (profiles, roles,
instances, containers) is botocore's, which is the extra `aws`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from kwire.errors import ConfigurationError, LoginError
from kwire.session.sasl.exchange import LoginTools
from kwire.session.sasl.oauth import Token
from kwire.version import VERSION

LIFETIME_SECONDS = 900
_SERVICE = "kafka-cluster"
_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY_HASH = hashlib.sha256(b"").hexdigest()


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
        keys = self.keys if self.keys is not None else _botocore_keys(self.profile)
        now = tools.unix_time()
        left = LIFETIME_SECONDS if keys.expires_at is None else min(LIFETIME_SECONDS, int(keys.expires_at - now))
        if left <= 0:
            raise LoginError("the credentials of AWS have expired", may_retry=True, remedy="renew them")
        url = presigned_url(keys, self.region, now) + "&User-Agent=" + quote(f"kwire/{VERSION}", safe="")
        value = base64.urlsafe_b64encode(url.encode()).rstrip(b"=").decode()
        return Token(value, now, now + left, keys.access_key)


def presigned_url(keys: AwsKeys, region: str, now: float) -> str:
    """Return the URL that says "this is me, for 15 minutes", signed."""
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    host = f"kafka.{region}.{suffix}"
    query = {"Action": "kafka-cluster:Connect", **_signed_fields(keys, region, now)}
    text = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in query.items())
    signature = _signature(keys.secret_key, region, host, query)
    return f"https://{host}/?{text}&X-Amz-Signature={signature}"


def _signed_fields(keys: AwsKeys, region: str, now: float) -> dict[str, str]:
    time = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
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
