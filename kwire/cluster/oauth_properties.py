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
    "https.ca.location",
)

_RETRIEVERS = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever", "FileJwtRetriever")
_JWT_BEARER_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_GRANTS = ("client_credentials", _JWT_BEARER_GRANT)
_METHODS = ("default", "oidc")


def oauth_sasl(properties: Mapping[str, str], prefix: str = "") -> Sasl:
    """Translate OAUTH_PROPERTIES; other properties are ignored. Raises ConfigurationError."""
    jaas: dict[str, str] = {}
    if "sasl.jaas.config" in properties:
        jaas = jaas_options(properties["sasl.jaas.config"], MECHANISM, prefix)
    given = {name: properties[name] for name in OAUTH_PROPERTIES if name in properties}
    _check_choice(given, "sasl.oauthbearer.method", _METHODS, prefix)
    _check_choice(given, "sasl.oauthbearer.grant.type", _GRANTS, prefix)
    retriever = given.get("sasl.oauthbearer.jwt.retriever.class", "").rpartition(".")[2]
    if retriever and retriever not in _RETRIEVERS:
        raise ConfigurationError(
            f"option {prefix}sasl.oauthbearer.jwt.retriever.class names a class that is not Kafka's",
            remedy=f"give one of {', '.join(_RETRIEVERS)}; in Python, kwire.Sasl.oauth takes a function",
        )
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
        "ca_file": _ca_file(given, jaas, prefix),
    }
    client_id = _first(
        given, jaas, "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id", "clientId"
    )
    is_jwt_bearer = (retriever or given.get("sasl.oauthbearer.grant.type", "").strip().lower()) in (
        "JwtBearerJwtRetriever",
        _JWT_BEARER_GRANT,
    )
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
    urlencode = _is_true(given, "sasl.oauthbearer.header.urlencode", prefix)
    return Sasl.oauth_client_credentials(url, client_id, secret, urlencode_header=urlencode, **common)


def _ca_file(given: Mapping[str, str], jaas: Mapping[str, str], prefix: str) -> str | None:
    """Return the authorities of the token server, None for those of the system; never those of the brokers.

    Java's client has them in the JAAS line, librdkafka in `https.ca.location`.
    """
    if "ssl.keystore.location" in jaas:
        raise ConfigurationError(
            f"ssl.keystore.location in {prefix}sasl.jaas.config is not supported: kwire shows the token server no "
            "certificate",
            remedy="remove it, or give a function that returns a token: kwire.Sasl.oauth",
        )
    in_jaas = jaas.get("ssl.truststore.location")
    if in_jaas is not None and jaas.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise ConfigurationError(
            f"ssl.truststore.location in {prefix}sasl.jaas.config is no PEM file",
            remedy='export it (keytool -exportcert -rfc) and add ssl.truststore.type="PEM"',
        )
    ca_file = given.get("https.ca.location")
    if ca_file is not None and in_jaas is not None:
        raise ConfigurationError(
            f"options {prefix}https.ca.location and ssl.truststore.location in {prefix}sasl.jaas.config mean the same",
            remedy="give one of them",
        )
    return in_jaas if ca_file is None else ca_file


def _check_choice(given: Mapping[str, str], name: str, choices: tuple[str, ...], prefix: str) -> None:
    if name in given and given[name].strip().lower() not in choices:
        raise ConfigurationError(
            f"option {prefix}{name} is {given[name]!r:.60}", remedy=f"give one of {', '.join(choices)}"
        )


def _is_true(given: Mapping[str, str], name: str, prefix: str) -> bool:
    _check_choice(given, name, ("true", "false"), prefix)
    return given.get(name, "").strip().lower() == "true"


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
        "has_id": _is_true(given, f"{_ASSERTION}claim.jti.include", prefix),
    }


def _first(given: Mapping[str, str], jaas: Mapping[str, str], *names: str) -> str | None:
    """Return the value of the first of these names that is given; the last is that of the JAAS line."""
    for name in names:
        value = given.get(name, jaas.get(name))
        if value is not None:
            return value
    return None
