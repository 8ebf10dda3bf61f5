"""GSSAPI as Java's property files say it: `sasl.kerberos.service.name` and the options of Krb5LoginModule.

librdkafka's `sasl.kerberos.*` say the same without a module of Java.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.cluster.jaas import jaas_options
from kwire.errors import ConfigurationError
from kwire.session import Sasl
from kwire.session.sasl.kerberos import MECHANISM

_SERVICE = "sasl.kerberos.service.name"
KERBEROS_PROPERTIES = (
    _SERVICE,
    # librdkafka's
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
)


def kerberos_sasl(properties: Mapping[str, str], prefix: str = "") -> Sasl:
    """Translate KERBEROS_PROPERTIES and `sasl.jaas.config`; other properties are ignored. Raises ConfigurationError."""
    jaas: dict[str, str] = {}
    if "sasl.jaas.config" in properties:
        jaas = jaas_options(properties["sasl.jaas.config"], MECHANISM, prefix)
    services = {name for name in (properties.get(_SERVICE), jaas.get("serviceName")) if name}
    if len(services) > 1:
        raise ConfigurationError(
            f"options {prefix}{_SERVICE} and serviceName in {prefix}sasl.jaas.config differ", remedy="give one of them"
        )
    keytab = properties.get("sasl.kerberos.keytab", jaas.get("keyTab"))
    if keytab is None and _is_true(jaas, "useKeyTab"):
        raise ConfigurationError(
            f"option {prefix}sasl.jaas.config has useKeyTab without keyTab", remedy='add keyTab="/path/of/the.keytab"'
        )
    if not _is_true(jaas, "useKeyTab", "true"):
        keytab = None
    return Sasl.kerberos(
        services.pop() if services else "kafka",
        principal=properties.get("sasl.kerberos.principal", jaas.get("principal")),
        keytab=keytab,
        ccache=jaas.get("ticketCache") if _is_true(jaas, "useTicketCache") else None,
    )


def _is_true(jaas: Mapping[str, str], name: str, default: str = "false") -> bool:
    return jaas.get(name, default).strip().lower() == "true"
