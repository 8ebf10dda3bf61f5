"""TLS and SASL as Java's property files say them: `security.protocol`, `ssl.*` and `sasl.*` as `Tls` and `Sasl`.

Java key stores (JKS, PKCS12) are rejected, because Python's TLS cannot read them. No error shows a password.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.cluster.jaas import jaas_options, parse_jaas
from kwire.cluster.kerberos_properties import KERBEROS_PROPERTIES, kerberos_sasl
from kwire.cluster.oauth_properties import OAUTH_PROPERTIES, oauth_sasl
from kwire.errors import ConfigurationError
from kwire.net import Tls
from kwire.session import MECHANISMS, Sasl
from kwire.session.sasl.aws import MECHANISM as AWS
from kwire.session.sasl.kerberos import MECHANISM as KERBEROS
from kwire.session.sasl.oauth import MECHANISM

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# Java's names, then librdkafka's names for the same settings, which Python users know.
SECURITY_PROPERTIES = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.crl.location",
    "sasl.login.callback.handler.class",
    *OAUTH_PROPERTIES,
    *KERBEROS_PROPERTIES,
)

# Java's client gets its tokens by these classes; here they only confirm what the other properties say.
_LOGIN_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")

PEM_REMEDY = "export it as PEM (keytool -exportcert -rfc, or openssl pkcs12 -in store.p12 -out store.pem)"


def tls_and_sasl(properties: Mapping[str, str], prefix: str = "") -> tuple[Tls | None, Sasl | None]:
    """Translate SECURITY_PROPERTIES; ignore other properties. Errors name a property with the `prefix` before it.

    Contradictory properties raise a ConfigurationError.
    """
    has_tls = any(name.startswith("ssl.") for name in properties)
    has_sasl = any(name.startswith("sasl.") for name in properties)
    protocol = _parse_choice(f"{prefix}security.protocol", properties.get("security.protocol", "PLAINTEXT"), _PROTOCOLS)
    if has_tls and "SSL" not in protocol.split("_"):
        raise _contradiction("ssl.*", protocol, "SSL or SASL_SSL", prefix)
    if has_sasl and not protocol.startswith("SASL"):
        raise _contradiction("sasl.*", protocol, "SASL_SSL or SASL_PLAINTEXT", prefix)
    tls = _tls(properties, prefix) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return tls, None
    return tls, _sasl(properties, prefix)


def _contradiction(options: str, protocol: str, needed: str, prefix: str) -> ConfigurationError:
    return ConfigurationError(
        f"options {prefix}{options} are given, but {prefix}security.protocol is {protocol}",
        remedy=f"set it to {needed}",
    )


def _tls(properties: Mapping[str, str], prefix: str) -> Tls:
    for store in ("truststore", "keystore"):
        is_typed_or_used = {f"ssl.{store}.type", f"ssl.{store}.location"} & properties.keys()
        if is_typed_or_used and properties.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
            raise ConfigurationError(
                f"option {prefix}ssl.{store}.type is {properties.get(f'ssl.{store}.type', 'JKS (the default)')}",
                remedy=f"kwire reads PEM files: {PEM_REMEDY} and set {prefix}ssl.{store}.type to PEM",
            )
    check = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if check not in ("https", "", "none"):
        raise ConfigurationError(
            f"option {prefix}ssl.endpoint.identification.algorithm is {check!r}",
            remedy="give https, or nothing for no check",
        )
    # A PEM key store holds the chain and the key in one file.
    store_file = properties.get("ssl.keystore.location")
    return Tls(
        ca_file=_either(properties, "ssl.truststore.location", "ssl.ca.location", prefix),
        cert_file=_either(properties, "ssl.keystore.location", "ssl.certificate.location", prefix),
        key_file=store_file or properties.get("ssl.key.location"),
        key_password=properties.get("ssl.key.password"),
        check_hostname=check == "https",
        crl_file=properties.get("ssl.crl.location"),
    )


def _either(properties: Mapping[str, str], java: str, librdkafka: str, prefix: str) -> str | None:
    if java in properties and librdkafka in properties:
        raise ConfigurationError(
            f"options {prefix}{java} and {prefix}{librdkafka} mean the same", remedy="give one of them"
        )
    return properties.get(java, properties.get(librdkafka))


def _sasl(properties: Mapping[str, str], prefix: str) -> Sasl:
    if "sasl.mechanism" not in properties:
        raise ConfigurationError(
            f"option {prefix}sasl.mechanism is missing", remedy=f"give one of {', '.join(MECHANISMS)}"
        )
    mechanism = _parse_choice(f"{prefix}sasl.mechanism", properties["sasl.mechanism"], MECHANISMS)
    handler = properties.get("sasl.login.callback.handler.class")
    if handler is not None and handler.rpartition(".")[2] not in _LOGIN_HANDLERS:
        aws = "kwire.Sasl.aws_msk_iam does the same" if ".msk.auth.iam." in handler else ""
        raise ConfigurationError(
            f"option {prefix}sasl.login.callback.handler.class names a class of Java",
            remedy=f"in Python, {aws or 'kwire.Sasl.oauth takes a function that returns a token'}",
        )
    if mechanism == MECHANISM:
        return oauth_sasl(properties, prefix)
    if mechanism == KERBEROS:
        return kerberos_sasl(properties, prefix)
    if mechanism == AWS:
        return _aws_sasl(properties, prefix)
    jaas = properties.get("sasl.jaas.config")
    if jaas is not None:
        if "sasl.username" in properties or "sasl.password" in properties:
            raise ConfigurationError(
                f"options {prefix}sasl.jaas.config and {prefix}sasl.username or .password mean the same",
                remedy="give one",
            )
        username, password = parse_jaas(jaas, mechanism, prefix)
        if jaas_options(jaas, mechanism, prefix).get("tokenauth", "").lower() == "true":
            return Sasl.delegation_token(username, password, mechanism)
    else:
        try:
            username, password = properties["sasl.username"], properties["sasl.password"]
        except KeyError:
            raise ConfigurationError(
                "the user name or password for SASL is missing",
                remedy=f"give {prefix}sasl.jaas.config, or {prefix}sasl.username and {prefix}sasl.password",
            ) from None
    return Sasl(mechanism, username, password)


def _aws_sasl(properties: Mapping[str, str], prefix: str) -> Sasl:
    """Translate the options of aws-msk-iam-auth's IAMLoginModule."""
    options = jaas_options(properties["sasl.jaas.config"], AWS, prefix) if "sasl.jaas.config" in properties else {}
    others = sorted(options.keys() - {"awsProfileName", "awsDebugCreds"})
    if others:
        raise ConfigurationError(
            f"option {others[0]} in {prefix}sasl.jaas.config is not supported",
            remedy="put the role into a profile of AWS's configuration file, and name that: awsProfileName",
        )
    return Sasl.aws_msk_iam(profile=options.get("awsProfileName"), mechanism=AWS)


def _parse_choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    """Return the choice that `text` names in any case."""
    chosen = text.strip().upper()
    if chosen not in choices:
        raise ConfigurationError(f"option {name} is {text!r}", remedy=f"give one of {', '.join(choices)}")
    return chosen
