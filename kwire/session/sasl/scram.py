"""SCRAM (RFC 5802) with SHA-256 and SHA-512 (RFC 7677, and Kafka's KIP-84), for client and broker.

There is no SASLprep: Kafka uses the UTF-8 bytes of names and passwords, so
a client that normalised them would compute another key than the broker has for a password like "ﬁsh".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kwire.session.sasl.exchange import ClientMessage, Deferred, Run, SaslError, on_one_line

# RFC 7677 and Kafka require at least 4096. The upper bound limits what a hostile broker can make a client compute.
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 1_000_000
# About 10 ms. More of them would stop the other connections of a loop; fewer are not worth a thread.
ITERATIONS_AT_ONCE = 20_000
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# "n,,": no channel binding and no authorisation identity. The client repeats it in base64 as c=biws.
_GS2_HEADER = "n,,"
_CHANNEL = base64.b64encode(_GS2_HEADER.encode()).decode()

# The extension with which user and password are the id and the HMAC of a delegation token (KIP-48).
_TOKEN_AUTH = ",tokenauth=true"

Nonce = Callable[[], str]


@dataclass(frozen=True, slots=True, repr=False)
class StoredPassword:
    """The keys that a server stores for a password: enough to check a proof, not enough to make one."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, *, hash_name: str, salt: bytes, iterations: int) -> StoredPassword:
        salted = salted_password(hash_name, password, salt, iterations)
        return cls.of_salted(salted, hash_name=hash_name, salt=salt, iterations=iterations)

    @classmethod
    def of_salted(cls, salted: bytes, *, hash_name: str, salt: bytes, iterations: int) -> StoredPassword:
        return cls(
            salt,
            iterations,
            hashlib.new(hash_name, _mac(hash_name, salted, b"Client Key")).digest(),
            _mac(hash_name, salted, b"Server Key"),
        )


class ScramClient:
    """The client's side: `start`, then the proof for the challenge, then None for the server's signature.

    With `run` a proof of many iterations is a `Deferred`, which computes it there; otherwise it is computed at once.
    """

    refusal = ""

    def __init__(
        self,
        hash_name: str,
        username: str,
        password: str,
        nonce: str,
        *,
        is_delegation_token: bool = False,
        run: Run | None = None,
    ) -> None:
        self._hash = hash_name
        self._password = password
        self._nonce = nonce
        self._run = run
        self._first_bare = f"n={_escaped(username)},r={nonce}{_TOKEN_AUTH if is_delegation_token else ''}"
        self._server_signature: bytes | None = None
        self.is_done = False

    def start(self) -> bytes:
        return (_GS2_HEADER + self._first_bare).encode()

    def step(self, challenge: bytes) -> ClientMessage:
        """Return the next message, or None after the server's last one. Raises SaslError."""
        if self._server_signature is None:
            return self._answer(challenge)
        self._verify(challenge, self._server_signature)
        return None

    def _answer(self, challenge: bytes) -> ClientMessage:
        server_first = _text(challenge)
        fields = _fields(server_first)
        if "m" in fields:
            raise SaslError("the broker requires an unknown extension")
        nonce, salt, iterations = _need(fields, "r"), _decoded(_need(fields, "s")), _number(_need(fields, "i"))
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError("the broker's nonce does not continue ours: its message belongs to another exchange")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise SaslError(f"the broker requires {iterations} iterations, not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        proof = partial(self._prove, server_first, nonce, salt, iterations)
        if self._run is None or iterations <= ITERATIONS_AT_ONCE:
            return proof()
        return Deferred(partial(self._run, proof))

    def _prove(self, server_first: str, nonce: str, salt: bytes, iterations: int) -> bytes:
        salted = salted_password(self._hash, self._password, salt, iterations)
        without_proof = f"c={_CHANNEL},r={nonce}"
        signed = f"{self._first_bare},{server_first},{without_proof}".encode()
        client_key = _mac(self._hash, salted, b"Client Key")
        signature = _mac(self._hash, hashlib.new(self._hash, client_key).digest(), signed)
        self._server_signature = _mac(self._hash, _mac(self._hash, salted, b"Server Key"), signed)
        return f"{without_proof},p={_encoded(_xor(client_key, signature))}".encode()

    def _verify(self, final: bytes, expected: bytes) -> None:
        fields = _fields(_text(final))
        if "e" in fields:
            raise SaslError(f"the broker rejected it: {on_one_line(fields['e'])}")
        if not hmac.compare_digest(_decoded(_need(fields, "v")), expected):
            raise SaslError("the broker could not prove that it knows the password: it is not the right broker")
        self.is_done = True


class ScramServer:
    """The server's side. `lookup` returns the stored keys of a user, `token` those of a delegation token with its owner
    and its end; for an unknown one they must return keys that match no password, so that the exchange does not reveal
    whether the user exists."""

    def __init__(
        self,
        hash_name: str,
        lookup: Callable[[str], StoredPassword],
        nonce: str,
        token: Callable[[str], tuple[StoredPassword, str, float]] | None = None,
    ) -> None:
        self._hash = hash_name
        self._lookup = lookup
        self._token = token
        self._nonce = nonce
        self._stored: StoredPassword | None = None
        self._first_bare = self._server_first = ""
        self.username: str | None = None
        self.expires_at: float | None = None
        self.is_by_token = False
        self.is_done = False

    def step(self, message: bytes) -> bytes:
        """Return the reply to the client's message. Raises SaslError."""
        return self._challenge(message) if self._stored is None else self._check(message, self._stored)

    def _challenge(self, message: bytes) -> bytes:
        text = _text(message)
        if not text.startswith(_GS2_HEADER):
            raise SaslError("channel binding and authorisation identities are not supported")
        self._first_bare = text.removeprefix(_GS2_HEADER)
        fields = _fields(self._first_bare.removesuffix(_TOKEN_AUTH))
        if "m" in fields:
            raise SaslError("the client requires an unknown extension")
        self.username = _unescaped(_need(fields, "n"))
        if not self.username.isascii() or "\0" in self.username:  # Kafka's brokers cannot read such a message
            raise SaslError("a user name that is not ASCII")
        self._nonce = _need(fields, "r") + self._nonce
        if self._token is not None and self._first_bare.endswith(_TOKEN_AUTH):
            stored, self.username, self.expires_at = self._token(self.username)
            self.is_by_token = True
        else:
            stored = self._lookup(self.username)
        self._stored = stored
        self._server_first = f"r={self._nonce},s={_encoded(stored.salt)},i={stored.iterations}"
        return self._server_first.encode()

    def _check(self, message: bytes, stored: StoredPassword) -> bytes:
        text = _text(message)
        without_proof, _, proof_text = text.rpartition(",p=")
        fields = _fields(without_proof)
        proof = _decoded(proof_text)
        if not hmac.compare_digest(_need(fields, "r").encode(), self._nonce.encode()) or _need(fields, "c") != _CHANNEL:
            raise SaslError("the message belongs to another exchange")
        signed = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        signature = _mac(self._hash, stored.stored_key, signed)
        if len(proof) != len(signature):
            raise SaslError("the proof has the wrong length")
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), stored.stored_key):
            raise SaslError("invalid credentials")
        self.is_done = True
        return f"v={_encoded(_mac(self._hash, stored.server_key, signed))}".encode()


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def _mac(hash_name: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hash_name)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError("a message that is not UTF-8") from None


def _fields(text: str) -> dict[str, str]:
    """`r=...,s=...,i=...` by letter. Values may hold further equals signs."""
    fields: dict[str, str] = {}
    for part in text.split(","):
        letter, equals, value = part.partition("=")
        if not equals or len(letter) != 1 or letter in fields:
            raise SaslError("a message that is not SCRAM")
        fields[letter] = value
    return fields


def _need(fields: dict[str, str], letter: str) -> str:
    value = fields.get(letter)
    if not value:
        raise SaslError(f"a message without {letter}=")
    return value


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise SaslError("an iteration count that is no number")
    return int(text)


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslError("a value that is not base64") from None


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    """Return the inverse; an equals sign that escapes nothing is an error by RFC 5802."""
    if "=" in name.replace("=2C", "").replace("=3D", ""):
        raise SaslError("a user name that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")
