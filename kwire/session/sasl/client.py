"""The client's side: who we are, and the mechanism's messages."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Protocol

from kwire.errors import ConfigurationError
from kwire.session.sasl.scram import HASHES, Nonce, ScramClient

MECHANISMS = ("PLAIN", *HASHES)


def new_nonce() -> str:
    """192 random bits in letters that SCRAM allows (no comma)."""
    return secrets.token_urlsafe(24)


class SaslClient(Protocol):
    """One exchange: `start` gives the first message, `step` the answer to each of the broker's, None for no answer.

    Raises ScramError when the broker's message cannot be accepted. `is_done` says that the broker has proved what the
    mechanism lets it prove.
    """

    @property
    def is_done(self) -> bool: ...

    def start(self) -> bytes: ...

    def step(self, challenge: bytes) -> bytes | None: ...


@dataclass(frozen=True)
class Sasl:
    """Credentials. `mechanism` is one of MECHANISMS. Pickles, and never shows its password.

    PLAIN sends the password as it is: use it over TLS only.

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
        """A fresh exchange."""
        if self.mechanism == "PLAIN":
            return _PlainClient(self.username, self.password)
        return ScramClient(HASHES[self.mechanism], self.username, self.password, nonce())


class _PlainClient:
    """RFC 4616: one message, which an empty answer accepts."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()
        self.is_done = False

    def start(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        self.is_done = True
        return None
