"""The broker's side of GSSAPI: it accepts tickets for the service whose keys are in a keytab."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kwire.errors import ConfigurationError
from kwire.session.sasl.exchange import SaslError
from kwire.session.sasl.kerberos import NO_LAYER, NO_LAYER_CHOSEN, load_gssapi, reason_text

_PRINCIPAL = re.compile(r"(?P<name>[^/@]+)(?:/[^/@]+)?@(?P<realm>[^/@]+)")


@dataclass(frozen=True)
class KerberosAcceptor:
    """Which tickets a broker accepts: those for a service whose keys are in the file `keytab`.

    Users are named by Kafka's default rule: the first part of their principal, if its realm is that of the service, or
    `realm` where the users have another one.
    """

    keytab: str
    realm: str | None = None

    def __post_init__(self) -> None:
        load_gssapi()
        if not os.access(self.keytab, os.R_OK):
            raise ConfigurationError(f"cannot read the keytab {self.keytab!r}", remedy="check the path")

    def exchange(self) -> KerberosExchange:
        """Return a new exchange."""
        gssapi = load_gssapi()

        def make_context() -> Any:
            keys = gssapi.Credentials(usage="accept", store={"keytab": self.keytab})
            return gssapi.SecurityContext(creds=keys, usage="accept")

        return KerberosExchange(make_context, gssapi.exceptions.GSSError, self.realm)


def short_name(principal: str, realm: str) -> str:
    """Return a user's name by Kafka's default rule. Raises SaslError for a principal that the rule does not fit."""
    match = _PRINCIPAL.fullmatch(principal)
    if match is None or match["realm"] != realm:
        raise SaslError(f"no rule names the principal {principal!r}: its realm is not {realm}")
    return match["name"]


class KerberosExchange:
    """The broker's side of one exchange: the tickets, then the agreement that no security layer follows."""

    expires_at = None
    is_by_token = False

    def __init__(self, make_context: Callable[[], Any], failure: type[Exception], realm: str | None) -> None:
        """`make_context` returns the library's context; it and the context raise `failure`."""
        self._make_context = make_context
        self._failure = failure
        self._realm = realm
        self._context: Any = None
        self._has_offered = False
        self.username: str | None = None
        self.is_done = False

    def step(self, message: bytes) -> bytes:
        try:
            return self._step(message)
        except self._failure as error:
            raise SaslError(reason_text(error)) from None

    def _step(self, message: bytes) -> bytes:
        if self._context is None:
            self._context = self._make_context()
        if not self._context.complete:
            token = self._context.step(message)
            if token:
                return bytes(token)
        elif self._has_offered:
            self._choose(bytes(self._context.unwrap(message).message))
            return b""
        self._has_offered = True
        return bytes(self._context.wrap(NO_LAYER_CHOSEN, False).message)

    def _choose(self, answer: bytes) -> None:
        """Read the layer and, behind it, whom the client wants to be: itself, or nobody in particular."""
        if len(answer) < 4 or answer[0] != NO_LAYER:
            raise SaslError("the client chose a security layer that was not offered")
        principal = str(self._context.initiator_name)
        service_realm = str(self._context.target_name).rpartition("@")[2]
        name = short_name(principal, service_realm if self._realm is None else self._realm)
        if answer[4:].decode("utf-8", "replace") not in ("", principal, name):
            raise SaslError("the authorisation identity is not the ticket's")
        self.username = name
        self.is_done = True
