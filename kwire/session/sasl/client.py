"""SASL credentials, and the client's side of each mechanism."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Protocol

from kwire.errors import ConfigurationError
from kwire.session.sasl.scram import HASHES, Nonce, ScramClient

MECHANISMS = ("PLAIN", *HASHES)


def new_nonce() -> str:
    """Return 192 random bits in characters that SCRAM allows (no comma)."""
    return secrets.token_urlsafe(24)


class SaslClient(Protocol):
    """One exchange: `start` returns the first token, `step` the next one for a challenge of the broker, or None.

    `step` raises ScramError for a challenge that cannot be accepted. With `is_done` the exchange has succeeded.
    """

    @property
    def is_done(self) -> bool: ...

    def start(self) -> bytes: ...

    def step(self, challenge: bytes) -> bytes | None: ...


@dataclass(frozen=True)
class Sasl:
    """Credentials. `mechanism` is one of MECHANISMS. Can be pickled; its repr never shows the password.

    PLAIN sends the password in clear text: use it with TLS only.

    >>> Sasl("PLAIN", "alice", "secret")
    Sasl(mechanism='PLAIN', username='alice')
    """

    mechanism: str
    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise ConfigurationError(
                f"SASL mechanism {self.mechanism!r} is not supported", remedy=f"use one of {', '.join(MECHANISMS)}"
            )
        if not isinstance(self.username, str) or not isinstance(self.password, str) or not self.username:
            raise ConfigurationError(f"SASL {self.mechanism} needs a user name and a password, both str")
        if self.mechanism == "PLAIN" and "\0" in self.username + self.password:
            raise ConfigurationError("SASL PLAIN cannot carry a NUL character in user name or password")

    def client(self, nonce: Nonce = new_nonce) -> SaslClient:
        """Return a new exchange."""
        if self.mechanism == "PLAIN":
            return _PlainClient(self.username, self.password)
        return ScramClient(HASHES[self.mechanism], self.username, self.password, nonce())


class _PlainClient:
    """RFC 4616: one token, which the broker accepts with an empty challenge."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()
        self.is_done = False

    def start(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        self.is_done = True
        return None
