"""OAUTHBEARER as Java's property files say it: `sasl.oauthbearer.*` and the options of OAuthBearerLoginModule.

Java's client chooses by classes where a token comes from. Here the class, librdkafka's grant type, or else what is
given chooses: a file, an assertion, or a client's id and secret. No error shows a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from kwire.cluster.jaas import jaas_options
from kwire.errors import ConfigurationError
from kwire.session import Sasl
from kwire.session.sasl.oauth import MECHANISM, UnsecuredToken

_EXTENSION = "extension_"
_NAMESPACE = "sasl.oauthbearer."
_ASSERTION = _NAMESPACE + "assertion."
_CLAIMS = ("aud", "iss", "sub")

OAUTH_PROPERTIES = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file",
    # librdkafka's
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.grant.type",
)

_JWT_BEARER = ("JwtBearerJwtRetriever", "urn:ietf:params:oauth:grant-type:jwt-bearer")


def oauth_sasl(properties: Mapping[str, str], prefix: str = "", ca_file: str | None = None) -> Sasl:
    """Translate OAUTH_PROPERTIES; other properties are ignored. Raises ConfigurationError.

    As in Java's client, the token server is trusted by the same authorities as the brokers: `ca_file`.
    """
    jaas: dict[str, str] = {}
    if "sasl.jaas.config" in properties:
        jaas = jaas_options(properties["sasl.jaas.config"], MECHANISM, prefix)
    given = {name: properties[name] for name in OAUTH_PROPERTIES if name in properties}
    extensions = {name.removeprefix(_EXTENSION): value for name, value in jaas.items() if name.startswith(_EXTENSION)}
    for part in given.get("sasl.oauthbearer.extensions", "").split(","):
        if part:
            name, _, value = part.partition("=")
            extensions[name] = value
    url = given.get("sasl.oauthbearer.token.endpoint.url")
    principal = jaas.get("unsecuredLoginStringClaim_sub")
    if url is None and principal is not None:
        return Sasl(MECHANISM, tokens=UnsecuredToken(principal), extensions=extensions)
    if url is None:
        raise ConfigurationError(
            f"option {prefix}sasl.oauthbearer.token.endpoint.url is missing",
            remedy="give the URL of the token server, or file:///path of a file with a token",
        )
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Sasl.oauth_file(unquote(parts.path), extensions=extensions)
    common: dict[str, Any] = {
        "scope": given.get("sasl.oauthbearer.scope", jaas.get("scope")),
        "extensions": extensions,
        "ca_file": ca_file,
    }
    client_id = _first(
        given, jaas, "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id", "clientId"
    )
    chosen = given.get("sasl.oauthbearer.jwt.retriever.class", given.get("sasl.oauthbearer.grant.type", ""))
    is_jwt_bearer = chosen.rpartition(".")[2] in _JWT_BEARER
    if is_jwt_bearer or _ASSERTION + "file" in given or _ASSERTION + "private.key.file" in given:
        grant = "jwt_bearer" if is_jwt_bearer else "client_credentials"
        return Sasl.oauth_assertion(url, **_assertion(given, prefix), grant=grant, client_id=client_id, **common)
    secret = _first(
        given,
        jaas,
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "clientSecret",
    )
    if client_id is None or secret is None:
        raise ConfigurationError(
            "the client id or secret for the token server is missing",
            remedy=f"give {prefix}sasl.oauthbearer.client.credentials.client.id and .client.secret",
        )
    urlencode = given.get("sasl.oauthbearer.header.urlencode", "false").strip().lower() == "true"
    return Sasl.oauth_client_credentials(url, client_id, secret, urlencode_header=urlencode, **common)


def _assertion(given: Mapping[str, str], prefix: str) -> dict[str, Any]:
    options = {name.removeprefix(_ASSERTION): value for name, value in given.items() if name.startswith(_ASSERTION)}
    file = options.get("file")
    if file is None and "private.key.file" not in options:
        raise ConfigurationError(
            "the assertion for the token server is missing",
            remedy=f"give {prefix}{_ASSERTION}private.key.file, or {prefix}{_ASSERTION}file",
        )
    if file is not None:
        return {"file": file}
    return {
        "private_key": options["private.key.file"],
        "key_password": options.get("private.key.passphrase"),
        "algorithm": options.get("algorithm", "RS256").upper(),
        "claims": {name: options[f"claim.{name}"] for name in _CLAIMS if f"claim.{name}" in options},
        "template": options.get("template.file"),
        "has_id": options.get("claim.jti.include", "false").strip().lower() == "true",
    }


def _first(given: Mapping[str, str], jaas: Mapping[str, str], *names: str) -> str | None:
    """Return the value of the first of these names that is given; the last is that of the JAAS line."""
    for name in names:
        value = given.get(name, jaas.get(name))
        if value is not None:
            return value
    return None
