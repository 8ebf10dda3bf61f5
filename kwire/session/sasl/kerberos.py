"""GSSAPI with Kerberos 5 (RFC 4752): a ticket proves who the client is. It needs the extra `kerberos` (gssapi).

Tickets come from a key distribution centre, so they are obtained on a thread that may wait; later messages need no
network. As in Kafka, Kerberos only authenticates: what follows is protected by TLS or not at all.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
from dataclasses import dataclass, field
from typing import Any

from kwire.errors import ConfigurationError, KerberosError
from kwire.session.sasl.exchange import GSSAPI, LoginTools, SaslError
from kwire.session.sasl.oauth import Secret, secret_text

MECHANISM = GSSAPI
# The security layers of RFC 4752: the bit of "none", and an answer that chooses it, which has no buffer size.
NO_LAYER = 1
NO_LAYER_CHOSEN = bytes([NO_LAYER, 0, 0, 0])

_KRB5 = 2_529_638_912  # minor codes of MIT's library begin here: its error table "krb5"
# What the codes mean: the reason, whether a later try may succeed, and the remedy.
_REASONS: dict[int, tuple[str, bool, str]] = {
    6: ("unknown principal", False, "check principal, and that the key distribution centre has it"),
    7: ("unknown service", False, "check service, and that the broker's address is the one in its principal"),
    24: (
        "wrong key",
        False,
        "check the password, or export the keytab again: its key may be older than the principal's",
    ),
    32: ("expired ticket", True, "run kinit again, or give a keytab"),
    37: ("clock skew", False, "set the clocks of this machine and of the key distribution centre"),
    154: ("no kdc", True, "check [realms] in krb5.conf, and that the key distribution centre is reachable"),
    156: ("no kdc", True, "check [realms] in krb5.conf, and that the key distribution centre is reachable"),
    181: ("wrong key", False, "the keytab has no key of this principal: see klist -k"),
    195: ("no ticket", False, "run kinit, or give a keytab"),
}
_EXPIRED = 11 << 16  # GSS_S_CREDENTIALS_EXPIRED, a major code
_NO_CREDENTIALS = 7 << 16  # GSS_S_NO_CRED
_numbers = itertools.count(1)


def load_gssapi() -> Any:
    """Return the package gssapi. Raises ConfigurationError."""
    try:
        return importlib.import_module("gssapi")
    except ImportError as error:
        raise ConfigurationError(
            f"SASL GSSAPI needs the package gssapi and the Kerberos library: {error}",
            remedy="pip install kwire[kerberos]; it is built with Debian's libkrb5-dev or Fedora's krb5-devel",
        ) from None


@dataclass(frozen=True)
class KerberosLogin:
    """Where tickets come from: a keytab, a password, else a credential cache such as kinit's."""

    service: str = "kafka"
    principal: str | None = None
    keytab: str | None = None
    ccache: str | None = None
    password: Secret | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.service, str) or not re.fullmatch(r"[^/@\s]+", self.service):
            raise ConfigurationError(
                f"service is {self.service!r}", remedy='give the first part of the brokers\' principal, such as "kafka"'
            )
        for option in ("principal", "keytab", "ccache"):
            value = getattr(self, option)
            if option != "principal" and isinstance(value, os.PathLike):
                object.__setattr__(self, option, os.fspath(value))
            elif value is not None and (not isinstance(value, str) or not value):
                what = "empty" if value == "" else type(value).__name__
                raise ConfigurationError(f"{option} is {what}", remedy="give a str")
        if self.password is not None and not isinstance(self.password, str) and not callable(self.password):
            raise ConfigurationError(
                f"password is {type(self.password).__name__}", remedy="give a str, or a function that returns one"
            )
        if self.password is not None and self.principal is None:
            raise ConfigurationError("password is given without principal", remedy="give both")
        if self.password is not None and (self.keytab is not None or self.ccache is not None):
            raise ConfigurationError("password is given with keytab or ccache", remedy="give one of them")

    @property
    def title(self) -> str:
        if self.principal is not None:
            return f"the Kerberos ticket of {self.principal!r}"
        if self.keytab is not None:
            return f"the Kerberos ticket of the keytab {self.keytab!r}"
        return f"the Kerberos ticket in {self.ccache!r}" if self.ccache is not None else "the Kerberos ticket of kinit"

    def fetch(self, tools: LoginTools) -> Ticket:
        """Return a ticket that grants others. Raises LoginError; blocks."""
        gssapi = load_gssapi()
        try:
            credentials = self._credentials(gssapi, tools)
            principal, lifetime = str(credentials.name), credentials.lifetime
        except gssapi.exceptions.GSSError as error:
            raise self._error(error) from None
        now = tools.unix_time()
        return Ticket(self, credentials, principal, now, now + lifetime)

    def _credentials(self, gssapi: Any, tools: LoginTools) -> Any:
        name = None
        if self.principal is not None:
            name = gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)
        if self.password is not None:
            secret = secret_text(self.password, tools, "the password").encode()
            got = gssapi.raw.acquire_cred_with_password(
                name, secret, usage="initiate", mechs=[gssapi.MechType.kerberos]
            )
            return gssapi.Credentials(got.creds)
        store: dict[str, str] = {}
        if self.keytab is not None:
            if not os.access(self.keytab, os.R_OK):
                raise KerberosError(
                    f"cannot read the keytab {self.keytab!r}", reason="no ticket", remedy="check the path"
                )
            # A new cache in memory: kinit's cache is the user's, and an old one would give the old ticket.
            store = {"client_keytab": self.keytab, "ccache": f"MEMORY:kwire-{os.getpid()}-{next(_numbers)}"}
        if self.ccache is not None:
            store["ccache"] = self.ccache
        return gssapi.Credentials(name=name, usage="initiate", store=store or None)

    def _error(self, error: Any, service: str = "") -> KerberosError:
        """Return the error of a failed call: what the library says, which has no secret, and what it means."""
        reason, may_retry, remedy = _REASONS.get(error.min_code - _KRB5, ("other", False, "see krb5.conf"))
        text = reason_text(error)
        if error.maj_code == _EXPIRED:
            reason, may_retry, remedy = _REASONS[32]
        elif self.keytab is not None and reason == "no ticket":
            reason, may_retry, remedy = _REASONS[181]
            text = f"{self.keytab!r} has no key for it"  # the library speaks of the cache that it would fill
        elif reason == "other" and error.maj_code == _NO_CREDENTIALS:
            reason, remedy = "no ticket", _REASONS[195][2]
        what = f"a ticket for {service} by {self.title}" if service else self.title
        return KerberosError(
            f"cannot get {what}: {text}", reason=reason, may_retry=may_retry, remedy=remedy
        )  # fmt: skip


@dataclass(frozen=True)
class Ticket:
    """A ticket that grants those of services. Times are seconds since 1970."""

    login: KerberosLogin
    credentials: Any = field(repr=False)
    principal: str
    issued_at: float
    expires_at: float

    def client(self, host: str) -> KerberosClient:
        """Return an exchange with the broker of this host name. Raises KerberosError; blocks."""
        gssapi = load_gssapi()
        service = f"{self.login.service}@{host}"
        context = gssapi.SecurityContext(
            name=gssapi.Name(service, gssapi.NameType.hostbased_service),
            creds=self.credentials,
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
            usage="initiate",
        )
        try:
            return KerberosClient(context, context.step(), gssapi.exceptions.GSSError)
        except gssapi.exceptions.GSSError as error:
            raise self.login._error(error, service) from None


class KerberosClient:
    """The client's side: the tickets, then the agreement that no security layer follows."""

    refusal = ""

    def __init__(self, context: Any, first: bytes, failure: type[Exception]) -> None:
        """`context` is the library's, which has made the `first` message; it raises `failure`."""
        self._context = context
        self._first = first
        self._failure = failure
        self._has_chosen = False
        self.is_done = False

    def start(self) -> bytes:
        return self._first

    def step(self, challenge: bytes) -> bytes | None:
        if self._has_chosen:
            self.is_done = True
            return None
        try:
            if not self._context.complete:
                return self._context.step(challenge) or b""
            layers = bytes(self._context.unwrap(challenge).message)
        except self._failure as error:
            raise SaslError(reason_text(error)) from None
        if len(layers) != 4:
            raise SaslError("the broker's message about security layers is malformed")
        if not layers[0] & NO_LAYER:
            raise SaslError("the broker requires a security layer of GSSAPI, which Kafka's clients do not have")
        self._has_chosen = True
        return bytes(self._context.wrap(NO_LAYER_CHOSEN, False).message)


def reason_text(error: Any) -> str:
    """Return the Kerberos library's reason, else that of GSSAPI."""
    texts = [*error.get_all_statuses(error.min_code, False), *error.get_all_statuses(error.maj_code, True)]
    return next((text for text in texts if text and text != "Success"), "unknown")
