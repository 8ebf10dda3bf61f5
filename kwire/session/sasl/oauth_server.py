"""The broker's side of OAUTHBEARER: it verifies tokens by the keys of their issuer (JWKS), as Kafka's brokers do.

Signatures need the extra `oauth` (PyJWT with cryptography).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from kwire.errors import ConfigurationError
from kwire.session.sasl.exchange import SaslError, is_utf8
from kwire.session.sasl.oauth import number_of, parse_client_message, unverified_claims

_ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA")
_SKEW_SECONDS = 30.0

Jwks = Mapping[str, Any]


@dataclass(frozen=True)
class OAuthValidator:
    """Which tokens a broker accepts.

    `jwks` are the issuer's public keys: the JSON object, the path of a file that has it, or a function that returns it.
    A file is read and a function called again for a key that is not known yet. `allow_unsecured` accepts tokens without
    a signature: for development only. `audience` and `issuer` must be those of the token, `scope` one of its scopes.
    """

    jwks: Jwks | str | Callable[[], Jwks] | None = None
    audience: str | Sequence[str] | None = None
    issuer: str | None = None
    scope: str | None = None
    principal_claim: str = "sub"
    allow_unsecured: bool = False
    _keys: dict[str | None, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.jwks is None and not self.allow_unsecured:
            raise ConfigurationError(
                "the broker could accept no token", remedy="give jwks=, or allow_unsecured=True for development"
            )
        if self.jwks is not None:
            try:
                import jwt  # noqa: F401
            except ImportError:
                raise ConfigurationError("verifying tokens needs PyJWT", remedy="pip install kwire[oauth]") from None

    def claims(self, token: str, now: float) -> dict[str, Any]:
        """Return the claims of a valid token; raise SaslError with the reason for any other."""
        claims = self._verified(token)
        expires_at = number_of(claims.get("exp"))
        if expires_at is None or not isfinite(expires_at):
            raise SaslError("the token has no time of expiry")
        if expires_at + _SKEW_SECONDS <= now:
            raise SaslError(f"the token has expired {now - expires_at:,.0f} s ago")
        for name in ("nbf", "iat"):
            start = number_of(claims.get(name))
            if start is not None and start - _SKEW_SECONDS > now:
                raise SaslError(f"the token is not valid yet ({name} is {start - now:,.0f} s ahead)")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise SaslError(f"the token's issuer is {claims.get('iss')!r}")
        if self.audience is not None and not _texts(self.audience) & _texts(claims.get("aud")):
            raise SaslError(f"the token's audience is {claims.get('aud')!r}")
        if self.scope is not None and self.scope not in _texts(claims.get("scope")):
            raise SaslError(f"the token lacks the scope {self.scope!r}")
        principal = claims.get(self.principal_claim)
        if not isinstance(principal, str) or not principal or not is_utf8(principal):
            raise SaslError(f"the token has no claim {self.principal_claim!r}")
        return claims

    def _verified(self, token: str) -> dict[str, Any]:
        if token.endswith("."):  # no signature
            claims = unverified_claims(token)
            if not self.allow_unsecured or not claims:
                raise SaslError("the token has no signature")
            return claims
        if self.jwks is None:
            raise SaslError("the token has a signature, and the broker has no keys")
        import jwt

        try:
            key = self._key(jwt.get_unverified_header(token).get("kid"))
            unchecked = {f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}
            return dict(jwt.decode(token, key, algorithms=list(_ALGORITHMS), options=unchecked))  # type: ignore[arg-type]
        except (jwt.PyJWTError, RecursionError) as error:  # the second for JSON that is nested too deeply
            raise SaslError(f"the token cannot be verified: {error}") from None

    def _key(self, kid: str | None) -> Any:
        if kid not in self._keys:
            self._keys.clear()
            self._keys.update(self._read_keys())
        try:
            return self._keys[kid] if kid is not None else next(iter(self._keys.values()))
        except (KeyError, StopIteration):
            raise SaslError(f"there is no key {kid!r}") from None

    def _read_keys(self) -> dict[str | None, Any]:
        import jwt

        try:
            given = self.jwks() if callable(self.jwks) else self.jwks
            keys = json.loads(Path(given).read_text()) if isinstance(given, str) else given
            return {key.key_id: key for key in jwt.PyJWKSet.from_dict(dict(keys or {})).keys}
        except (OSError, ValueError, TypeError, jwt.PyJWTError) as error:
            raise SaslError(f"the keys cannot be read: {error}") from None


def _texts(value: object) -> set[str]:
    """Return the texts of a claim: one, a list, or several with spaces between them, as in `scope`."""
    if isinstance(value, str):
        return {value, *value.split()}
    return {one for one in value if isinstance(one, str)} if isinstance(value, (list, tuple)) else set()


class OAuthExchange:
    """The broker's side: one message; for a refused token an error in JSON, and the client's byte that ends it."""

    is_by_token = False

    def __init__(self, validator: OAuthValidator, now: Callable[[], float]) -> None:
        self._validator = validator
        self._now = now
        self._reason: str | None = None
        self.username: str | None = None
        self.expires_at: float | None = None
        self.extensions: Mapping[str, str] = {}
        self.is_done = False

    def step(self, message: bytes) -> bytes:
        if self._reason is not None:
            raise SaslError(self._reason)
        identity, token, extensions = parse_client_message(message)
        try:
            claims = self._validator.claims(token, self._now())
            principal = claims[self._validator.principal_claim]
            if identity not in ("", principal):
                raise SaslError("the authorisation identity is not the token's")
        except SaslError as error:
            self._reason = str(error)
            status = {"status": "invalid_token"}
            if self._validator.scope is not None:
                status["scope"] = self._validator.scope
            return json.dumps(status).encode()
        self.username, self.extensions = principal, extensions
        self.expires_at = float(claims["exp"])
        self.is_done = True
        return b""
