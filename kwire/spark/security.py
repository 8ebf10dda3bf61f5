"""Kafka's security properties as Java clients write them, turned into a `Tls` and a `Sasl`.

Owns the translation of security.protocol, sasl.* and ssl.*. Refuses Java key stores (JKS, PKCS12), which Python's TLS
cannot read, and keys written into the options themselves. No error shows a password. File names are opened where
records are read and written, so the files must be on every executor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kwire.errors import ConfigurationError
from kwire.net import Tls
from kwire.session import Sasl
from kwire.spark.values import one_of

_LOGIN_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# Java's names first; then librdkafka's, which Python users know, for the same things.
PROPERTIES = (
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

_PEM = "export it as PEM (keytool -exportcert -rfc, or openssl pkcs12 -in store.p12 -out store.pem)"
_IN_A_FILE = "put the PEM into a file that every executor can read, and name the file in kafka.{}"
_LOGIN = "kwire logs in by itself; give kafka.sasl.mechanism and kafka.sasl.jaas.config"
REFUSED = {
    "ssl.truststore.certificates": _IN_A_FILE.format("ssl.truststore.location"),
    "ssl.keystore.certificate.chain": _IN_A_FILE.format("ssl.keystore.location"),
    "ssl.keystore.key": _IN_A_FILE.format("ssl.keystore.location"),
    "ssl.truststore.password": "a PEM file has none; " + _PEM,
    "ssl.keystore.password": "a PEM file has none, its key's is kafka.ssl.key.password; " + _PEM,
    "sasl.login.class": _LOGIN,
    "sasl.login.callback.handler.class": _LOGIN,
    "sasl.client.callback.handler.class": _LOGIN,
    "sasl.kerberos.service.name": f"kwire offers {', '.join(MECHANISMS)}",
}


def tls_and_sasl(properties: Mapping[str, str]) -> tuple[Tls | None, Sasl | None]:
    """Read the properties in PROPERTIES; others are left alone. Contradictions raise rather than being guessed at."""
    has_tls = any(name.startswith("ssl.") for name in properties)
    has_sasl = any(name.startswith("sasl.") for name in properties)
    protocol = one_of("kafka.security.protocol", properties.get("security.protocol", "PLAINTEXT"), _PROTOCOLS)
    if has_tls and "SSL" not in protocol.split("_"):
        raise _contradiction("kafka.ssl.*", protocol, "SSL or SASL_SSL")
    if has_sasl and not protocol.startswith("SASL"):
        raise _contradiction("kafka.sasl.*", protocol, "SASL_SSL or SASL_PLAINTEXT")
    return (
        _tls(properties) if protocol.endswith("SSL") else None,
        _sasl(properties) if protocol.startswith("SASL") else None,
    )


def _contradiction(options: str, protocol: str, needed: str) -> ConfigurationError:
    return ConfigurationError(
        f"options {options} are given, but kafka.security.protocol is {protocol}", remedy=f"set it to {needed}"
    )


def _tls(properties: Mapping[str, str]) -> Tls:
    for store in ("truststore", "keystore"):
        is_typed_or_used = {f"ssl.{store}.type", f"ssl.{store}.location"} & properties.keys()
        if is_typed_or_used and properties.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
            raise ConfigurationError(
                f"option kafka.ssl.{store}.type is {properties.get(f'ssl.{store}.type', 'JKS (the default)')}",
                remedy=f"kwire reads PEM files: {_PEM} and set kafka.ssl.{store}.type to PEM",
            )
    check = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if check not in ("https", "", "none"):
        raise ConfigurationError(
            f"option kafka.ssl.endpoint.identification.algorithm is {check!r}",
            remedy="give https, or nothing for no check",
        )
    # A PEM key store holds the chain and the key in one file.
    store_file = properties.get("ssl.keystore.location")
    return Tls(
        ca_file=_either(properties, "ssl.truststore.location", "ssl.ca.location"),
        cert_file=_either(properties, "ssl.keystore.location", "ssl.certificate.location"),
        key_file=store_file or properties.get("ssl.key.location"),
        key_password=properties.get("ssl.key.password"),
        check_hostname=check == "https",
    )


def _either(properties: Mapping[str, str], java: str, librdkafka: str) -> str | None:
    if java in properties and librdkafka in properties:
        raise ConfigurationError(f"options kafka.{java} and kafka.{librdkafka} say the same", remedy="give one of them")
    return properties.get(java, properties.get(librdkafka))


def _sasl(properties: Mapping[str, str]) -> Sasl:
    if "sasl.mechanism" not in properties:
        raise ConfigurationError(
            "option kafka.sasl.mechanism is missing", remedy=f"give one of {', '.join(MECHANISMS)}"
        )
    mechanism = one_of("kafka.sasl.mechanism", properties["sasl.mechanism"], MECHANISMS)
    jaas = properties.get("sasl.jaas.config")
    if jaas is not None:
        if "sasl.username" in properties or "sasl.password" in properties:
            raise ConfigurationError(
                "options kafka.sasl.jaas.config and kafka.sasl.username or .password say the same", remedy="give one"
            )
        username, password = parse_jaas(jaas, mechanism)
    else:
        try:
            username, password = properties["sasl.username"], properties["sasl.password"]
        except KeyError:
            raise ConfigurationError(
                "the user name or password for SASL is missing",
                remedy="give kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password",
            ) from None
    return Sasl(mechanism, username, password)


def parse_jaas(text: str, mechanism: str) -> tuple[str, str]:
    """User name and password in a line such as `...PlainLoginModule required username="u" password="p";`."""
    head = re.match(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\s", text)
    module = head[1].rpartition(".")[2] if head else ""
    if head is None or mechanism not in _LOGIN_MODULES.get(module, ()):
        fitting = next(name for name, fits in _LOGIN_MODULES.items() if mechanism in fits)
        raise ConfigurationError(
            f"option kafka.sasl.jaas.config does not fit the mechanism {mechanism}",
            remedy=f'it should look like `{fitting} required username="..." password="...";`',
        )
    entries = re.findall(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))', text[head.end() :], re.DOTALL)
    values = {key: re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) or bare for key, quoted, bare in entries}
    if "username" not in values or "password" not in values:
        raise ConfigurationError(
            "option kafka.sasl.jaas.config has no username or no password",
            remedy='it should end with username="..." password="...";',
        )
    return values["username"], values["password"]
