"""JWT assertions (RFC 7523): a client proves by a private key who it is. Signing needs the extra `oauth` (PyJWT).

Files are read again for each assertion, because both kinds are replaced while the client runs.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kwire.errors import ConfigurationError, LoginError
from kwire.session.sasl.exchange import check_path

ALGORITHMS = ("RS256", "ES256", "PS256")


@dataclass(frozen=True)
class Assertion:
    """An assertion that is ready in `file`, or one that `private_key` (a PEM file) signs.

    `claims` are aud, iss, sub and others; `exp`, `nbf` and `iat` are made of the times here, and `jti` is a new UUID
    where `has_id`. `template` is a JSON file {"header": {...}, "payload": {...}} that `claims` complete.
    """

    file: str | None = None
    private_key: str | None = None
    algorithm: str = "RS256"
    key_password: str | None = field(default=None, repr=False)
    claims: Mapping[str, Any] = field(default_factory=dict)
    template: str | None = None
    lifetime_seconds: int = 300
    not_before_seconds: int = 60
    has_id: bool = False

    def __post_init__(self) -> None:
        if (self.file is None) == (self.private_key is None):
            raise ConfigurationError(
                "an assertion needs a file or a private key", remedy="give one of file= and private_key="
            )
        for option in ("file", "private_key", "template"):
            if getattr(self, option) is not None:
                check_path(option, getattr(self, option))
        if not isinstance(self.claims, Mapping):
            raise ConfigurationError(f"claims is {type(self.claims).__name__}", remedy='give a dict: {"sub": "me"}')
        if self.key_password is not None and not isinstance(self.key_password, str):
            raise ConfigurationError(f"key_password is {type(self.key_password).__name__}", remedy="give a str")
        if self.algorithm not in ALGORITHMS:
            raise ConfigurationError(
                f"assertion algorithm {self.algorithm!r} is not supported", remedy=f"use {', '.join(ALGORITHMS)}"
            )

    def text(self, now: float) -> str:
        """Return the assertion for a token request at `now`, in seconds since 1970. Raises LoginError."""
        if self.file is not None:
            return _read(self.file, "assertion file").strip()
        assert self.private_key is not None
        header, claims = self._template()
        claims |= {
            **self.claims,
            "iat": int(now),
            "exp": int(now) + self.lifetime_seconds,
            "nbf": int(now) - self.not_before_seconds,
        }
        if self.has_id:
            claims["jti"] = str(uuid.uuid4())
        return self._signed(header, claims, _read(self.private_key, "private key"))

    def _template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.template is None:
            return {}, {}
        try:
            fields = json.loads(_read(self.template, "assertion template"))
            return dict(fields.get("header", {})), dict(fields.get("payload", {}))
        except (ValueError, TypeError, AttributeError):
            raise LoginError(
                f"the assertion template {self.template!r} is not JSON with header and payload",
                remedy='write {"header": {...}, "payload": {...}}',
            ) from None

    def _signed(self, header: dict[str, Any], claims: dict[str, Any], key: str) -> str:
        try:
            import jwt
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError:
            raise ConfigurationError(
                "signing assertions needs PyJWT and cryptography", remedy="pip install kwire[oauth]"
            ) from None
        password = self.key_password.encode() if self.key_password is not None else None
        try:
            private: Any = load_pem_private_key(key.encode(), password)
            return jwt.encode(claims, private, algorithm=self.algorithm, headers={**header, "typ": "JWT"})
        except (ValueError, TypeError, jwt.PyJWTError):
            raise LoginError(
                f"the private key {self.private_key!r} cannot sign with {self.algorithm}",
                remedy="give an unbroken PEM file, its key_password if it is encrypted, and the algorithm of the key",
            ) from None


def _read(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise LoginError(
            f"cannot read the {what} {path!r}: {reason}", may_retry=True, remedy="check the path"
        ) from None
