"""The broker's users, and its side of each mechanism."""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kwire.errors import ConfigurationError
from kwire.session.sasl import aws, kerberos, oauth
from kwire.session.sasl.aws import AwsMskExchange, AwsMskValidator
from kwire.session.sasl.client import MECHANISMS, new_nonce
from kwire.session.sasl.exchange import SaslError, SaslExchange
from kwire.session.sasl.kerberos_server import KerberosAcceptor
from kwire.session.sasl.oauth_server import OAuthExchange, OAuthValidator
from kwire.session.sasl.scram import HASHES, ITERATIONS_MIN, ScramServer, StoredPassword

_SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class DelegationTokenLogin:
    """A delegation token as SCRAM needs it: its owner's name, and when it expires in seconds since 1970."""

    owner: str
    hmac: bytes = field(repr=False)
    expires_at: float


@dataclass(eq=False)
class SaslServer:
    """The users of a broker: {name: password}. For tests and development, because it holds passwords in clear text.

    `mechanisms` are by default all for which there is something to check: passwords always, OAUTHBEARER with `oauth`,
    GSSAPI with `kerberos`, AWS_MSK_IAM with `aws`.

    With `session_lifetime_ms` clients must authenticate again within that time (Kafka's connections.max.reauth.ms); 0
    means only before their token expires. `users` may be changed while the broker runs; so may SCRAM's keys and
    delegation tokens, by the methods here. One object serves all connections, on one thread. The salted keys of SCRAM
    are computed there when a user or a token logs in for the first time, and kept: with a million `iterations` that
    stops the broker for a second.
    """

    users: Mapping[str, str] = field(repr=False)
    mechanisms: Sequence[str] = ()
    iterations: int = ITERATIONS_MIN
    nonce: Callable[[], str] = field(default=new_nonce, repr=False)
    oauth: OAuthValidator | None = None
    kerberos: KerberosAcceptor | None = None
    aws: AwsMskValidator | None = None
    session_lifetime_ms: int = 0
    # Set by the embedded broker, whose clock may be virtual: seconds since 1970.
    unix_time: Callable[[], float] = field(default=lambda: 0.0, repr=False)
    # Set for SCRAM alone, None: deleted.
    _stored: dict[tuple[str, str], StoredPassword | None] = field(default_factory=dict, init=False, repr=False)
    # (mechanism, user or token): the password, and the keys that were computed for it.
    _computed: dict[tuple[str, str], tuple[str, StoredPassword]] = field(default_factory=dict, init=False, repr=False)
    _tokens: dict[str, DelegationTokenLogin] = field(default_factory=dict, init=False, repr=False)
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), init=False, repr=False)

    def __post_init__(self) -> None:
        has = {
            oauth.MECHANISM: self.oauth is not None,
            kerberos.MECHANISM: self.kerberos is not None,
            aws.MECHANISM: self.aws is not None,
        }
        possible = [name for name in MECHANISMS if has.get(name, True)]
        self.mechanisms = self.mechanisms or possible
        unknown = [name for name in self.mechanisms if name not in MECHANISMS]
        if unknown:
            raise ConfigurationError(
                f"SASL mechanisms {', '.join(unknown)} are not supported", remedy=f"use {', '.join(MECHANISMS)}"
            )
        lacking = [name for name in self.mechanisms if name not in possible]
        if lacking:
            raise ConfigurationError(
                f"the broker cannot check SASL {', '.join(lacking)}",
                remedy="give oauth=kwire.broker.OAuthValidator(...), kerberos=kwire.broker.KerberosAcceptor(keytab) or "
                "aws=kwire.broker.AwsMskValidator(keys)",
            )

    def exchange(self, mechanism: str) -> SaslExchange:
        """Return a new exchange of one of `mechanisms`."""
        if mechanism == "PLAIN":
            return _PlainExchange(self.users)
        if mechanism == oauth.MECHANISM:
            assert self.oauth is not None
            return OAuthExchange(self.oauth, self.unix_time)
        if mechanism == kerberos.MECHANISM:
            assert self.kerberos is not None
            return self.kerberos.exchange()
        if mechanism == aws.MECHANISM:
            assert self.aws is not None
            return AwsMskExchange(self.aws, self.unix_time)
        return ScramServer(
            HASHES[mechanism],
            lambda username: self._lookup(mechanism, username),
            self.nonce(),
            token=lambda token_id: self._token(mechanism, token_id),
        )

    # -- SCRAM's users

    def scram_users(self) -> dict[str, dict[str, int]]:
        """Return the iterations of each user by mechanism."""
        names = {*self.users, *(name for _, name in self._stored)}
        found = {name: self._scram_iterations(name) for name in sorted(names)}
        return {name: mechanisms for name, mechanisms in found.items() if mechanisms}

    def _scram_iterations(self, username: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for mechanism in HASHES:
            key = mechanism, username
            stored = self._stored.get(key)
            if stored is not None:
                found[mechanism] = stored.iterations
            elif key not in self._stored and username in self.users:
                found[mechanism] = self.iterations
        return found

    def set_scram(self, mechanism: str, username: str, salt: bytes, iterations: int, salted_password: bytes) -> None:
        """Set a user's password for a mechanism, salted by the client as AlterUserScramCredentials sends it."""
        self._stored[mechanism, username] = StoredPassword.of_salted(
            salted_password, hash_name=HASHES[mechanism], salt=salt, iterations=iterations
        )

    def delete_scram(self, mechanism: str, username: str) -> bool:
        """Delete a user's password for a mechanism; return whether there was one."""
        has_it = mechanism in self._scram_iterations(username)
        self._stored[mechanism, username] = None
        return has_it

    def set_token(self, token_id: str, token: DelegationTokenLogin) -> None:
        """Let a delegation token log in, as its owner."""
        self._tokens[token_id] = token

    def remove_token(self, token_id: str) -> None:
        self._tokens.pop(token_id, None)
        for mechanism in HASHES:
            self._computed.pop((mechanism, token_id), None)

    def _lookup(self, mechanism: str, username: str) -> StoredPassword:
        key = mechanism, username
        if key not in self._stored and username in self.users:
            return self._keys(mechanism, username, self.users[username])
        return self._stored.get(key) or self._unknown(mechanism, username)

    def _token(self, mechanism: str, token_id: str) -> tuple[StoredPassword, str, float]:
        """Return the keys of a delegation token, its owner and its end."""
        token = self._tokens.get(token_id)
        if token is None or token.expires_at <= self.unix_time():
            return self._unknown(mechanism, token_id), "", 0.0
        stored = self._keys(mechanism, token_id, base64.b64encode(token.hmac).decode())
        return stored, token.owner, token.expires_at

    def _keys(self, mechanism: str, name: str, password: str) -> StoredPassword:
        known = self._computed.get((mechanism, name))
        if known is not None and known[0] == password:
            return known[1]
        stored = StoredPassword.of(
            password, hash_name=HASHES[mechanism], salt=self._salt(mechanism, name), iterations=self.iterations
        )
        self._computed[mechanism, name] = password, stored
        return stored

    def _salt(self, mechanism: str, username: str) -> bytes:
        return hmac.digest(self._secret, f"{HASHES[mechanism]} {username}".encode(), "sha256")[:_SALT_BYTES]

    def _unknown(self, mechanism: str, username: str) -> StoredPassword:
        # An unknown user gets a constant salt, as a known user does, and keys that match no password.
        salt = self._salt(mechanism, username)
        return StoredPassword(salt, self.iterations, secrets.token_bytes(32), secrets.token_bytes(32))


class _PlainExchange:
    expires_at = None
    is_by_token = False

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.username: str | None = None
        self.is_done = False

    def step(self, message: bytes) -> bytes:
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise SaslError("a message that is not PLAIN")
        identity, username, password = (part.decode("utf-8", "replace") for part in parts)
        if identity not in ("", username):
            raise SaslError("authorisation identities are not supported")
        expected = self._users.get(username)
        given = password.encode("utf-8", "replace")
        # Compare in any case, so that the duration does not reveal whether the user exists.
        fits = hmac.compare_digest((expected or "").encode(), given)
        if expected is None or not fits or not password:  # an empty one is refused by Kafka, too
            raise SaslError("invalid credentials")
        self.username = username
        self.is_done = True
        return b""
