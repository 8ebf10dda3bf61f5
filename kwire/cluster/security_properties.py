"""TLS and SASL as Java's property files say them: `security.protocol`, `ssl.*` and `sasl.*` as `Tls` and `Sasl`.

Java key stores (JKS, PKCS12) are rejected, because Python's TLS cannot read them. No error shows a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kwire.errors import ConfigurationError
from kwire.net import Tls
from kwire.session import MECHANISMS, Sasl

_LOGIN_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}
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
)

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
    return (
        _tls(properties, prefix) if protocol.endswith("SSL") else None,
        _sasl(properties, prefix) if protocol.startswith("SASL") else None,
    )


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
    jaas = properties.get("sasl.jaas.config")
    if jaas is not None:
        if "sasl.username" in properties or "sasl.password" in properties:
            raise ConfigurationError(
                f"options {prefix}sasl.jaas.config and {prefix}sasl.username or .password mean the same",
                remedy="give one",
            )
        username, password = parse_jaas(jaas, mechanism, prefix)
    else:
        try:
            username, password = properties["sasl.username"], properties["sasl.password"]
        except KeyError:
            raise ConfigurationError(
                "the user name or password for SASL is missing",
                remedy=f"give {prefix}sasl.jaas.config, or {prefix}sasl.username and {prefix}sasl.password",
            ) from None
    return Sasl(mechanism, username, password)


def parse_jaas(text: str, mechanism: str, prefix: str = "") -> tuple[str, str]:
    """User name and password in a line such as `...PlainLoginModule required username="u" password="p";`."""
    head = re.match(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\s", text)
    module = head[1].rpartition(".")[2] if head else ""
    if head is None or mechanism not in _LOGIN_MODULES.get(module, ()):
        fitting = next(name for name, fits in _LOGIN_MODULES.items() if mechanism in fits)
        raise ConfigurationError(
            f"option {prefix}sasl.jaas.config does not fit the mechanism {mechanism}",
            remedy=f'it should look like `{fitting} required username="..." password="...";`',
        )
    entries = re.findall(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))', text[head.end() :], re.DOTALL)
    values = {key: re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) or bare for key, quoted, bare in entries}
    if "username" not in values or "password" not in values:
        raise ConfigurationError(
            f"option {prefix}sasl.jaas.config has no username or no password",
            remedy='it should end with username="..." password="...";',
        )
    return values["username"], values["password"]


def _parse_choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    """Return the choice that `text` names in any case."""
    chosen = text.strip().upper()
    if chosen not in choices:
        raise ConfigurationError(f"option {name} is {text!r}", remedy=f"give one of {', '.join(choices)}")
    return chosen
