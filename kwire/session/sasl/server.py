"""The broker's users, and its side of each mechanism."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kwire.errors import ConfigurationError
from kwire.session.sasl.client import MECHANISMS, new_nonce
from kwire.session.sasl.scram import HASHES, ITERATIONS_MIN, ScramError, ScramServer, StoredPassword

_SALT_BYTES = 16


class SaslExchange(Protocol):
    """One client's exchange. `step` returns the challenge for a token, or raises ScramError.

    `username` is the authenticated user once `is_done` is true.
    """

    @property
    def is_done(self) -> bool: ...

    @property
    def username(self) -> str | None: ...

    def step(self, message: bytes) -> bytes: ...


@dataclass(eq=False)
class SaslServer:
    """The users of a broker: {name: password}. For tests and development, because it holds passwords in clear text.

    One object serves all connections. The salted keys of SCRAM are computed on a user's first use and kept.
    """

    users: Mapping[str, str] = field(repr=False)
    mechanisms: Sequence[str] = MECHANISMS
    iterations: int = ITERATIONS_MIN
    nonce: Callable[[], str] = field(default=new_nonce, repr=False)
    _stored: dict[tuple[str, str], StoredPassword] = field(default_factory=dict, init=False, repr=False)
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), init=False, repr=False)

    def __post_init__(self) -> None:
        unknown = [name for name in self.mechanisms if name not in MECHANISMS]
        if unknown or not self.mechanisms:
            raise ConfigurationError(
                f"SASL mechanisms {', '.join(unknown) or '(none)'} are not supported",
                remedy=f"use {', '.join(MECHANISMS)}",
            )

    def exchange(self, mechanism: str) -> SaslExchange:
        """Return a new exchange of one of `mechanisms`."""
        if mechanism == "PLAIN":
            return _PlainExchange(self.users)
        hash_name = HASHES[mechanism]
        return ScramServer(hash_name, lambda username: self._lookup(hash_name, username), self.nonce())

    def _lookup(self, hash_name: str, username: str) -> StoredPassword:
        # An unknown user gets a constant salt, as a known user does, and keys that match no password.
        salt = hmac.digest(self._secret, f"{hash_name} {username}".encode(), "sha256")[:_SALT_BYTES]
        if username not in self.users:
            return StoredPassword(salt, self.iterations, secrets.token_bytes(32), secrets.token_bytes(32))
        key = hash_name, username
        if key not in self._stored:
            self._stored[key] = StoredPassword.of(
                self.users[username], hash_name=hash_name, salt=salt, iterations=self.iterations
            )
        return self._stored[key]


class _PlainExchange:
    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.username: str | None = None
        self.is_done = False

    def step(self, message: bytes) -> bytes:
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise ScramError("a message that is not PLAIN")
        identity, username, password = (part.decode("utf-8", "replace") for part in parts)
        if identity not in ("", username):
            raise ScramError("authorisation identities are not supported")
        expected = self._users.get(username)
        given = password.encode("utf-8", "replace")
        # Compare in any case, so that the duration does not reveal whether the user exists.
        fits = hmac.compare_digest((expected or "").encode(), given)
        if expected is None or not fits:
            raise ScramError("invalid credentials")
        self.username = username
        self.is_done = True
        return b""
